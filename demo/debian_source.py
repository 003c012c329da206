"""Fetches the sources of a program, as its authors published them, from Debian.

apt-get does it, with the machine's own mirrors and keys, asked for sources in a folder of the cache:
neither its lists nor its settings change, and nobody has to be root. The archive's hash is pinned.
"""

import hashlib
import os
import pathlib
import re
import subprocess
import tarfile
import tempfile

from curl_source import Failure, cache_dir

LISTS = ("/etc/apt/sources.list", "/etc/apt/sources.list.d")


def archive(package, version, sha256, steps):
    """The path of PACKAGE_VERSION.orig.tar.*, fetched unless the cache has it."""
    home = cache_dir() / "debian"
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(f"cannot write to {home} ({error.strerror}); set LARDER_CACHE to a directory you own") from None
    kept = home / f"{package}-{version}-{sha256[:8]}.tar"
    if not kept.exists():
        with steps.step(f"Fetching {package} {version} with apt-get"):
            with tempfile.TemporaryDirectory(dir=home) as folder:
                found = _download(package, version, pathlib.Path(folder))
                real = hashlib.sha256(found.read_bytes()).hexdigest()
                if real != sha256:
                    raise Failure(f"{found.name} is not the archive that was expected: sha256 {real}, not {sha256}")
                found.rename(kept)
    return kept


def unpack(tar, folder):
    """The files of the archive's one folder, in `folder`, with their times."""
    folder.mkdir(parents=True)
    # Older ones have no filters; the archive is a known one.
    safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(tar) as opened:
        for member in opened:
            member.name = member.name.partition("/")[2]
            if member.name:
                opened.extract(member, folder, **safely)


def _download(package, version, folder):
    parts, lists, cache = (folder / name for name in ("parts", "lists/partial", "cache/archives/partial"))
    for place in (parts, lists, cache):
        place.mkdir(parents=True)
    _write_sources(parts)
    settings = folder / "apt.conf"
    settings.write_text(f'Dir::Etc::sourcelist "/dev/null";\nDir::Etc::sourceparts "{parts}";\n'
                        f'Dir::State::lists "{lists.parent}";\nDir::Cache "{cache.parent.parent}";\n'
                        'APT::Sandbox::User "";\n')
    _apt(settings, folder, "update")
    offered = _apt(settings, folder, "source", "--print-uris", "--only-source", package)
    found = re.search(rf"(\S+/|'){re.escape(package)}_{re.escape(version)}[-+~]?\S*\.dsc'", offered)
    if not found:
        other = re.search(r"(\S+)\.dsc ", offered)
        raise Failure(f"Debian 12 has {package} {version}; the sources of this machine have "
                      f"{other[1].rpartition('/')[2] if other else 'none'}")
    _apt(settings, folder, "source", "--download-only", "--only-source", package)
    archives = list(folder.glob(f"{package}_{version}*.orig.tar.*"))
    if len(archives) != 1:
        raise Failure(f"the sources of {package} {version} have {len(archives)} archives of its authors, not one")
    return archives[0]


def _write_sources(parts):
    """The machine's sources of binaries, as sources of sources."""
    files = [pathlib.Path(LISTS[0]), *sorted(pathlib.Path(LISTS[1]).glob("*"))]
    for number, file in enumerate(file for file in files if file.is_file()):
        text = file.read_text(errors="replace")
        if file.suffix == ".sources":
            text = re.sub(r"^Types:.*$", "Types: deb-src", text, flags=re.MULTILINE)
            (parts / f"{number}.sources").write_text(text)
        elif file.suffix == ".list":
            lines = [re.sub(r"^deb\b", "deb-src", line) for line in text.splitlines() if re.match(r"deb\s", line)]
            (parts / f"{number}.list").write_text("\n".join(lines) + "\n")


def _apt(settings, folder, *words):
    try:
        done = subprocess.run(["apt-get", "-qq", *words], cwd=folder, env=os.environ | {"APT_CONFIG": str(settings)},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    except FileNotFoundError:
        raise Failure("apt-get is missing: this program's sources come from Debian") from None
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Failure(f"apt-get {' '.join(words)} failed ({said}); check the network and the machine's "
                      "list of package sources")
    return done.stdout

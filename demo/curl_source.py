"""Builds curl from the sources that the crate curl-sys carries, and keeps the result.

Cargo fetches the crate, so that its bytes are checked against the registry's index; the hash is
pinned here as well. A build lies in `<cache>/curl/<version>-<flavour>-<key>/`, where the key covers
everything that the build depends on, and counts as whole once its `done` file is there. Builders of
the same cache wait for each other at a lock file.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent


class Failure(Exception):
    """One line for the user: what failed, where, and what to do."""


@dataclasses.dataclass(frozen=True)
class Release:
    """One curl-sys crate and how to configure the curl inside it."""

    curl: str
    crate: str
    sha256: str
    cmake: tuple


# HTTP alone: TLS and compression would bring libraries that differ from machine to machine.
_MODERN = (
    "-DBUILD_SHARED_LIBS=OFF",
    "-DBUILD_STATIC_LIBS=ON",
    "-DHTTP_ONLY=ON",
    "-DCURL_ENABLE_SSL=OFF",
    "-DCURL_USE_LIBPSL=OFF",
    "-DCURL_USE_LIBSSH2=OFF",
    "-DUSE_LIBIDN2=OFF",
    "-DUSE_NGHTTP2=OFF",
    "-DCURL_ZLIB=OFF",
    "-DCURL_BROTLI=OFF",
    "-DCURL_ZSTD=OFF",
    "-DCURL_USE_PKGCONFIG=OFF",
    "-DBUILD_LIBCURL_DOCS=OFF",
    "-DBUILD_MISC_DOCS=OFF",
    "-DENABLE_CURL_MANUAL=OFF",
    "-DCURL_DISABLE_INSTALL=ON",
)
_OLD = (
    "-DCURL_STATICLIB=ON",
    "-DHTTP_ONLY=ON",
    "-DCMAKE_USE_OPENSSL=OFF",
    "-DCMAKE_USE_LIBSSH2=OFF",
    "-DCURL_ZLIB=OFF",
    "-DENABLE_MANUAL=OFF",
    "-DCMAKE_POLICY_VERSION_MINIMUM=3.5",
)
RELEASES = {
    release.curl: release
    for release in (
        Release(
            "8.22.0",
            "0.4.91",
            "cd39579123e45bf762716bb893d43886ed1cabe6289455be29a4f1d4e37afb06",
            _MODERN,
        ),
        # The last one with, and the first one without, an allocation at every turn of the
        # transfer loop.
        Release(
            "7.51.0",
            "0.3.10",
            "c0d909dc402ae80b6f7b0118c039203436061b9d9a3ca5d2c2546d93e0a61aaa",
            _OLD,
        ),
        Release(
            "7.54.0",
            "0.3.11",
            "23e7e544dc5e1ba42c4a4a678bd47985e84b9c3f4d3404c29700622a029db9c3",
            _OLD,
        ),
    )
}
LATEST = "8.22.0"

# "plain" is what a distribution ships, with its debug information kept. "debug" carries curl's own
# memory-debug log; without optimisation every call keeps its frame and its line.
FLAVOURS = {
    "plain": ("-DCMAKE_BUILD_TYPE=RelWithDebInfo",),
    "debug": ("-DCMAKE_BUILD_TYPE=Debug", "-DENABLE_DEBUG=ON"),
}

FREE_BYTES_NEEDED = 300 << 20


def cache_dir():
    """Where builds are kept: $LARDER_CACHE, else .cache/ of the repository."""
    chosen = os.environ.get("LARDER_CACHE")
    return pathlib.Path(chosen).absolute() if chosen else REPOSITORY / ".cache"


def find_or_build(version, flavour, steps, patch=None):
    """Returns the path of the curl executable, building it first where there is none. A patch of the
    sources is a flavour of its own."""
    release = RELEASES[version]
    options = ("-G", "Ninja", "-DBUILD_TESTING=OFF") + release.cmake + FLAVOURS[flavour]
    flags = [os.environ.get(name, "") for name in ("CFLAGS", "LDFLAGS")]
    changes = patch.read_text() if patch else ""
    if patch:  # It may use the kit.
        kit = sorted((REPOSITORY / "include" / "larder" / "kit").glob("*.h"))
        changes += "".join(header.read_text() for header in kit)
        options += (f"-DCMAKE_C_FLAGS={os.environ.get('CFLAGS', '')} -I{REPOSITORY / 'include'}",)
    parts = (release.sha256, changes, _compiler(), *flags, *options)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    home = cache_dir() / "curl"
    name = f"{version}-{flavour}" + (f"-{patch.stem}" if patch else "")
    place = home / f"{name}-{key[:8]}"
    curl = place / "src" / "curl"
    with _lock(home):
        if (place / "done").exists() and curl.exists():
            return curl
        require_space(home, FREE_BYTES_NEEDED, "set LARDER_CACHE to a folder on another disk")
        source = _source(release, home, steps)
        for stale in home.glob(f"{name}-{8 * '[0-9a-f]'}"):
            shutil.rmtree(stale)
        place.mkdir()
        if patch:
            source = _patched(source, place / "source", patch)
        what = f"curl {version} ({flavour}{', patched' if patch else ''})"
        with steps.step(f"Configuring {what}"):
            _logged(["cmake", "-S", str(source), "-B", str(place), *options], place / "cmake.log")
        with steps.step(f"Building {what}") as note:
            command = ["cmake", "--build", str(place), "--parallel", str(os.cpu_count() or 1)]
            _logged([*command, "--target", "curl"], place / "build.log", note)
        (place / "done").touch()
    return curl


def find_source(version, steps):
    """Returns the folder of that curl's sources, fetching them first where there are none."""
    home = cache_dir() / "curl"
    with _lock(home):
        return _source(RELEASES[version], home, steps)


def source_dir(version):
    """Where find_or_build has laid the sources of that curl."""
    return cache_dir() / "curl" / f"{version}-source"


def link_transfer(version, program, steps, patch=None):
    """demo/transfer.c with the libcurl of that version, patched or not, as `program`."""
    place = find_or_build(version, "plain", steps, patch).parent.parent
    source = source_dir(version)
    command = [
        os.environ.get("CC", "cc"), "-O2", "-g", "-DCURL_STATICLIB",
        "-I", str(source / "include"), "-I", str(place / "include" / "curl"),
        str(REPOSITORY / "demo" / "transfer.c"), str(place / "lib" / "libcurl.a"),
        "-lpthread", "-o", str(program),
    ]
    with steps.step(f"Linking demo/transfer.c with libcurl {version}{', patched' if patch else ''}"):
        _logged(command, program.with_name(program.name + ".log"))
    return program


def _patched(source, folder, patch):
    shutil.copytree(source, folder)
    _logged(["patch", "-d", str(folder), "-p1", "-i", str(patch)], folder.with_name("patch.log"))
    return folder


def require_space(folder, needed, else_do):
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise Failure(
            f"{needed >> 20} MiB are needed in {folder}, and {free >> 20} MiB are free: "
            f"make room, or {else_do}"
        )


def _source(release, home, steps):
    """Copies the crate's curl into the cache: the registry's own copy is never touched."""
    source = source_dir(release.curl)
    if source.exists():
        return source
    with steps.step(f"Fetching curl {release.curl} (crate curl-sys {release.crate}) with cargo"):
        bundled = _fetch(release, home / f"fetch-{release.crate}") / "curl"
        fresh = source.with_name(source.name + ".new")
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.copytree(bundled, fresh)
        # The crate leaves the documentation out, and curl's CMakeLists.txt wants its folders.
        for folder in ("docs", "docs/examples"):
            (fresh / folder).mkdir(exist_ok=True)
            (fresh / folder / "CMakeLists.txt").touch()
        fresh.rename(source)
    return source


def _fetch(release, manifest_dir):
    """Lets cargo fetch the crate through a manifest that depends on it; returns its folder."""
    manifest_dir.mkdir(parents=True, exist_ok=True)
    (manifest_dir / "lib.rs").touch()
    manifest = manifest_dir / "Cargo.toml"
    manifest.write_text(
        "[workspace]\n"
        '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n'
        '[lib]\npath = "lib.rs"\n'
        f'[dependencies]\ncurl-sys = {{ version = "={release.crate}", default-features = false }}\n'
    )
    host = re.search(r"^host: (.+)$", _output(["rustc", "-vV"]), re.MULTILINE)[1]
    command = ["cargo", "metadata", "--format-version", "1", "--filter-platform", host]
    try:
        listing = subprocess.run(
            [*command, "--manifest-path", str(manifest)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    except FileNotFoundError:
        raise Failure(_MISSING["cargo"]) from None
    except subprocess.CalledProcessError as failed:
        raise Failure(
            f"cargo could not fetch the crate curl-sys {release.crate} "
            f"({failed.stderr.strip().splitlines()[-1].strip()}); check the network and cargo's "
            "registry settings, then run this again"
        ) from None
    lock = (manifest_dir / "Cargo.lock").read_text()
    found = re.search(r'name = "curl-sys"\n.*\n.*\nchecksum = "([0-9a-f]+)"', lock)
    if not found or found[1] != release.sha256:
        raise Failure(
            f"curl-sys {release.crate} is not the crate that was expected: sha256 "
            f"{found[1] if found else 'unknown'}, not {release.sha256}; "
            f"see {manifest_dir}/Cargo.lock"
        )
    for package in json.loads(listing)["packages"]:
        if package["name"] == "curl-sys":
            return pathlib.Path(package["manifest_path"]).parent
    raise Failure(f"cargo did not list curl-sys; see {manifest}")


@contextlib.contextmanager
def _lock(home):
    try:
        home.mkdir(parents=True, exist_ok=True)
        file = open(home / "lock", "w")
    except OSError as error:
        raise Failure(
            f"cannot write to {home} ({error.strerror}); set LARDER_CACHE to a directory you own"
        ) from None
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _logged(command, log, note=lambda _: None):
    """Runs the command with its output in `log`; ninja's [done/all] goes to `note` as it comes."""
    try:
        with open(log, "w", errors="replace") as sink, subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as running:
            for line in running.stdout:
                sink.write(line)
                if count := re.match(r"\[(\d+/\d+)\]", line):
                    note(count[1])
    except FileNotFoundError:
        raise Failure(f"{command[0]} is missing; run 'scripts/setup demo'") from None
    if running.returncode != 0:
        text = log.read_text(errors="replace")
        kept = cache_dir() / "curl" / log.name  # the build folder is emptied by the next try
        kept.write_text(text)
        raise Failure(f"{command[0]} failed ({_reason(text)}); its output is in {kept}")


def _reason(text):
    """The line of a compiler's output that says most: the first error, else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        if "error: " in line:
            return line
    return lines[-1] if lines else "no output"


def _compiler():
    return _output([os.environ.get("CC", "cc"), "--version"]).partition("\n")[0]


_MISSING = {
    name: f"{name} is missing or broken; install Rust from https://rustup.rs"
    for name in ("cargo", "rustc")
}


def _output(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        instead = f"{command[0]} is missing or broken; run 'scripts/setup demo'"
        raise Failure(_MISSING.get(command[0], instead)) from None

"""Where one peer is built: its folder, its log, its compilers, and its sources.

Sources come from package registries through their own clients, so that a mirror configured for these
is used: crates through cargo, whose lock file pins each archive's checksum; packages of Debian through
apt, with a list of its own that leaves the system's alone, each checked against the checksum pinned here.
"""

import concurrent.futures
import functools
import hashlib
import json
import os
import shlex
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
MANIFEST = os.path.join(HERE, "Cargo.toml")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
CLANGXX = "clang++-19"
COMMAND_SECONDS = 1800


class Failure(Exception):
    """An error in one line, and the output of the command that failed."""

    def __init__(self, reason, said=""):
        super().__init__(reason)
        self.said = said


class Gone(Failure):
    """The archive does not have this version (any more), or is out of reach."""


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@functools.cache
def compiler_versions():
    """Which compilers build the peers; part of each peer's key."""
    return "; ".join(output([*shlex.split(compiler), "--version"]).splitlines()[0]
                     for compiler in (cc(), cxx(), CLANGXX))


def cc():
    return os.environ.get("CC") or "gcc"


def cxx():
    return os.environ.get("CXX") or "g++"


def output(command):
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, check=True, timeout=60).stdout
    except FileNotFoundError as error:
        raise Failure(f"{command[0]} is missing: run 'scripts/setup build bench'") from error
    except (subprocess.SubprocessError, OSError) as error:
        raise Failure(f"{shlex.join(command)}: {getattr(error, 'stderr', None) or error}".strip()) from error


class Workshop:
    """One peer's build. Used by one thread, except `compile`, which has threads of its own."""

    def __init__(self, folder, log_path, jobs):
        self.folder = folder
        self.log_path = log_path
        self.jobs = jobs
        with open(log_path, "w", encoding="utf-8"):
            pass

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def run(self, command, folder=None):
        """Runs a command; its output goes into the log when it has ended."""
        try:
            done = subprocess.run(command, cwd=folder or self.folder, stdin=subprocess.DEVNULL, check=False,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                  timeout=COMMAND_SECONDS)
        except FileNotFoundError as error:
            raise Failure(f"{command[0]} is missing: run 'scripts/setup build bench'") from error
        except subprocess.TimeoutExpired as error:
            raise Failure(f"{command[0]} has not ended after {COMMAND_SECONDS} s", error.output) from error
        # One write, so that the lines of parallel compilers do not mix.
        with open(self.log_path, "a", encoding="utf-8") as log:
            log.write(f"$ {shlex.join(command)}\n{done.stdout}")
        if done.returncode != 0:
            raise Failure(f"{os.path.basename(command[0])} exits with {done.returncode}", done.stdout)

    def compile(self, sources, flags, link_flags, library, cxx_command=None):
        """Compiles sources in parallel, C and assembler by their names and else C++, and links a shared library."""
        cxx_command = cxx_command or cxx()

        def object_of(numbered):
            number, source = numbered
            compiler = cc() if source.endswith((".c", ".S")) else cxx_command
            result = self.path(f"{number}-{os.path.basename(source)}.o")
            self.run([*shlex.split(compiler), *flags(source), "-c", source, "-o", result])
            return result
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            futures = [pool.submit(object_of, numbered) for numbered in enumerate(sources)]
            try:
                objects = [future.result() for future in futures]
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        linker = cxx_command if any(source.endswith(".cc") for source in sources) else cc()
        self.run([*shlex.split(linker), "-shared", *objects, *link_flags, "-o", self.path(library)])
        return self.path(library)

    def crate(self, name):
        """The folder of a crate's sources: read only."""
        target = ["--filter-platform", "x86_64-unknown-linux-gnu"]
        self.run(["cargo", "fetch", "--locked", "--target", target[1], "--manifest-path", MANIFEST])
        metadata = json.loads(output(["cargo", "metadata", "--locked", "--offline", "--format-version", "1", *target,
                                      "--manifest-path", MANIFEST]))
        for package in metadata["packages"]:
            if package["name"] == name:
                return os.path.dirname(package["manifest_path"])
        raise Failure(f"{MANIFEST} does not name {name}")

    def debian_package(self, suite, package, version, checksum):
        """The folder of an unpacked binary package of another suite of Debian than the system's."""
        options = self.apt_options(suite)
        downloads = self.path("downloads")
        os.makedirs(downloads)
        try:
            self.run(["apt-get", *options, "update"])
            self.run(["apt-get", *options, "download", f"{package}={version}"], folder=downloads)
        except Failure as error:
            raise Gone(f"apt cannot fetch {package} {version} of Debian {suite}") from error
        archive, = (os.path.join(downloads, name) for name in os.listdir(downloads))
        if sha256(archive) != checksum:
            raise Failure(f"{os.path.basename(archive)} has not the pinned checksum {checksum}")
        self.run(["dpkg-deb", "--extract", archive, self.path(package)])
        return self.path(package)

    def apt_options(self, suite):
        """Options for lists and a cache of apt's own, with one suite of the configured mirror."""
        mirrors = [line.split("|")[1] for line in output(
            ["apt-get", "indextargets", "--format", "$(ORIGIN)/$(LABEL)|$(REPO_URI)", "Created-By: Packages"]
        ).splitlines() if line.startswith("Debian/Debian|")]
        if not mirrors or not os.path.exists(KEYRING):
            raise Gone(f"apt has no mirror of Debian, or {KEYRING} is missing")
        for folder in ("lists/partial", "cache/archives/partial"):
            os.makedirs(self.path("apt", folder))
        sources = self.path("apt", "sources.list")
        with open(sources, "w", encoding="utf-8") as file:
            file.write(f"deb [arch=amd64 signed-by={KEYRING}] {mirrors[0]} {suite} main\n")
        settings = {
            "Dir::Etc::SourceList": sources, "Dir::Etc::SourceParts": "-", "Dir::Etc::PreferencesParts": "-",
            "Dir::State::Lists": self.path("apt", "lists"), "Dir::Cache": self.path("apt", "cache"),
            "APT::Sandbox::User": "", "Acquire::Languages": "none", "APT::Update::Error-Mode": "any",
            "Acquire::Retries": "3",
        }
        return [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]

"""The programs that demo/cure cures: how each is built, what it is given to do, and what its patch cures.

A program is built before and after its patch from the same sources, in the same way. `run` does the
same work with either, under a command that records it, or none.
"""

import dataclasses
import filecmp
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import threading
import time

import curl_source
import debian_source
from curl_source import REPOSITORY, Failure
from file_server import FileServer

PATCHES = REPOSITORY / "docs" / "cures"
KIT = REPOSITORY / "include"
HANG_SECONDS = 300
FLAGS = f"-g -O2 -w -I{KIT}"


@dataclasses.dataclass(frozen=True)
class Finding:
    """One that the patch cures: where `larder advise` must show it. Its saving counts as `measure`."""

    measure: str  # allocations, system calls, copies and formats, copied bytes
    pattern: str
    function: str


class Program:
    name = ""
    findings = ()

    def unpack(self, folder, steps):
        """The sources before the patch, in a new folder."""
        raise NotImplementedError

    def build(self, side, folder, steps):
        """The executable, in a new folder; `side` is before or after."""
        raise NotImplementedError

    def run(self, executable, folder, record=()):
        """Does the work; returns the seconds of processor time that the program took, user and system."""
        raise NotImplementedError


class DebianProgram(Program):
    """One that is built from its authors' archive in Debian."""

    version = sha256 = ""
    executable = ""

    def unpack(self, folder, steps):
        debian_source.unpack(debian_source.archive(self.name, self.version, self.sha256, steps), folder)

    def build(self, side, folder, steps):
        self.unpack(folder, steps)
        with steps.step(f"Building {self.name}, {side}"):
            if side == "after":
                command(["patch", "-p1", "-s", "-i", str(PATCHES / f"{self.name}.patch")], folder)
            self._make(folder)
        return folder / self.executable

    def _make(self, folder):
        raise NotImplementedError


class Tree(DebianProgram):
    """tree lists /usr/share with owners, modes, sizes and times, and must print the same."""

    name = "tree"
    version, sha256 = "2.1.0", "0160c535bff2b0dc6a830b9944e981e3427380f63e748da96ced7071faebabf6"
    executable = "tree"
    findings = (
        Finding("allocations", "stack", "printit"),
        Finding("allocations", "embed", "getinfo"),
        Finding("copies and formats", "one-conversion", "printit"),
    )

    def _make(self, folder):
        command(["make", f"CFLAGS={FLAGS} -DLINUX -D_LARGEFILE64_SOURCE -D_FILE_OFFSET_BITS=64"], folder)

    def run(self, executable, folder, record=()):
        printed = folder / f"{executable.parent.name}.out"
        with open(printed, "wb") as output:
            seconds = Child([*record, str(executable), "-D", "-p", "-s", "-u", "-g", "/usr/share"], output).wait()
        other = folder / ("before.out" if executable.parent.name == "after" else "after.out")
        if other.exists() and not filecmp.cmp(printed, other, shallow=False):
            raise Failure(f"{printed} and {other} differ: the cure changes what tree prints, or /usr/share changed")
        return seconds


class Tinyproxy(DebianProgram):
    """tinyproxy passes on a page of 20 kB again and again, a connection for each request."""

    name = "tinyproxy"
    version, sha256 = "1.11.1", "d66388448215d0aeb90d0afdd58ed00386fb81abc23ebac9d80e194fceb40f7c"
    executable = "src/tinyproxy"
    findings = (
        Finding("allocations", "stack", "readline"),
        Finding("allocations", "reuse", "readline"),
        Finding("allocations", "reuse", "write_message"),
        Finding("allocations", "stack", "read_buffer"),
        Finding("allocations", "embed", "makenewline"),
        Finding("allocations", "reserve", "get_all_headers"),
        Finding("system calls", "small-writes", "safe_write"),
        Finding("copied bytes", "read-then-copied", "read_buffer"),
        Finding("copied bytes", "read-then-copied", "readline"),
    )
    REQUESTS = 1000
    PAGE_BYTES = 20_000

    def _make(self, folder):
        command(["./configure"], folder)
        command(["make", "-C", "src", f"CFLAGS={FLAGS} -std=gnu11 -DNDEBUG"], folder)

    def run(self, executable, folder, record=()):
        page = folder / "page"
        page.write_bytes(b"x" * self.PAGE_BYTES)
        settings, pid_file = folder / "tinyproxy.conf", folder / "tinyproxy.pid"
        pid_file.unlink(missing_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        settings.write_text(f'Port {port}\nListen 127.0.0.1\nTimeout 60\nMaxClients 100\nLogLevel Error\n'
                            f'LogFile "{folder}/tinyproxy.log"\nPidFile "{pid_file}"\n')
        with FileServer({"page": page}) as server:
            child = Child([*record, str(executable), "-d", "-c", str(settings)])
            try:
                self._wait_for(child, port)
                for _ in range(self.REQUESTS):
                    self._get(port, server.url("page"))
            finally:
                if not child.ended():
                    pid = pid_file.read_text().strip() if pid_file.exists() else ""
                    os.kill(int(pid or child.pid), signal.SIGTERM)
                seconds = child.wait()
        return seconds

    @staticmethod
    def _wait_for(child, port):
        while True:
            if child.ended():
                child.wait()
                raise Failure("tinyproxy ended before it listened")
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return
            except ConnectionRefusedError:
                time.sleep(0.02)

    def _get(self, port, url):
        request = (f"GET {url} HTTP/1.1\r\nHost: {url.split('/')[2]}\r\nUser-Agent: demo\r\nAccept: */*\r\n"
                   "Accept-Language: en\r\nCookie: visit=1\r\nConnection: close\r\n\r\n")
        with socket.create_connection(("127.0.0.1", port), timeout=HANG_SECONDS) as connection:
            connection.sendall(request.encode())
            answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        head, _, body = answer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.") or b" 200 " not in head.splitlines()[0] or body != b"x" * self.PAGE_BYTES:
            raise Failure(f"tinyproxy's answer is wrong: {head[:200]!r}, {len(body)} bytes")


class Curl(Program):
    """libcurl 7.51 fetches 512 MiB and a small page at once (demo/transfer.c)."""

    name = "curl"
    version = "7.51.0"
    findings = (Finding("allocations", "stack", "curl_multi_wait"),)
    LARGE_MIB = 512

    def unpack(self, folder, steps):
        shutil.copytree(curl_source.find_source(self.version, steps), folder)

    def build(self, side, folder, steps):
        folder.mkdir()
        patch = PATCHES / "curl.patch" if side == "after" else None
        return curl_source.link_transfer(self.version, folder / "transfer", steps, patch)

    def run(self, executable, folder, record=()):
        served = {name: folder / name for name in ("small", "large")}
        served["small"].write_bytes(b"x" * 100_000)
        with open(served["large"], "wb") as file:
            file.truncate(self.LARGE_MIB << 20)
        with FileServer(served) as server:
            return Child([*record, str(executable), *map(server.url, served)]).wait()


PROGRAMS = {program.name: program for program in (Tinyproxy, Tree, Curl)}


class Child:
    """A process, of which the processor time is known once it has ended."""

    def __init__(self, words, output=subprocess.DEVNULL):
        self.words = words
        self._process = subprocess.Popen(words, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=output,
                                         stderr=subprocess.PIPE, env=os.environ | {"LC_ALL": "C.UTF-8"})
        self.pid = self._process.pid
        self._said = []
        self._reader = threading.Thread(target=lambda: self._said.append(self._process.stderr.read()), daemon=True)
        self._reader.start()
        self._result = None
        self._alarm = threading.Timer(HANG_SECONDS, self._process.kill)
        self._alarm.daemon = True
        self._alarm.start()

    def ended(self):
        self._reap(os.WNOHANG)
        return self._result is not None

    def wait(self):
        """The seconds of processor time."""
        self._reap(0)
        self._reader.join()
        code, usage = self._result
        if code != 0:
            said = " / ".join(b"".join(self._said).decode(errors="replace").splitlines()[-3:]) or "no message"
            raise Failure(f"{shlex.join(self.words)} ended with {code}: {said}")
        return usage.ru_utime + usage.ru_stime

    def _reap(self, options):
        if self._result is None:
            pid, status, usage = os.wait4(self.pid, options)
            if pid != 0:
                self._alarm.cancel()
                self._process.returncode = os.waitstatus_to_exitcode(status)
                self._result = self._process.returncode, usage


def command(words, folder):
    try:
        done = subprocess.run(words, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", timeout=HANG_SECONDS)
    except FileNotFoundError:
        raise Failure(f"{words[0]} is missing; run 'scripts/setup demo'") from None
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() + done.stderr.splitlines() if line.strip()]
        wrong = [line for line in lines if re.search(r"error|FAILED", line)] or lines or ["no message"]
        raise Failure(f"{shlex.join(words)} failed in {folder}: {wrong[0].strip()}")


def fresh(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return pathlib.Path(folder)

"""Runs a command in a session of its own, and ends all its processes.

Owns every process of the sessions it started and none else. Safe to use from several threads.
Invariant: when run() returns, no process of the command's session is left; the same holds of all
sessions when the program is stopped by SIGINT or SIGTERM after end_with_sessions().
"""

import os
import signal
import subprocess
import tempfile

EXCERPT_BYTES = 2000
# The time limit of all tests in Python, far above what they take on a busy machine.
HANG_S = 900

active = set()

# Variables of the caller that would change how programs allocate or load.
FORBIDDEN = ("LD_", "LARDER_", "MALLOC_", "GLIBC_")


class Result:
    """The shell's exit code (128 + signal), or None with `why` set if it was stopped."""

    def __init__(self, code, stdout, stderr, why=None):
        self.code, self.stdout, self.stderr, self.why = code, stdout, stderr, why

    def ending(self):
        return self.why or f"exit code {self.code}"


def clean_environment(extra=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith(FORBIDDEN)}
    env.update(extra or {})
    return env


def members(session):
    """Pids of the session's processes: test drivers give their children groups of their own."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="ascii", errors="replace") as file:
                if int(file.read().rpartition(")")[2].split()[3]) == session:
                    found.append(int(entry))
        except (OSError, IndexError):
            pass  # The process has ended meanwhile.
    return found


def works_below(folder):
    """Pids of the processes whose working folder is there: some servers leave their session."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.readlink(f"/proc/{entry}/cwd").startswith(folder):
                found.append(int(entry))
        except OSError:
            pass
    return found


def kill(session, folder=None):
    for _ in range(100):
        pids = members(session) + (works_below(folder) if folder else [])
        pids = [pid for pid in pids if not is_zombie(pid)]
        if not pids:
            return
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def end_with_sessions():
    """From now on a signal that ends this program also ends the processes that it has started."""
    def end(number, _frame):
        for session, folder in list(active):
            kill(session, folder)
        os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)


def is_zombie(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return True


def excerpt(text):
    """The beginning and the end, because a failing test can print a gigabyte."""
    if len(text) <= 2 * EXCERPT_BYTES:
        return text.decode(errors="replace")
    return (text[:EXCERPT_BYTES] + b"\n[...]\n" + text[-EXCERPT_BYTES:]).decode(errors="replace")


def bounded(file, limit):
    file.seek(0)
    return file.read(limit)


def run(command, env, cwd, folder=None, max_output=1 << 20):
    """Standard input is empty; output goes through files, so that a remaining process does not block it.

    When the command has a folder to itself, processes that work there are its own as well.
    """
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=stdout,
                                   stderr=stderr, start_new_session=True)
        why = None
        active.add((process.pid, folder))
        try:
            process.wait(timeout=HANG_S)
        except subprocess.TimeoutExpired:
            why = f"still running after {HANG_S} s"
        finally:
            kill(process.pid, folder)
            process.wait()
            active.discard((process.pid, folder))
        code = process.returncode
        return Result(None if why else code if code >= 0 else 128 - code,
                      bounded(stdout, max_output), bounded(stderr, max_output), why)

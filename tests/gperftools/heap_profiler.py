#!/usr/bin/env python3
"""Checks HEAPPROFILE, HeapProfilerStart and the like against docs/tasks/move-from-tcmalloc.md.

Usage: heap_profiler.py PROGRAM [LIBRARY]: with the library preloaded, or linked. Exit 1 when a test fails.
"""

import os
import re
import stat
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
import run_session  # pylint: disable=wrong-import-position

PROGRAM = os.path.abspath(sys.argv[1])
LIBRARY = sys.argv[2] if len(sys.argv) > 2 else None
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print(f"FAILED heap_profiler: {what}", file=sys.stderr)


def run(argument, prefix="LARDER_", **variables):
    """The program's files, by name, and its lines on stderr."""
    with tempfile.TemporaryDirectory() as folder:
        env = {k: v for k, v in os.environ.items() if "HEAP" not in k and not k.startswith("LARDER_")}
        env["LARDER_PROFILE_BYTES"] = "10000"  # every block
        if LIBRARY:
            env["LD_PRELOAD"] = LIBRARY
        env.update({prefix + name: value.replace("FOLDER", folder) for name, value in variables.items()})
        done = subprocess.run([PROGRAM, argument.replace("FOLDER", folder)], env=env, cwd=folder, capture_output=True,
                              text=True, errors="replace", timeout=run_session.HANG_S, check=False)
        check(done.returncode == 0, f"{argument} {variables}: exit {done.returncode}: {done.stderr}")
        files = {}
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            check(stat.S_IMODE(os.stat(path).st_mode) == 0o600, f"{name} is the user's alone")
            with open(path, encoding="ascii") as file:
                files[name] = file.read()
            check(files[name].startswith("heap profile: ") and "\nMAPPED_LIBRARIES:\n" in files[name], f"{name}: form")
        # gperftools' own library reports what it does with a signal.
        lines = done.stderr.replace(folder, "FOLDER").splitlines()
        return files, [line for line in lines if line.startswith("larder: ")]


def allocated(profile):
    return int(re.match(r"heap profile: \d+: \d+ \[\d+: (\d+)\]", profile)[1])


def test_calls():
    files, lines = run("FOLDER/called", prefix="")
    check(list(files) == ["called.0001.heap"], f"by calls: {list(files)}")
    check(lines == ["larder: Dumping heap profile to FOLDER/called.0001.heap (by hand)"], f"by calls: {lines}")
    # 40 MB: all except a few samples are certain.
    check(abs(allocated(files["called.0001.heap"]) - 40e6) < 2e6, "by calls: what was allocated")


def test_variables():
    for prefix in ("", "LARDER_"):
        files, lines = run("", prefix, HEAPPROFILE="FOLDER/p")
        check(list(files) == ["p.0001.heap"] and "(Exiting, 0 MB in use)" in lines[0], f"{prefix}HEAPPROFILE: {lines}")
        files, lines = run("signal", prefix, HEAPPROFILE="FOLDER/p", HEAPPROFILESIGNAL="12")
        check(len(files) == 2 and lines[0].endswith("(signal)"), f"{prefix}HEAPPROFILESIGNAL: {lines}")
        files, lines = run("signal", prefix, HEAPPROFILE="FOLDER/p", HEAP_PROFILE_ALLOCATION_INTERVAL="9000000",
                           HEAPPROFILESIGNAL="12")
        check(len(files) == 6 and sum("allocated cumulatively" in line for line in lines) == 4, f"allocation: {lines}")
        files, lines = run("", prefix, HEAPPROFILE="FOLDER/p", HEAP_PROFILE_DEALLOCATION_INTERVAL="19000000")
        check(sum("MB freed cumulatively" in line for line in lines) == 2, f"deallocation: {lines}")
        files, lines = run("", prefix, HEAPPROFILE="FOLDER/p", HEAP_PROFILE_INUSE_INTERVAL="9000000")
        check(sum(bool(re.search(r"\(\d+ MB currently in use\)", line)) for line in lines) == 4, f"in use: {lines}")


def test_what_is_refused():
    _, lines = run("", HEAPPROFILE="FOLDER/p", HEAP_PROFILE_TIME_INTERVAL="soon", HEAP_PROFILE_ONLY_MMAP="1",
                   HEAP_PROFILE_INUSE_INTERVAL="99999999999999999999", HEAPPROFILESIGNAL="9")
    for part in ("TIME_INTERVAL=soon is not a number", "ONLY_MMAP is not taken", "INUSE_INTERVAL=9999999",
                 "signal 9 cannot be taken", "Exiting"):
        check(sum(part in line for line in lines) == 1, f"{part}: {lines}")


def test_children_have_names_of_their_own():
    files, lines = run("fork", HEAPPROFILE="FOLDER/p")
    check(len(files) == 2 and len(lines) == 2, f"fork: {lines}")
    check(re.fullmatch(r"p\.0001\.heap p_\d+\.0001\.heap", " ".join(files)), f"fork: {list(files)}")


def test_nothing_is_replaced():
    with tempfile.TemporaryDirectory() as other:
        target = os.path.join(other, "p.0001.heap")
        os.symlink("/nowhere", target)
        _, lines = run("signal", HEAPPROFILE=os.path.join(other, "p"), HEAPPROFILESIGNAL="12")
        names = sorted(os.listdir(other))
        check(os.readlink(target) == "/nowhere" and len(names) == 3, f"what is there stays: {names}")
        check(re.fullmatch(r"p_\d+\.0002\.heap", names[2]), f"the process's id is added: {names}, {lines}")
    _, lines = run("", HEAPPROFILE="FOLDER/no/such")
    check(len(lines) == 2 and "No such file" in lines[1], f"no such folder: {lines}")


for test in [value for name, value in list(globals().items()) if name.startswith("test_")]:
    test()
sys.exit(1 if failures else 0)

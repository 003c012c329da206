#!/usr/bin/env python3
"""Checks gperftools' HeapLeakChecker and the like against docs/reference/leak-checker.md.

Usage: heap_checker.py PROGRAM [LIBRARY]: with the library preloaded, or linked. Exit 1 when a test fails.
"""

import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
import run_session  # pylint: disable=wrong-import-position

PROGRAM = os.path.abspath(sys.argv[1])
LIBRARY = sys.argv[2] if len(sys.argv) > 2 else None
failures = []


def run(case, mode, code, *said):
    """Its stderr, after checks of its exit code and its output."""
    env = {k: v for k, v in os.environ.items() if "HEAP" not in k and not k.startswith("LARDER_")}
    if LIBRARY:
        env["LD_PRELOAD"] = LIBRARY
    if mode:
        env["HEAPCHECK"] = mode
    done = subprocess.run([PROGRAM, case], env=env, capture_output=True, text=True, errors="replace", timeout=run_session.HANG_S,
                          check=False)
    good = done.returncode == code and "FAILED" not in done.stderr
    good = good and all(text in done.stderr for text in said) and "Perftools" not in done.stderr
    if not good:
        failures.append(case)
        print(f"FAILED {case} with HEAPCHECK={mode}: exit {done.returncode}, not {code}, or not {said}:\n"
              f"{done.stderr}", file=sys.stderr)
    return done.stderr


def main():
    reported = run("off", None, 0)
    if reported:
        failures.append("off")
        print(f"FAILED off: {reported}", file=sys.stderr)
    run("cancels", "normal", 0, "Leak check part detected leaks of 5242980 bytes in 2 objects",
        "Leak check _main_ detected leaks", "No leaks found for check \"later\"")
    reported = run("calls", "normal", 1, "Exiting with error code")
    if reported.count("Leak check _main_ detected leaks") != 2:
        failures.append("calls")
        print(f"FAILED calls: not by the call, and at the end\n{reported}", file=sys.stderr)
    run("leaks", "normal", 1, "Leak check _main_ detected leaks of 192 bytes in 2 objects")
    run("cleans", "normal", 0, "No leaks found for check \"_main_\"")
    run("leaks", "local", 0)
    run("never_asked", "local", -6, "HeapLeakChecker")
    run("asked_too_early", "local", -6, "BytesLeaked before NoLeaks")
    run("not_ignored", "local", -6, "UnIgnoreObject")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Checks HEAPCHECK's reports of planted leaks, and of objects that are none: sums, stacks, exit code.

Usage: check.py LIBLARDER_SO PLANTED [CASE]...; a static program needs no library. Exit 1 when anything differs.
"""

import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
import run_session  # pylint: disable=wrong-import-position

# case: bytes and objects that leak; of these, those that are reachable from other leaks
LOST = {
    "direct": (100, 1),
    "zero_bytes": (0, 1),
    "chain": (144, 3, 96, 2),
    "ring": (144, 3, 96, 2),
    "ring_and_head": (144, 3, 96, 2),
    "self": (48, 1),
    "behind": (64, 1),
    "exclusive_or": (64, 1),
    "run": (100 << 10, 1),
    "mapping": (5 << 20, 1),
    "aligned": (640 + 5000 + 70000, 3),
    "cpp": (7 + 32 + 1001 + 24, 4, 1001, 1),
    "grown": (50, 1),
    "cleared": (33, 1),
    "stale": (33, 1),
    "ended_thread": (3 * (123 + 321 + (5 << 20)), 9),
    "prints_without_newline": (100, 1),
    "waits_for_input": (100, 1),
    "fails_itself": (100, 1),
    "lsan_disabled": (43, 1),
    "lsan_ends_leaking": (46, 1),
    "early": (61 + 63, 2),
    "early_exits": (61 + 62 + 63, 3),
    "many_sites": (3 * (100 + 33 + (100 << 10)), 12),
}
EXPECTED = LOST | dict.fromkeys("""interior mapping_inside kept kept_in_mapping kept_in_constant_data threads_hold suspended_coroutine forked
exits_within lsan_ignored lsan_ends freed_in_handler sanitary""".split(), (0, 0))
wrong = []


def expect(good, what):
    if not good:
        wrong.append(what)


class Run:
    """One run of the program: its exit code, output, and leak reports."""

    def __init__(self, library, program, case, mode="normal", **variables):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("HEAP", "LARDER_"))}
        environment.update(LD_PRELOAD=library, HEAPCHECK=mode, **variables)
        done = subprocess.run([program, case], env=environment, capture_output=True, text=True, timeout=run_session.HANG_S, check=False)
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        self.what = f"{case} with HEAPCHECK={mode} {variables}"
        total = re.search(r"^Leak check _main_ detected leaks of (\d+) bytes in (\d+) objects$", self.err, re.M)
        self.total = tuple(map(int, total.groups())) if total else (0, 0)
        indirect = re.search(r"^Of these, (\d+) bytes in (\d+) objects are lost with", self.err, re.M)
        self.indirect = tuple(map(int, indirect.groups())) if indirect else (0, 0)
        self.sites = [(int(a), int(b)) for a, b in
                      re.findall(r"^Leak of (\d+) bytes in (\d+) objects allocated from:$", self.err, re.M)]
        self.none = "No leaks found for check \"_main_\"" in self.err

    def expect(self, good, what):
        expect(good, f"{self.what}: {what}\n{self.out}{self.err}")


def check_planted(library, program, case):
    run = Run(library, program, case)
    size, objects, indirect_size, indirect = (*EXPECTED[case], 0, 0)[:4]
    run.expect(run.total == (size, objects), f"{run.total} leaked, not {(size, objects)}")
    run.expect(run.indirect == (indirect_size, indirect), f"{run.indirect} indirectly")
    run.expect(run.code == (1 if objects else 0), f"exit code {run.code}")
    run.expect(run.none == (objects == 0), "it does not say so")
    run.expect(run.sites == sorted(run.sites, reverse=True, key=lambda s: s[0]), f"{run.sites} are not in order")
    run.expect(sum(s[0] for s in run.sites) == size and sum(s[1] for s in run.sites) == objects, f"sites {run.sites}")


def check_details(library, program):
    run = Run(library, program, "direct")
    stack = run.err[run.err.index("allocated from:"):].splitlines()[1:]
    run.expect(re.match(r"\t@ [0-9a-f]+ .*lose", stack[0]), f"innermost {stack[0]}")
    run.expect(re.match(r"\t@ [0-9a-f]+ .*direct", stack[1]), f"then {stack[1]}")
    run.expect(any(re.match(r"\t@ [0-9a-f]+ main$", frame) for frame in stack), "no main")
    for case in ("prints_without_newline", "waits_for_input"):
        run = Run(library, program, case)
        run.expect(run.out == "not lost", "what it printed is lost")
    run = Run(library, program, "forked")
    run.expect(run.out == "child 7\n" and run.err.count("No leaks") == 1, "the child reports, too")
    run = Run(library, program, "sanitary", LARDER_PROFILE_BYTES="1")
    run.expect(run.none and run.code == 0, "what was sampled before the checker was on is lost")
    run = Run(library, program, "many_sites")
    run.expect(run.sites == [(3 * (100 << 10), 3), (300, 3), (99, 3), (0, 3)], f"{run.sites}")
    run.expect("The 4 largest leaks:" in run.err, "their number")


def check_modes(library, program):
    for mode in ("minimal", "normal", "strict", "as-is"):
        run = Run(library, program, "direct", mode)
        run.expect(run.total == (100, 1) and run.code == 1, f"{run.total}, {run.code}")
        run = Run(library, program, "kept", mode)
        run.expect(run.total == ((4, 1) if mode == "strict" else (0, 0)), f"{run.total}")
    run = Run(library, program, "kept", "draconian")
    run.expect(run.total[0] >= 144 + 55 + 24 + 16 + 12 and run.code == 1, f"{run.total}")
    run = Run(library, program, "threads_hold", "as-is", HEAP_CHECK_IGNORE_THREAD_LIVE="false")
    run.expect(any(site[0] == 201 for site in run.sites), f"{run.sites}")
    run = Run(library, program, "kept", "as-is", HEAP_CHECK_IGNORE_GLOBAL_LIVE="0")
    run.expect(any(site[0] == 48 for site in run.sites), f"{run.sites}")
    run = Run(library, program, "kept", "as-is", HEAP_CHECK_AFTER_DESTRUCTORS="1")
    run.expect(run.total == (4, 1), f"{run.total}")
    run = Run(library, program, "direct", "local")
    run.expect(run.code == 0 and "Leak" not in run.err, "checked all the same")
    for case, mode in (("early", "minimal"), ("early", "as-is"), ("early_exits", "minimal")):
        run = Run(library, program, case, mode, HEAP_CHECK_BEFORE_CONSTRUCTORS="false")
        here = 62 if case == "early_exits" else 0
        run.expect(run.total[0] == here + 63, f"{run.total} leaked with those before main")
    for bad in ("", "Normal", "yes", "normal ", "x" * 5000):
        run = Run(library, program, "direct", bad)
        reported = run.err.startswith("larder: HEAPCHECK=") and run.err.count("\n") == 1
        run.expect(run.code == 0 and (reported if bad else run.err == ""), "not reported in one line")


def check_lsan(library, program):
    run = Run(library, program, "lsan_checks")
    run.expect(run.code == 1 and run.out == "" and run.total == (44, 1), f"{run.code}, {run.total}")
    run.expect(run.err.count("detected leaks") == 2 and run.err.count("No leaks") == 1, "by calls, and at the end")
    run = Run(library, program, "lsan_ends_leaking")
    run.expect(run.out == "" and run.err.count("Leak check _main_") == 1, "not by the call")
    off = subprocess.run([program, "lsan_checks"], env={"LD_PRELOAD": library}, capture_output=True, text=True,
                         timeout=run_session.HANG_S, check=False)
    expect(off.stdout == "not found\n" and off.stderr == "" and off.returncode == 0, f"off: {off}")


def check_suppressions(library, program):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "known")

        def with_file(text, case="direct", **variables):
            with open(path, "wb") as file:
                file.write(text)
            return Run(library, program, case, **(variables or {"LARDER_LEAK_SUPPRESSIONS": path}))

        for pattern in ("lose", "::lose(unsigned long)$", "^(anonymous namespace)::d*()$", "^_ZN*directEv$",
                        "planted", "^main$", "^*main", "*", "a*e*s*e"):
            run = with_file(f"# known\n\n  leak:{pattern} \r\n".encode())
            run.expect(run.total == (0, 0) and run.code == 0 and run.none, f"{pattern} matches not")
            used = f"larder: suppressed 100 bytes in 1 objects by leak:{pattern}\n"
            run.expect(used in run.err and run.err.count("larder: ") == 1, f"{pattern} is not reported")
        for pattern in ("^lose", "lose$", "direct*lose$", "^$", "^ain$", "#lose"):
            run = with_file(f"leak:{pattern}".encode())
            run.expect(run.total == (100, 1) and "larder: " not in run.err, f"{pattern} matches")
        run = with_file(b"leak:cleared\nleak:zero_bytes", "many_sites")
        run.expect(run.total[0] == 3 * (100 + (100 << 10)) and run.err.count("larder: suppressed") == 2, f"{run.total}")
        # Objects that are reachable from a suppressed leak are suppressed with it.
        run = with_file(b"leak:make_head", "lost_parts")
        run.expect(run.total == (0, 0) and "suppressed 48 bytes in 1 objects" in run.err, f"{run.total}")
        for options in (f"suppressions={path}", f"verbosity=1:suppressions='{path}':x=\"a:b\"", f"a=b suppressions={path},"):
            run = with_file(b"leak:lose", LSAN_OPTIONS=options)
            run.expect(run.total == (0, 0), f"{options} is not taken")
        for text in (b"leak:\nleak:direct", b"lose\nleak:direct", b"race:lose\nleak:direct", b"leak:direct\n\0\xff\033"):
            run = with_file(text)
            reported = [line for line in run.err.splitlines() if ": not leak:PATTERN; 1 such lines" in line]
            run.expect(run.total == (0, 0) and len(reported) == 1, f"{text}: {reported}")
        for text in (b"leak:lose\n" * 200_000, b"leak:lose" * 200_000):
            run = with_file(text)
            run.expect(run.total == (100, 1) and "none is used" in run.err, "too much")
        run = with_file(b"leak:x\n" * 149_000 + b"leak:" + b"*a" * 2000 + b"\nleak:lose")
        run.expect(run.total == (0, 0), "many patterns")
    for bad in ("/nowhere", "/", "/" + "x" * 5000):
        run = Run(library, program, "direct", LARDER_LEAK_SUPPRESSIONS=bad)
        run.expect(run.code == 1 and run.err.count("none is used") == 1, "not reported")


def check_profile(library, program):
    with tempfile.TemporaryDirectory() as folder:
        run = Run(library, program, "many_sites", HEAP_CHECK_DUMP_DIRECTORY=folder)
        names = os.listdir(folder)
        name = re.escape(os.path.basename(program)[:15])
        run.expect(len(names) == 1 and re.fullmatch(rf"{name}\w*\.\d+\._main_-end\.heap", names[0]), f"{names}")
        with open(os.path.join(folder, names[0]), encoding="ascii") as file:
            lines = file.read().splitlines()
        size, objects = EXPECTED["many_sites"][:2]
        run.expect(lines[0] == f"heap profile: {objects}: {size} [{objects}: {size}] @ heapprofile", lines[0])
        run.expect(re.match(r"# larder 1; leaks; process \d+; reachable \d+: \d+$", lines[1]), lines[1])
        run.expect(re.match(r"3: 307200 \[3: 307200\] @( 0x[0-9a-f]+)+$", lines[2]), lines[2])
        run.expect(lines[3] == "# indirect 0: 0", lines[3])
        run.expect(lines[10:12] == ["", "MAPPED_LIBRARIES:"], f"{lines[10:12]}")
        run = Run(library, program, "sanitary", HEAP_CHECK_DUMP_DIRECTORY=folder)
        run.expect(os.listdir(folder) == names, "a profile of no leaks")
    for bad in ("/nowhere\033", "/" + "x" * 4000):
        run = Run(library, program, "direct", HEAP_CHECK_DUMP_DIRECTORY=bad)
        reported = [line for line in run.err.splitlines() if line.startswith("larder: ")]
        run.expect(run.code == 1 and len(reported) == 1 and "\033" not in run.err, f"a bad directory: {reported}")


def check_variables(library, program):
    run = Run(library, program, "many_sites", HEAP_CHECK_MAX_LEAKS="2")
    run.expect(len(run.sites) == 2 and "The 2 largest leaks:" in run.err, "not two")
    run = Run(library, program, "many_sites", HEAP_CHECK_MAX_LEAKS="0")
    run.expect(len(run.sites) == 4, "not all")
    run = Run(library, program, "direct", HEAP_CHECK_ERROR_EXIT_CODE="42")
    run.expect(run.code == 42, f"exit code {run.code}")
    run = Run(library, program, "direct", HEAP_CHECK_REPORT="false")
    run.expect(run.code == 1 and "Leak" not in run.err, "reported")
    run = Run(library, program, "direct", HEAP_CHECK_IDENTIFY_LEAKS="1")
    run.expect(re.search(r"^\t0x[0-9a-f]+: 100 bytes$", run.err, re.M), "no address")
    run = Run(library, program, "interior", HEAP_CHECK_MAX_POINTER_OFFSET="3999")
    run.expect(run.total == (5000, 1), f"{run.total}")
    run = Run(library, program, "interior", HEAP_CHECK_MAX_POINTER_OFFSET="4000")
    run.expect(run.total == (0, 0), f"{run.total}")
    run = Run(library, program, "unaligned")
    run.expect(run.total == (71, 1), f"{run.total}")
    run = Run(library, program, "unaligned", HEAP_CHECK_POINTER_SOURCE_ALIGNMENT="1")
    run.expect(run.total == (0, 0), f"{run.total}")
    run = Run(library, program, "unaligned", HEAP_CHECK_TEST_POINTER_ALIGNMENT="1")
    run.expect("Found no leaks without pointer alignment" in run.err, "not tested")
    run = Run(library, program, "direct", HEAP_CHECK_TEST_POINTER_ALIGNMENT="1")
    run.expect("Found leaks without pointer alignment as well" in run.err, "not tested")
    with tempfile.TemporaryDirectory() as folder:
        run = Run(library, program, "direct", LARDER_LEAK_REPORTS=folder)
        run.expect(run.code == 0 and run.err == "" and len(os.listdir(folder)) == 1, "not for the tool alone")
    run = Run(library, program, "sanitary", PERFTOOLS_VERBOSE="-1")
    run.expect(run.err == "" and run.code == 0, "not silent")
    run = Run(library, program, "direct", "draconian", LARDER_HEAPCHECK="local")
    run.expect(run.code == 0, "Larder's own name does not go before")
    check_profile(library, program)
    check_lsan(library, program)
    check_suppressions(library, program)
    for name in ("MAX_LEAKS", "ERROR_EXIT_CODE", "REPORT", "IDENTIFY_LEAKS", "POINTER_SOURCE_ALIGNMENT",
                 "MAX_POINTER_OFFSET", "DELAY_SECONDS", "TEST_POINTER_ALIGNMENT"):
        for bad in ("x", "-", "99999999999999999999", "1.5", "\033[31m"):
            run = Run(library, program, "direct", **{"HEAP_CHECK_" + name: bad})
            reported = [line for line in run.err.splitlines() if line.startswith("larder: HEAP_CHECK_" + name)]
            run.expect(run.code == 1 and len(reported) == 1 and "\033" not in run.err, "bad value not reported")


def main():
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    library, program = sys.argv[1:3]
    for case in EXPECTED if len(sys.argv) == 3 else sys.argv[3:]:
        check_planted(library, program, case)
    if len(sys.argv) == 3:
        check_details(library, program)
        check_modes(library, program)
        check_variables(library, program)
    for what in wrong:
        print(what)
    print(f"{len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

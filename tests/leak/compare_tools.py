#!/usr/bin/env python3
"""Checks that bench/leaks/compare.py reads the three tools' reports, which agree about planted leaks.

Usage: compare_tools.py COMPARE LIBLARDER_SO PLANTED.
"""

import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
import run_session  # pylint: disable=wrong-import-position

BIAS = 0x7F0000000000
LARDER = """heap profile: 3: 60 [3: 60] @ heapprofile
# larder 1; leaks; process 1; reachable 0: 0
2: 40 [2: 40] @ 0x7f0000001235 0x55f000000100 0x7f0000009999
# indirect 0: 0
1: 20 [1: 20] @ 0x55f000000200
# indirect 1: 20; truncated

MAPPED_LIBRARIES:
7f0000001000-7f0000002000 r-xp 00001000 fe:00 1      /nowhere/libx y.so
"""
LSAN = """
==7==ERROR: LeakSanitizer: detected memory leaks

Direct leak of 30 byte(s) in 1 object(s) allocated from:
    #0 0x7f7124011e35  (/usr/lib/liblsan.so+0x11e35)
    #1 0x5587cbff314a  (/nowhere/libx y.so+0x1234)
    #2 0x7f7123e45249  (<unknown module>)

Indirect leak of 10 byte(s) in 1 object(s) allocated from:
    #0 0x7f7124011e35  (/usr/lib/liblsan.so+0x11e35)
    #1 0x5587cbff314a  (/nowhere/libx y.so+0x1234)

SUMMARY: LeakSanitizer: 40 byte(s) leaked in 2 allocation(s).
"""
LOG = """--1-- Reading syms from /nowhere/libx y.so
--1--    svma 0x0000001000, avma 0x0004001000
--1-- Reading syms from /nowhere/libx y.so
--1--    svma 0x0000001000, avma 0x0009001000
"""
ERROR = """<error><kind>{kind}</kind><xwhat><text>{text}</text><leakedbytes>{size}</leakedbytes>
<leakedblocks>{objects}</leakedblocks></xwhat><stack>
<frame><ip>0x1</ip><obj>/x/vgpreload_memcheck-amd64-linux.so</obj></frame>
<frame><ip>{ip}</ip><obj>/nowhere/libx y.so</obj></frame><frame><ip>0x77</ip></frame></stack></error>"""


def valgrind_text():
    rows = [("Leak_DefinitelyLost", "1,044 (30 direct, 1,014 indirect) bytes in 1 blocks", 1044, 1, "0x4001234"),
            ("Leak_IndirectlyLost", "10 bytes in 1 blocks", 10, 1, "0x4001234"),
            ("Leak_StillReachable", "5 bytes in 1 blocks", 5, 1, "0x9001234"), ("UninitValue", "", 0, 0, "0x1")]
    return f"""<valgrindoutput>{"".join(ERROR.format(kind=kind, text=text, size=size, objects=objects, ip=at)
                                         for kind, text, size, objects, at in rows)}</valgrindoutput>"""


def plain(sites):
    return {stack: {kind: tuple(figures) for kind, figures in kinds.items()} for stack, kinds in sites.items()}


def check_readers(compare):
    site = (("/nowhere/libx y.so", 0x1234),)
    sites = compare.Sites()
    compare.read_larder(LARDER, sites)
    assert plain(sites) == {site: {"lost": (40, 2)}, (): {"lost": (20, 1)}}, plain(sites)
    sites = compare.Sites()
    compare.read_lsan(LSAN, sites)
    assert plain(sites) == {site: {"lost": (40, 2)}}, plain(sites)
    sites = compare.Sites()
    compare.read_valgrind(valgrind_text(), LOG, sites)
    assert plain(sites) == {site: {"lost": (40, 2), "reachable": (5, 1)}}, plain(sites)


def check_modules(compare, program):
    """An address in the file is that of its symbols, not its offset."""
    modules = compare.Modules()
    rows = [row for row in compare.segments(program) if row[1] != 0]
    assert len(rows) >= 2
    for offset, size, address in rows:
        begin, first = BIAS + (address & ~4095), offset & ~4095
        modules.add(begin, begin + (offset - first + size + 4095 & ~4095), first, program)
    modules.mapped.sort()
    for _, _, address in rows:
        assert modules.find(BIAS + address) == (os.path.realpath(program), address), hex(address)
    assert modules.find(BIAS - 1) == compare.UNKNOWN
    with tempfile.NamedTemporaryFile() as file:
        for text in (b"", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + b"\xff" * 200, b"#!/bin/sh\n" * 20):
            file.seek(0)
            file.truncate()
            file.write(text)
            file.flush()
            assert compare.segments(file.name) == [], text


def check_planted(script, library, program):
    """Bytes and objects are the planted ones, for each site."""
    for case, lost in (("direct", "100 in 1"), ("chain", "144 in 3"), ("interior", "0 in 0")):
        done = subprocess.run([sys.executable, script, "--library", library, "--verbose", "--", program, case],
                              capture_output=True, text=True, timeout=run_session.HANG_S, check=False)
        print(done.stderr, end="")
        said = re.findall(r"only (?:valgrind|LSan)", done.stdout.splitlines()[0])
        assert len(said) == 2, f"valgrind or LeakSanitizer is missing; install it by: scripts/setup test\n{done.stdout}"
        same = 0 if lost == "0 in 0" else r"[1-9]\d*"
        wanted = rf"^\| \S+ {case} \| {lost} " + rf"\| {lost} \| {same} \| 0 \| 0 \| 0 " * len(said) + r"\|$"
        assert done.returncode == 0 and re.search(wanted, done.stdout, re.M), done.stdout


def main():
    script, library, program = sys.argv[1:]
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.dirname(script))
    import compare  # pylint: disable=import-outside-toplevel
    check_readers(compare)
    check_modules(compare, program)
    check_planted(script, library, program)


if __name__ == "__main__":
    main()

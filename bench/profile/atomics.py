#!/usr/bin/env python3
"""Atomic instructions, locks and waits per million pairs of malloc and free, at full speed, up to 10,000 threads.

`larder lab counts` counts under callgrind, which has no restartable sequences, so threads beyond the bound on heaps
take locks there instead of their processor's cache. Here the allocator itself counts: it is built with an assembler
that puts a counter before each atomic instruction and at the entries of some functions. The patterns, and the run that
is subtracted, are those of `larder lab counts`.

Usage, in a tree with `make build workloads`:
  bench/profile/atomics.py [--threads 1,64,1000,10000] [--operations 1000000] [PATTERN...]
"""

import argparse
import collections
import hashlib
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = os.path.join(ROOT, "build", "atomics")
PROGRAM = os.path.join(ROOT, "out", "libexec", "larder", "bench", "bench_counts")
PATTERNS = ("pairs", "local", "remote", "larson", "births")
COLUMNS = ("atomics", "locks", "waits", "slow paths")

# The column of a counted function, by its mangled name.
ENTRIES = {
    "_ZN6larder2os4waitE": "waits",
    "_ZN6larder2os8wake_oneE": "waits",
    "_ZN6larder2os5yieldE": "waits",
    "_ZN6larder11malloc_slowE": "slow paths",
    "_ZN6larder12malloc_largeE": "slow paths",
    "_ZN6larder9free_slowE": "slow paths",
    "_ZN6larder10free_emptyE": "slow paths",
}
ATOMIC = re.compile(r"\s*(lock[\s;]|xchg[bwlq]?\s.*[(:])")
ENTRY = re.compile(rf"({'|'.join(ENTRIES)})\w*:")
# Leaves registers, flags and the red zone as they are. A function that the linker may drop takes its counters along:
# the question mark puts them into its group.
COUNTER = """\
	leaq -128(%rsp), %rsp
	pushfq
	lock incq .Llarder_count{number}(%rip)
	popfq
	leaq 128(%rsp), %rsp
.Llarder_at{number}:
	.pushsection larder_counts,"aw?",@progbits
	.balign 8
	.quad .Llarder_at{number} - .
.Llarder_count{number}: .quad 0
	.quad {is_entry}
	.popsection
"""
# Linked into the library: writes the counts at the process's end.
WRITER = """
#include <stdio.h>
#include <stdlib.h>
extern struct { long at; unsigned long count, is_entry; } begin[] __asm__("__start_larder_counts"),
    end[] __asm__("__stop_larder_counts");
extern const char base[] __asm__("__ehdr_start");
#pragma GCC visibility push(hidden)
__attribute__((destructor)) static void write_counts(void) {
  const char* path = getenv("ATOMICS_FILE");
  FILE* file = path == NULL ? NULL : fopen(path, "w");
  if (file == NULL) return;
  for (int i = 0; begin + i < end; ++i) {
    const char* at = (const char*)&begin[i] + begin[i].at;
    fprintf(file, "%#lx %lu %lu\\n", (unsigned long)(at - base), begin[i].count, begin[i].is_entry);
  }
  fclose(file);
}
"""


def assemble(arguments):
    """This script as the assembler: adds the counters, then runs the real one."""
    path = arguments[-1]
    lines = []
    for line in open(path, encoding="utf-8", errors="surrogateescape"):
        counter = COUNTER.format(number=len(lines), is_entry=int(ENTRY.match(line) is not None))
        if ENTRY.match(line):
            lines += [line, counter]
        else:
            lines += [counter, line] if ATOMIC.match(line) else [line]
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.writelines(lines)
    os.execvp("/usr/bin/as", ["as"] + arguments)


def build():
    """Returns the library that counts."""
    # A path of its own for each version of this script, so that everything is built again.
    with open(__file__, "rb") as script:
        tools = os.path.join(FOLDER, hashlib.sha256(script.read()).hexdigest()[:16])
    os.makedirs(tools, exist_ok=True)
    with open(os.path.join(tools, "as"), "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexec {sys.executable} {os.path.abspath(__file__)} --assemble "$@"\n')
    os.chmod(file.name, 0o755)
    writer = os.path.join(tools, "writer.o")
    subprocess.run(["gcc", "-x", "c", "-", "-O2", "-fPIC", "-c", "-o", writer], input=WRITER, text=True, check=True)
    built = os.path.join(FOLDER, "build")
    subprocess.run(["cmake", "-S", ROOT, "-B", built, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
                    f"-DCMAKE_CXX_FLAGS=-B{tools}",
                    "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O2 -g1",
                    f"-DCMAKE_SHARED_LINKER_FLAGS={writer}"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", built, "--quiet", "larder_shared"], check=True)
    return os.path.realpath(os.path.join(built, "liblarder.so"))


class Sites:
    """The columns that a site's count belongs to."""

    def __init__(self, library):
        self.library = library
        self.known = {}

    def learn(self, sites):
        addresses = [at for at, _ in sites if at not in self.known]
        if not addresses:
            return
        listed = subprocess.run(["addr2line", "-a", "-i", "-f", "-e", self.library], input="\n".join(addresses),
                                capture_output=True, text=True, check=True).stdout
        frames = collections.defaultdict(list)
        for line in listed.split("\n"):
            if line.startswith("0x"):
                at = hex(int(line, 16))
            elif line.startswith("_Z"):
                frames[at].append(line)
        for at, is_entry in sites:
            functions = frames[at]
            if is_entry:
                self.known[at] = [column for name, column in ENTRIES.items() if functions[-1].startswith(name)]
            else:
                is_lock = any(name == "_ZN6larder4Lock7acquireEv" for name in functions)
                self.known[at] = ["atomics", "locks"] if is_lock else ["atomics"]

    def columns(self, at):
        return self.known[at]


def run(sites, pattern, threads, operations, allocating):
    """Counts of one run by column, and the pairs that it made."""
    with tempfile.NamedTemporaryFile("r") as counts:
        words = [PROGRAM, pattern, str(threads), str(operations)] + ([] if allocating else ["none"])
        env = dict(os.environ, LD_PRELOAD=sites.library, ATOMICS_FILE=counts.name)
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=True, preexec_fn=small_stacks)
        found = [line.split() for line in counts]
    if not found:
        sys.exit(f"{PROGRAM} {pattern}: {sites.library} wrote no counts")
    sites.learn([(at, is_entry == "1") for at, _, is_entry in found])
    total = collections.Counter()
    for at, count, _ in found:
        for column in sites.columns(at):
            total[column] += int(count)
    return total, json.loads(done.stdout)["operations"]


def small_stacks():
    resource.setrlimit(resource.RLIMIT_STACK, (256 << 10, resource.getrlimit(resource.RLIMIT_STACK)[1]))


def per_million(sites, pattern, threads, operations, allocating=True):
    """Twice the pairs minus once the pairs is without start-up. The kernel decides who runs: the median of three."""
    rounds = []
    for _ in range(3):
        short, short_pairs = run(sites, pattern, threads, operations, allocating)
        long, long_pairs = run(sites, pattern, threads, 2 * operations, allocating)
        rounds.append({name: (long[name] - short[name]) / (long_pairs - short_pairs) * 1e6 for name in COLUMNS})
    return {name: statistics.median(cell[name] for cell in rounds) for name in COLUMNS}


def main():
    if sys.argv[1:2] == ["--assemble"]:
        assemble(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default="1,64,1000,10000")
    parser.add_argument("--operations", type=int, default=1_000_000, help="or 4,000 a thread, in births 400, if that is more")
    parser.add_argument("patterns", nargs="*", metavar="PATTERN", help=", ".join(PATTERNS))
    options = parser.parse_args()
    for pattern in options.patterns:
        if pattern not in PATTERNS:
            parser.error(f"{pattern}: the patterns are {', '.join(PATTERNS)}")
    try:
        threads = [int(number) for number in options.threads.split(",")]
    except ValueError:
        parser.error(f"--threads {options.threads}: numbers with commas between them")
    if not os.path.exists(PROGRAM):
        sys.exit(f"{PROGRAM} is missing: run `make build workloads` first")
    sites = Sites(build())
    print("| pattern × threads | " + " | ".join(COLUMNS) + " |")
    print("|---|" + "---:|" * len(COLUMNS))
    for pattern in options.patterns or PATTERNS:
        for number in threads:
            if pattern == "remote" and number < 2:
                continue
            # Births starts a thread each hundred.
            operations = max(options.operations, number * (400 if pattern == "births" else 4_000))
            cell = per_million(sites, pattern, number, operations)
            if pattern == "births":
                idle = per_million(sites, pattern, number, operations, allocating=False)
                cell = {name: cell[name] - idle[name] for name in COLUMNS}
            row = " | ".join(f"{max(0, round(cell[name])):,}" for name in COLUMNS)
            print(f"| {pattern} × {number:,} | {row} |", flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Instructions that the heap profile adds to the workloads of `larder bench`: exact counts, by cachegrind.

Each workload of workloads.toml that works for itself runs with LARDER_PROFILE_BYTES=0 and without: a table of both
counts and their ratio, the geometric mean, and with --functions where the difference is. Not the servers, whose work
follows the clock.

The sampler's budget is so much a millisecond, and a program under valgrind is some fifty times as slow, so its coarse
clock is slowed down, too. Threads take turns there as it happens: the last column is by how much the counts without
the profile differ among themselves.

Usage, in a tree with `make build workloads`: bench/profile/counts.py [--rounds 2] [--functions] [WORKLOAD...]
"""

import argparse
import collections
import glob
import math
import os
import subprocess
import sys
import tempfile
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "../../out")
SLOWER = 50
SERVERS = ("git", "curl", "redis", "nginx", "postgres", "rocksdb", "node")

CLOCK = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec* now) {
  static long long first;
  int result = syscall(SYS_clock_gettime, clock, now);
  if (clock != CLOCK_MONOTONIC_COARSE || result != 0) return result;
  long long at = now->tv_sec * 1000000000ll + now->tv_nsec;
  if (first == 0) first = at;
  at = first + (at - first) / SLOWER;
  now->tv_sec = at / 1000000000;
  now->tv_nsec = at % 1000000000;
  return 0;
}
"""


def command(workload, folder, scratch, scale):
    words = []
    for word in workload["command"]:
        word = word.replace("{bench}", folder).replace("{scratch}", scratch).replace("{scale}", str(scale))
        if word.startswith("{scale*"):
            word = str(max(1, round(float(word[len("{scale*"):-1]) * scale)))
        words.append(word)
    return words


def count(workload, options, clock, variables):
    """Instructions by function, of all processes."""
    with tempfile.TemporaryDirectory() as scratch:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("LARDER_", "LD_", "MALLOC_", "GLIBC_"))}
        env.update(workload.get("environment", {}), **variables, LD_PRELOAD=f"{clock}:{options.larder}",
                   TMPDIR=scratch, BENCH_SCALE=str(options.scale))
        valgrind = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--trace-children=yes", "--fair-sched=yes",
                    "--max-threads=1100", f"--cachegrind-out-file={scratch}/counts.%p"]
        done = subprocess.run(valgrind + command(workload, options.programs, scratch, options.scale), env=env,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
        files = glob.glob(f"{scratch}/counts.*")
        if done.returncode != 0 or not files:
            sys.exit(f"{workload['name']}: exit {done.returncode}: {done.stderr[-500:]}")
        functions = collections.Counter()
        for path in files:
            with open(path, encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    if line.startswith("fn="):
                        function = line[3:].strip()
                    elif line[0].isdigit():
                        functions[function] += int(line.split()[1])
        return functions


def print_difference(on, off):
    added = collections.Counter(on)
    added.subtract(off)
    for function, instructions in sorted(added.items(), key=lambda item: -abs(item[1]))[:15]:
        print(f"    {instructions:+13,}  {function[:90]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD")
    parser.add_argument("--scale", type=float, default=1.0, help="of each workload's work [%(default)s]")
    parser.add_argument("--rounds", type=int, default=2, help="of which the counts are summed [%(default)s]")
    parser.add_argument("--functions", action="store_true", help="the functions that differ most")
    parser.add_argument("--larder", default=os.path.join(OUT, "lib/liblarder.so"))
    parser.add_argument("--programs", default=os.path.join(OUT, "libexec/larder/bench"))
    options = parser.parse_args()
    options.larder, options.programs = os.path.realpath(options.larder), os.path.realpath(options.programs)
    with open(os.path.join(options.programs, "workloads.toml"), "rb") as file:
        workloads = [w for w in tomllib.load(file)["workload"] if w["name"] not in SERVERS]
    if options.workloads:
        workloads = [w for w in workloads if w["name"] in options.workloads]
    logarithms = []
    print("| workload | off, million | on, million | on / off | off, most / least |\n|---|---:|---:|---:|---:|",
          flush=True)
    with tempfile.TemporaryDirectory() as folder:
        clock = os.path.join(folder, "clock.so")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"-DSLOWER={SLOWER}", "-x", "c", "-", "-o", clock],
                       input=CLOCK, text=True, check=True)
        for workload in workloads:
            off, on, totals = collections.Counter(), collections.Counter(), []
            for _ in range(options.rounds):
                functions = count(workload, options, clock, {"LARDER_PROFILE_BYTES": "0"})
                totals.append(functions.total())
                off.update(functions)
                on.update(count(workload, options, clock, {}))
            ratio = on.total() / off.total()
            logarithms.append(math.log(ratio))
            print(f"| {workload['name']} | {off.total() / options.rounds / 1e6:,.1f} | "
                  f"{on.total() / options.rounds / 1e6:,.1f} | {ratio:.4f} | {max(totals) / min(totals):.3f} |",
                  flush=True)
            if options.functions:
                print_difference(on, off)
    if not logarithms:
        sys.exit("no such workload: larder bench --list names them")
    print(f"\nGeometric mean of {len(logarithms)}: {math.exp(sum(logarithms) / len(logarithms)):.4f}, "
          f"worst {math.exp(max(logarithms)):.4f}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The processor time that HEAPPROFILE adds: under gperftools, which counts every call, and under Larder.

A program that allocates all the time (bench/churn.py under CPython with PYTHONMALLOC=malloc, each object a block)
runs on each library with HEAPPROFILE and without, in a new order each round; Larder's samples are off without. Both
write their profiles into an empty folder. A round's difference is what it added there; shown are medians. gperftools is
Debian's libtcmalloc.so.4 (`scripts/setup test` installs it with libgoogle-perftools-dev).

Usage, in a tree with `make build`: bench/profile/heapprofile.py [--rounds 5] [-- COMMAND...]
"""

import argparse
import ctypes.util
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = {"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"}


def seconds(command, library, variables):
    """Processor time, and the number of written profiles."""
    with tempfile.TemporaryDirectory() as folder:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("LARDER_", "TCMALLOC_", "HEAP", "LD_"))}
        env.update(PYTHON, LD_PRELOAD=library, **{k: v.replace("FOLDER", folder) for k, v in variables.items()})
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
                sum(name.endswith(".heap") for name in os.listdir(folder)))


def interval(values):
    """The median's 95 % interval, by bootstrap."""
    draws = sorted(statistics.median(random.choices(values, k=len(values))) for _ in range(2000))
    return draws[50], draws[-51]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="*", metavar="COMMAND")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", default="0.3", help="of churn.py's work [%(default)s]")
    parser.add_argument("--larder", default=os.path.join(HERE, "../../out/lib/liblarder.so"))
    parser.add_argument("--gperftools", default=ctypes.util.find_library("tcmalloc"))
    options = parser.parse_args()
    if options.gperftools is None:
        sys.exit("libtcmalloc.so.4 is missing: run 'scripts/setup test', or install libgoogle-perftools4")
    command = options.command or ["/usr/bin/python3", os.path.join(HERE, "../churn.py"), options.scale]
    larder = os.path.realpath(options.larder)
    ways = {
        ("gperftools", "off"): (options.gperftools, {}),
        ("gperftools", "on"): (options.gperftools, {"HEAPPROFILE": "FOLDER/profile"}),
        ("Larder", "off"): (larder, {"LARDER_PROFILE_BYTES": "0"}),
        ("Larder", "on"): (larder, {"HEAPPROFILE": "FOLDER/profile"}),
    }
    times = {way: [] for way in ways}
    written = dict.fromkeys(ways, 0)
    for _ in range(options.rounds):
        for way in random.sample(list(ways), len(ways)):
            taken, written[way] = seconds(command, *ways[way])
            times[way].append(taken)
    print("| library | without, s | with HEAPPROFILE, s | added, s [95 %] | of the time | profiles |\n"
          "|---|---:|---:|---:|---:|---:|")
    added = {}
    for library in ("gperftools", "Larder"):
        off, on = times[library, "off"], times[library, "on"]
        if written[library, "on"] == 0:
            sys.exit(f"{library} wrote no profile")
        differences = [b - a for a, b in zip(off, on)]
        low, high = added[library] = interval(differences)
        more, without = statistics.median(differences), statistics.median(off)
        print(f"| {library} | {without:.3f} | {statistics.median(on):.3f} | {more:+.4f} [{low:+.4f} to {high:+.4f}] | "
              f"{100 * more / without:+.1f} % | {written[library, 'on']} |")
    least = added["gperftools"][0] / max(added["Larder"][1], 1e-9)
    print(f"\ngperftools' adds at least {least:,.0f} times as much: the least of its interval by the most of Larder's")


if __name__ == "__main__":
    main()

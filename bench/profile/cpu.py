#!/usr/bin/env python3
"""Compares `larder report --cpu` with `perf record` on real programs, and measures what `record --cpu` adds.

Each program runs under perf (its user-space clock event at 997 Hz) and under `larder record --cpu`, in turn. Of
the functions that perf finds to take 1 %, up to ten: the share by either, of the time that is not in the kernel or the
recorder. A function without a name is its module and first address, as Larder has it. What `--cpu` adds is measured
beside `larder record` without it: the processor time of the command, with its children.

Usage, in a tree with `make build`: bench/profile/cpu.py [--runs 20] [--larder out/bin/larder] [PROGRAM...]
Needs perf, gzip, sqlite3, python3. Exit 1 if more than one of them is not among Larder's first ones, or a share differs by
more than three points.
"""

import argparse
import bisect
import collections
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile

TOP = 10
POINTS = 3.0
LEAST = 0.01
QUERY = """create table t(a integer primary key, b text, c integer);
with recursive n(i) as (select 1 union all select i+1 from n where i<400000)
insert into t select i, 'row '||(i*7919%400000), i*31%1000 from n;
create index tb on t(b);
select count(*), sum(x.c) from t x join t y on x.b=y.b where y.c>500;
select c, count(*), group_concat(substr(b,1,3)) from (select * from t order by b limit 200000) group by c order by 2;
"""
LOOP = """def count(n):
    found = {}
    for i in range(n):
        key = str(i * 7919 % 100003)
        found[key] = found.get(key, 0) + i % 7
    return sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))[:3]
for _ in range(4):
    count(600000)
"""


def text_of(folder):
    """60 MB of this tree's sources, again and again."""
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
    names = sorted(subprocess.run(["git", "-C", root, "ls-files", "*.rs", "*.cc", "*.h"], check=True,
                                  capture_output=True, text=True).stdout.split())
    content = b"".join(open(os.path.join(root, name), "rb").read() for name in names)
    path = os.path.join(folder, "text")
    with open(path, "wb") as file:
        while file.tell() < 60_000_000:
            file.write(content)
    return path


def gzip(folder):
    return ["gzip", "-k", "-c", text_of(folder)]


def xz(folder):
    return ["xz", "-1", "-k", "-c", "--threads=1", text_of(folder)]


def sqlite3(folder):
    path = os.path.join(folder, "query.sql")
    with open(path, "w", encoding="ascii") as file:
        file.write(QUERY)
    return ["sqlite3", ":memory:", f".read {path}"]


def python3(folder):
    """With a copy of its library without debug information: perf does not show inlined functions."""
    code = "import sys, sysconfig as s; print(sys.executable, *s.get_config_vars('LIBDIR', 'INSTSONAME'))"
    found = subprocess.run(["python3", "-c", code], check=True, capture_output=True, text=True).stdout.split()
    library = os.path.join(folder, found[2])
    shutil.copy(os.path.realpath(os.path.join(found[1], found[2])), library)
    subprocess.run(["strip", "-g", library], check=True)
    os.environ["LD_LIBRARY_PATH"] = folder
    program = found[0]
    path = os.path.join(folder, "loop.py")
    with open(path, "w", encoding="ascii") as file:
        file.write(LOOP)
    return [program, path]


PROGRAMS = {"gzip": gzip, "xz": xz, "sqlite3": sqlite3, "python3": python3}


def run(command):
    """Its processor time in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def by_larder(larder, folder, command, sums):
    trace = os.path.join(folder, "trace")
    shutil.rmtree(trace, ignore_errors=True)
    run([larder, "record", "--no-larder", "--cpu", "-o", trace, "--", *command])
    text = subprocess.run([larder, "report", "--cpu", "--json", trace], check=True, capture_output=True).stdout
    for function in json.loads(text)["cpu"]["functions"]:
        loaded = os.path.basename(function["module"] or "")
        module = os.path.basename(os.path.realpath(function["module"] or ""))
        name = function["function"].replace(loaded + "+0x", module + "+0x")
        sums[module, name.replace("__memcpy_", "__memmove_")] += function["self"]["ns"]  # One address, two names.


def by_perf(folder, command, sums):
    data = os.path.join(folder, "perf.data")
    run(["perf", "record", "-q", "-F", "997", "-e", "cpu-clock:u", "-o", data, *command])
    report = subprocess.run(["perf", "report", "-i", data, "--stdio", "--sort", "dso,sym", "-n"], check=True,
                            capture_output=True, text=True).stdout
    for line in report.splitlines():
        if line.startswith("#") or "%" not in line:
            continue
        words = line.split(None, 4)
        sums[words[2], line.split("] ", 1)[1].strip()] += int(words[1])


def folded(perf, larder):
    """perf's sums, its addresses without names by Larder's functions."""
    starts = collections.defaultdict(list)
    for module, name in larder:
        if name.startswith(module + "+0x"):
            starts[module].append(int(name.rsplit("+", 1)[1], 16))
    found = collections.Counter()
    for (module, name), weight in perf.items():
        if name.startswith("0x"):
            known = sorted(starts[module])
            at = bisect.bisect(known, int(name, 16)) - 1
            name = f"{module}+{known[at]:#x}" if at >= 0 else name
        found[module, name] += weight
    return found


def compare(name, perf, larder):
    perf = folded(perf, larder)
    all_perf, all_larder = sum(perf.values()), sum(larder.values())
    print(f"\n### {name}\n\n| function | perf, % | Larder, % |\n|---|---:|---:|")
    worst, top = 0, [key for key, weight in perf.most_common(TOP) if weight >= LEAST * all_perf]
    for key in top:
        one, other = 100 * perf[key] / all_perf, 100 * larder[key] / all_larder
        worst = max(worst, abs(one - other))
        shown = key[1] if key[1].startswith(key[0]) else f"{key[1]} in {key[0]}"
        print(f"| `{shown}` | {one:.1f} | {other:.1f} |")
    same = len(set(top) & {key for key, _ in larder.most_common(len(top))})
    print(f"\n{same} of these {len(top)} are Larder's first, too; shares differ by up to {worst:.1f} points.")
    return same >= len(top) - 1 and worst <= POINTS


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--larder", default="out/bin/larder")
    parser.add_argument("programs", nargs="*", default=list(PROGRAMS))
    plan = parser.parse_args()
    passed, added = True, []
    for name in plan.programs:
        with tempfile.TemporaryDirectory() as folder:
            command = PROGRAMS[name](folder)
            perf, larder, plain, sampled = collections.Counter(), collections.Counter(), [], []
            for _ in range(plan.runs):
                by_perf(folder, command, perf)
                by_larder(plan.larder, folder, command, larder)
                for option, times in ([], plain), (["--cpu"], sampled):
                    trace = os.path.join(folder, "timed")
                    shutil.rmtree(trace, ignore_errors=True)
                    times.append(run([plan.larder, "record", "--no-larder", *option, "-o", trace, "--", *command]))
            passed &= compare(name, perf, larder)
            added.append((name, statistics.median(plain), statistics.median(sampled), min(plain), min(sampled)))
    print(f"\n### What --cpu adds\n\nProcessor time, s: median and least of {plan.runs} runs, in turn.\n\n"
          "| program | without | with | least without | least with |\n|---|---:|---:|---:|---:|")
    for name, *times in added:
        print(f"| {name} | " + " | ".join(f"{time:.2f}" for time in times) + " |")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())

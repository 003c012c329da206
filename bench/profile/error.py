#!/usr/bin/env python3
"""Checks the heap profile's intervals on real programs, recorded and sampled in the same run.

`larder record` sits on Larder, which samples meanwhile: the trace has every block, the profile its estimate, of the
same blocks. For the ten sites with the most bytes in use at the end: does the exact figure lie in the interval that
`larder profile` prints? 95 of 100 should. What was allocated has no interval; there the ratio of all runs is shown.
Exact means as the profile counts: blocks of up to 32 KiB with the size of their class, which is asked of the library.

Usage, in a tree with `make build workloads`: bench/profile/error.py [--runs 7] [PROGRAM...]
Exit 1 if so few intervals hold that it would happen once in a thousand times at 95 %.
"""

import argparse
import collections
import ctypes
import glob
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SITES = 10
SMALL_MAX = 32 * 1024
DEFAULT_MEAN = 512 * 1024
ADDRESS = re.compile(r"^[^/]*\+0x(?=[0-9a-f]+:0$)")


def cc1plus(bench, folder):
    source = os.path.join(folder, "program.cc")
    with open(source, "w", encoding="ascii") as file:
        for header in "algorithm chrono functional iostream map memory random ranges regex unordered_map".split():
            file.write(f"#include <{header}>\n")
        for i in range(3):
            file.write(f"struct T{i} {{ int key; std::string name; auto operator<=>(const T{i}&) const = default; }};\n"
                       f"std::map<std::string, T{i}> m{i}; void f{i}(std::vector<T{i}> v) {{ std::ranges::sort(v); "
                       f"for (auto& t : v) m{i}[t.name] = t; }}\n")
    subprocess.run(["g++", "-std=c++20", "-E", "-o", source + ".ii", source], check=True)
    said = subprocess.run(["g++", "-print-prog-name=cc1plus"], capture_output=True, text=True, check=True).stdout
    return [said.strip(), "-quiet", "-fpreprocessed", "-std=c++20", "-O1", source + ".ii", "-o", "/dev/null"]


PROGRAMS = {
    "cc1plus": cc1plus,
    "perl": lambda bench, folder: ["perl", f"{bench}/churn.pl", "0.3"],
    "ruby": lambda bench, folder: ["ruby", f"{bench}/churn.rb", "0.3"],
    "redis": lambda bench, folder: ["redis-server", "--port", "0", "--unixsocket", f"{folder}/socket", "--save", "",
                                    "--appendonly", "no", "--dir", folder],
}


def load_redis(folder, server):
    """Fills the server, then ends it."""
    connection = ["-s", f"{folder}/socket"]
    while subprocess.run(["redis-cli", *connection, "ping"], capture_output=True, check=False).returncode != 0:
        if server.poll() is not None:
            sys.exit("redis-server does not start")
        time.sleep(0.05)
    subprocess.run(["redis-benchmark", *connection, "-n", "50000", "-P", "16", "-r", "100000", "-d", "100", "-q", "-t",
                    "set,lpush,sadd,hset,zadd"], stdout=subprocess.DEVNULL, check=True)
    subprocess.run(["redis-cli", *connection, "shutdown", "nosave"], check=False)


class Classes:
    """The bytes with which a block counts."""

    def __init__(self, library):
        os.environ["LARDER_PROFILE_BYTES"] = "0"
        self.library = ctypes.CDLL(library)
        for function in (self.library.malloc, self.library.malloc_usable_size):
            function.restype = ctypes.c_size_t
            function.argtypes = [ctypes.c_size_t]
        self.library.free.argtypes = [ctypes.c_size_t]
        self.known = {}

    def bytes(self, size):
        if size > SMALL_MAX:
            return size
        if size not in self.known:
            # The first of a class may be larger.
            blocks = [self.library.malloc(size) for _ in range(64)]
            self.known[size] = min(map(self.library.malloc_usable_size, blocks))
            for block in blocks:
                self.library.free(block)
        return self.known[size]


LINE = re.compile(r"MEM (.*) (malloc|calloc|realloc|free|strdup|wcsdup)\((?:\(nil\)|0x([0-9a-f]+))?(?:, )?"
                  r"(\d*),?(\d*)\)(?: \((\d+)\))?(?: = 0x([0-9a-f]+))?$")


def exact(log, classes):
    """Bytes in use at the end, and allocated, by place."""
    in_use, allocated, blocks = collections.Counter(), collections.Counter(), {}
    for line in log:
        found = LINE.match(line)
        if found is None:
            sys.exit(f"not understood: {line}")
        place, call, old, first, second, length, at = found.groups()
        place = ADDRESS.sub("+0x", place)
        if call in ("strdup", "wcsdup"):
            old = None
        before = blocks.pop(old, None) if old else None
        if before:
            in_use[before[0]] -= before[1]
        if call == "free":
            continue
        size = int(length or first) * (int(second) if call == "calloc" else 1)
        size = classes.bytes(size)
        # In place it stays the same site's, like in the profile.
        if before and old == at:
            allocated[before[0]] += max(0, size - before[1])
            place = before[0]
        else:
            allocated[place] += size
        blocks[at] = place, size
        in_use[place] += size
    return in_use, allocated


def place_of(site):
    """The place in the log's form, without the module's name, which may be a link's."""
    if site["file"] is not None and site["line"] is not None:
        return f"{site['file']}:{site['line']}"
    return f"+{site['address'] or 0:#x}:0"


def run(name, options, classes):
    """One run: exact bytes in use and allocated by place, and the profile's figures for each site."""
    with tempfile.TemporaryDirectory() as folder:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("LARDER_", "LD_"))}
        env.update(LARDER_PROFILE=f"{folder}/profile.%p", PERL_HASH_SEED="0")
        if options.mean:
            env["LARDER_PROFILE_BYTES"] = str(options.mean)
        trace = f"{folder}/trace"
        command = PROGRAMS[name](options.programs, folder)
        recorded = subprocess.Popen([options.larder, "record", "-o", trace, "--", *command], env=env,
                                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if name == "redis":
            load_redis(folder, recorded)
        _, said = recorded.communicate()
        profiles = sorted(glob.glob(f"{folder}/profile.*"), key=os.path.getsize)
        images = sorted(glob.glob(f"{trace}/*.ltrace"), key=os.path.getsize)
        if recorded.returncode != 0 or not profiles or not images:
            sys.exit(f"{name}: exit {recorded.returncode}: {said[-500:]}")
        # Each side would find different wrappers in its data, so they are named.
        charging = ["--no-wrappers", "--skip", "x*alloc"]
        export = [options.larder, "export", "--format", "memdebug", *charging, images[-1]]
        with subprocess.Popen(export, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              errors="replace") as log:
            in_use, allocated = exact(log.stdout, classes)
        profile = [options.larder, "profile", profiles[-1], "--json", "--top", "0", *charging]
        text = subprocess.run(profile, capture_output=True, text=True, check=True).stdout
        if options.keep:
            shutil.copy(profiles[-1], options.keep)
        return in_use, allocated, json.loads(text)


def report(name, options, classes):
    """Prints the program's sites; returns the number of intervals, and of those that hold."""
    sites = collections.defaultdict(lambda: {"exact": [], "estimate": [], "holds": 0, "of": 0, "name": ""})
    mean = options.mean or DEFAULT_MEAN
    large = collections.Counter()
    allocated_exact = allocated_estimate = 0
    for _ in range(options.runs):
        in_use, allocated, profile = run(name, options, classes)
        estimates = collections.defaultdict(lambda: [0.0, None, None])
        for site in profile["sites"]:
            figures = site["figures"]
            estimates[place_of(site)] = figures["in_use"]["bytes"], figures["in_use_bytes_95"], site["function"]
        allocated_exact += sum(allocated.values())
        allocated_estimate += profile["total"]["allocated"]["bytes"]
        for place, bytes_exact in in_use.most_common(SITES):
            estimate, interval, function = estimates[place]
            # Without a sample in the whole run: the result of `larder profile` for unknown sites.
            low, high = interval or (0, -math.log(0.025) * mean)
            site = sites[place]
            site["exact"].append(bytes_exact)
            site["estimate"].append(estimate)
            site["name"] = site["name"] or function or ""
            site["of"] += 1
            site["holds"] += low <= bytes_exact <= high
            if bytes_exact >= mean:
                large[low <= bytes_exact <= high] += 1
            if options.verbose and not low <= bytes_exact <= high:
                print(f"    {place} {function}: {bytes_exact:,} is not in {low:,.0f} to {high:,.0f}", flush=True)
    print(f"\n### {name}, {options.runs} runs\n\n| site | exact, mean | estimate / exact | intervals that hold |\n"
          "|---|---:|---:|---:|")
    order = sorted(sites.items(), key=lambda item: -sum(item[1]["exact"]))
    for place, site in order[:SITES]:
        ratio = sum(site["estimate"]) / max(1, sum(site["exact"]))
        print(f"| {(site['name'] or place)[:60]} | {statistics.mean(site['exact']):,.0f} | {ratio:.2f} | "
              f"{site['holds']} of {site['of']} |")
    holds, of = (sum(site[key] for site in sites.values()) for key in ("holds", "of"))
    print(f"\n{holds} of {of} intervals hold; allocated in all: estimate / exact "
          f"{allocated_estimate / allocated_exact:.2f}", flush=True)
    return holds, of, large


def chance_of_so_few(holds, of):
    """Of at most so many of so many, at 95 %."""
    return sum(math.comb(of, k) * 0.95**k * 0.05**(of - k) for k in range(holds + 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="PROGRAM", help=f"of {', '.join(PROGRAMS)}; all")
    parser.add_argument("--runs", type=int, default=7, help="of each program [%(default)s]")
    parser.add_argument("--mean", type=int, help="LARDER_PROFILE_BYTES, instead of the default")
    parser.add_argument("--out", default=os.path.join(HERE, "../../out"), help="the staged tree")
    parser.add_argument("--verbose", action="store_true", help="name each interval that does not hold")
    parser.add_argument("--keep", help="a folder for the profiles")
    options = parser.parse_args()
    options.larder = os.path.realpath(os.path.join(options.out, "bin/larder"))
    options.programs = os.path.dirname(HERE)
    classes = Classes(os.path.realpath(os.path.join(options.out, "lib/liblarder.so")))
    holds = of = 0
    large = collections.Counter()
    for name in options.names or PROGRAMS:
        more_hold, more_of, more_large = report(name, options, classes)
        holds, of, large = holds + more_hold, of + more_of, large + more_large
    chance = chance_of_so_few(holds, of)
    print(f"\nIn all {holds} of {of} intervals hold: {100 * holds / of:.1f} %; of sites with the mean or more "
          f"{large[True]} of {large.total()}: {100 * large[True] / max(1, large.total()):.1f} %")
    return 1 if chance < 0.001 else 0


if __name__ == "__main__":
    sys.exit(main())

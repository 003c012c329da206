#!/usr/bin/env python3
"""What recording takes with each option, beside strace, perf and valgrind: processor time of programs that nobody wrote
for this, plain and under each tool, interleaved, medians, as a multiple of plain.

The output and the exit code of each run must be those of the plain one; of a server, every answer must be right.

Usage, in a tree with `make build`: bench/profile/options.py [--rounds N] [PROGRAM...]
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

from servers import SERVERS
from servers import run as run_server

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LARDER = os.path.join(ROOT, "out", "bin", "larder")

SQL = """create table t(a integer, b text);
with recursive c(x) as (select 1 union all select x + 1 from c where x < 100000) insert into t select x, 'text ' || x from c;
create index i on t(b);
select count(*), sum(length(b)) from t; select b from t order by b desc limit 3;
"""
PYTHON = "import json; d = [{'a': i, 'b': str(i) * 5} for i in range(50000)]; print(len(json.loads(json.dumps(d))))"
NODE = "let o = []; for (let i = 0; i < 200000; i++) o.push({a: i, b: 'x' + i}); console.log(JSON.stringify(o).length)"

PROGRAMS = {
    "git log": ["git", "-C", ROOT, "log", "--stat", "-n", "200"],
    "sqlite3": ["sqlite3", ":memory:", ".read query.sql"],
    "g++": ["g++", "-std=c++20", "-O1", "-I", ROOT, "-c", os.path.join(HERE, "..", "containers.cc"), "-o", "containers.o"],
    "python3": ["/usr/bin/python3", "-c", PYTHON],
    "node": ["node", "-e", NODE],
    "sort": ["sort", "-n", "numbers"],
}

TOOLS = {
    "plain": [],
    "record": [LARDER, "record", "--no-larder", "-o", "trace", "--"],
    "--syscalls": [LARDER, "record", "--no-larder", "--syscalls", "-o", "trace", "--"],
    "--syscalls=kernel": [LARDER, "record", "--no-larder", "--syscalls=kernel", "-o", "trace", "--"],
    "--copies": [LARDER, "record", "--no-larder", "--copies", "-o", "trace", "--"],
    "--copies=65536": [LARDER, "record", "--no-larder", "--copies=65536", "-o", "trace", "--"],
    "--cpu": [LARDER, "record", "--no-larder", "--cpu", "-o", "trace", "--"],
    "perf record": ["perf", "record", "-q", "-e", "cpu-clock", "-F", "997", "-g", "-o", "perf.data", "--"],
    "strace -c": ["strace", "-f", "-c", "-o", "calls.txt", "--"],
    "dhat copy": ["valgrind", "--tool=dhat", "--mode=copy", "--trace-children=yes", "-q",
                  "--dhat-out-file=dhat.%p", "--"],
}


def run(tool, name, folder):
    """Seconds of processor time, exit code and output."""
    shutil.rmtree(os.path.join(folder, "trace"), ignore_errors=True)
    if name in SERVERS:
        return run_server(SERVERS[name], TOOLS[tool], folder)
    command = PROGRAMS[name]
    before = os.times()
    done = subprocess.run(TOOLS[tool] + command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, done.returncode, done.stdout


def is_there(name):
    needed = SERVERS[name].needs if name in SERVERS else PROGRAMS[name][:1]
    return all(shutil.which(word) for word in needed)


def available():
    return [tool for tool, words in TOOLS.items() if not words or shutil.which(words[0])]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    arguments = parser.parse_args()
    known = [*PROGRAMS, *SERVERS]
    unknown = [name for name in arguments.programs if name not in known]
    if unknown:
        parser.error(f"no program {unknown[0]!r}: {', '.join(known)}")
    programs = [name for name in arguments.programs or known if is_there(name)]
    tools = available()
    print("| program | plain, s | " + " | ".join(tools[1:]) + " |")
    print("|---|---:|" + "---:|" * (len(tools) - 1), flush=True)
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "query.sql"), "w", encoding="ascii") as file:
            file.write(SQL)
        with open(os.path.join(folder, "numbers"), "w", encoding="ascii") as file:
            file.writelines(f"{(i * 2654435761) % 1000003}\n" for i in range(300000))
        for name in programs:
            seconds = {tool: [] for tool in tools}
            expected = run("plain", name, folder)[1:]
            for _ in range(arguments.rounds):
                for tool in tools:
                    taken, *found = run(tool, name, folder)
                    seconds[tool].append(taken)
                    if tuple(found) != tuple(expected):
                        wrong.append(f"{name} under {tool}: another output or exit code")
            plain = statistics.median(seconds["plain"])
            factors = [f"{statistics.median(seconds[tool]) / plain:.2f}" for tool in tools[1:]]
            print(f"| {name} | {plain:.2f} | " + " | ".join(factors) + " |", flush=True)
    for line in sorted(set(wrong)):
        print(line, file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

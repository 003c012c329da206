#!/usr/bin/env python3
"""What `larder record PID` costs a process: how long its one thread stands, what stays in memory, and what a pair of
malloc and free takes then, beside the same program under `larder record -- COMMAND`. Medians of interleaved rounds.

Usage, in a tree with `make build`: bench/profile/attach.py [--rounds N]
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LARDER = os.path.join(ROOT, "out", "bin", "larder")

# A million pairs under nine frames for each line of stdin; nanoseconds a pair.
PAIRS = """
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static void* volatile block;
__attribute__((noinline)) static void pair(int depth) {
  if (depth > 0) { pair(depth - 1); __asm__ volatile(""); return; }
  block = malloc(64);
  free(block);
}
int main(void) {
  puts("ready");
  fflush(stdout);
  while (getchar() != EOF) {
    struct timespec begin, end;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
    for (int i = 0; i < 1000000; ++i) pair(8);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    printf("%f\\n", ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) / 1e6);
    fflush(stdout);
  }
}
"""
PYTHON = "import decimal, json, sqlite3, ssl; print('ready', flush=True); input()"


def start(command):
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    while "eady" not in process.stdout.readline():
        assert process.poll() is None, command
    return process


def pair(process):
    process.stdin.write("\n")
    return float(process.stdout.readline())


class Recording:
    def __init__(self, process, folder):
        self.trace = os.path.join(folder, "trace")
        command = [LARDER, "record", "-o", self.trace, str(process.pid)]
        begin = time.monotonic()
        self.tool = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        line = self.tool.stderr.readline()
        self.whole = 1e3 * (time.monotonic() - begin)
        self.pause = float(re.search(r"stood for ([\d.]+) ms", line).group(1))

    def end(self):
        self.tool.terminate()
        self.tool.communicate()
        assert self.tool.returncode == 0
        shutil.rmtree(self.trace)


def memory(process):
    with open(f"/proc/{process.pid}/status", encoding="utf-8") as file:
        return int(re.search(r"RssAnon:\s*(\d+) kB", file.read()).group(1))


def pauses(name, command, rounds, folder):
    first, later, whole, grown, left = [], [], [], [], []
    for _ in range(rounds):
        process = start(command)
        before = memory(process)
        for number in range(10):
            recording = Recording(process, folder)
            (later if number else first).append(recording.pause)
            whole.append(recording.whole)
            recording.end()
            if number == 0:
                grown.append(memory(process) - before)
        left.append((memory(process) - before - grown[-1]) / 9)
        process.kill()
        process.wait()
    medians = [statistics.median(of) for of in (first, later, whole, grown, left)]
    print(f"| {name} | " + " | ".join(f"{median:,.1f}" for median in medians) + f" | {max(first + later):.1f} |")


def pair_times(program, rounds, folder):
    times = {"plain": [], "record -- COMMAND": [], "record PID": [], "after it": []}
    for _ in range(rounds):
        process = start([program])
        times["plain"].append(pair(process))
        recording = Recording(process, folder)
        pair(process)
        times["record PID"].append(pair(process))
        recording.end()
        times["after it"].append(pair(process))
        process.kill()
        process.wait()
        trace = os.path.join(folder, "command")
        process = start([LARDER, "record", "--no-larder", "-o", trace, "--", program])
        pair(process)
        times["record -- COMMAND"].append(pair(process))
        process.communicate()
        shutil.rmtree(trace)
    for name, found in times.items():
        print(f"{name}: {statistics.median(found):.1f} ns a pair")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        program, source = os.path.join(folder, "pairs"), os.path.join(folder, "pairs.c")
        with open(source, "w", encoding="utf-8") as file:
            file.write(PAIRS)
        subprocess.run(["gcc", "-g", "-O1", "-fno-builtin", "-o", program, source], check=True)
        print("| | ms, first | ms, later | ms in all | KiB, first | KiB, later | ms, longest |")
        server = ["redis-server", "--port", "0", "--save", "", "--unixsocket", os.path.join(folder, "socket")]
        for name, command in {"C program": [program], "python3": ["python3", "-c", PYTHON], "redis": server}.items():
            pauses(name, command, rounds, folder)
        pair_times(program, rounds, folder)


if __name__ == "__main__":
    main()

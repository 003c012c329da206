#!/usr/bin/env python3
"""Makes documents and a buffer, twice as many every other turn, and frees them; prints the resident MiB of each turn
when all is made and after it was freed (docs/tasks/limit-memory.md)."""

import json
import time


def resident_mib():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) // 256


def document():
    return json.loads(json.dumps({str(i): [i, "x" * (i % 900)] for i in range(500)}))


def main():
    begin, turns = time.perf_counter(), []
    for turn in range(6):
        size = 1 + turn % 2
        documents = [document() for _ in range(250 * size)]
        buffer = bytearray((40 << 20) * size)
        buffer[::4096] = b"1" * (len(buffer) // 4096)
        made = resident_mib()
        del documents, buffer
        turns.append(f"{made} → {resident_mib()}")
    print(" | ".join(turns), f"| {time.perf_counter() - begin:.2f} s")


if __name__ == "__main__":
    main()

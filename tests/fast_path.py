#!/usr/bin/env python3
"""Disassembles the fast paths of malloc and free: no call, no frame, no additional branch.

Usage: fast_path.py LIBLARDER_SO [OTHER_SO]. Exit 1 when a path has grown, or when the other library has another; x86-64
only.
"""

import re
import subprocess
import sys

# function: instructions up to the return, conditional jumps among them
BOUNDS = {"malloc": (18, 2), "free": (31, 5)}


def instructions(library, function):
    """The straight path: from the symbol to its first return, in order of address."""
    listing = subprocess.run(["objdump", "-d", "--no-show-raw-insn", library],
                             check=True, capture_output=True, text=True).stdout
    symbols = subprocess.run(["nm", "-D", library], check=True, capture_output=True, text=True).stdout
    address = re.search(rf"^0*([0-9a-f]+) T {function}$", symbols, re.M)
    if address is None:
        raise SystemExit(f"fast_path: {library} does not export {function}")
    lines = re.findall(r"^ +([0-9a-f]+):\t(\S+) *(.*)$", listing, re.M)
    start = next(i for i, line in enumerate(lines) if line[0] == address[1])
    path = []
    for _, mnemonic, operands in lines[start:]:
        path.append((mnemonic, operands))
        if mnemonic == "ret":
            return path
    raise SystemExit(f"fast_path: {function} does not return")


# Their tail calls go to the slow paths, the same functions at other addresses.
SAME = ("malloc", "free", "calloc", "realloc", "_Znwm", "_ZdlPv")


def whole(library, function):
    """Its instructions, without addresses of other code and of data."""
    symbols = subprocess.run(["nm", "-D", "-S", library], check=True, capture_output=True, text=True).stdout
    found = re.search(rf"^([0-9a-f]+) ([0-9a-f]+) T {function}$", symbols, re.M)
    if found is None:
        raise SystemExit(f"fast_path: {library} does not export {function}")
    start, size = (int(number, 16) for number in found.groups())
    listing = subprocess.run(["objdump", "-d", "--no-show-raw-insn", f"--start-address={start}",
                              f"--stop-address={start + size}", library],
                             check=True, capture_output=True, text=True).stdout
    lines = re.findall(r"^ +[0-9a-f]+:\t(.*)$", listing, re.M)
    return [re.sub(r"[0-9a-f]+ <[^>]*>|# .*|0x[0-9a-f]+\(%rip\)", "", line) for line in lines]


def same(library, other, function):
    code = whole(library, function)
    is_same = bool(code) and code == whole(other, function)
    print(f"{function}: {len(code)} instructions, {'the same' if is_same else 'others'} in {other}")
    return is_same


def check(library, function):
    most, most_branches = BOUNDS[function]
    path = instructions(library, function)
    wrong = []
    branches = sum(1 for mnemonic, _ in path if mnemonic.startswith("j"))
    if len(path) > most:
        wrong.append(f"{len(path)} instructions, at most {most}")
    if branches > most_branches:
        wrong.append(f"{branches} jumps, at most {most_branches}")
    for mnemonic, operands in path:
        if mnemonic.startswith(("call", "push", "lock")) or (mnemonic == "sub" and "%rsp" in operands):
            wrong.append(f"{mnemonic} {operands}")
    print(f"{function}: {len(path)} instructions, {branches} jumps" + "".join(f"; {w}" for w in wrong))
    return not wrong


def main():
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    library, *others = sys.argv[1:]
    good = [check(library, function) for function in BOUNDS]
    good += [same(library, other, function) for other in others for function in SAME]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())

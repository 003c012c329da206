"""Reads the log that a debug build of curl writes about its own memory (CURL_MEMDEBUG=FILE).

One line a call, `MEM path:line call`; other kinds of line (FD, FILE, ADDR, LIMIT, BT, SEND, RECV,
GETNAME) say nothing about memory. Nothing here holds state; a log is read once, in order.
"""

import collections
import dataclasses
import re

KINDS = ("malloc", "calloc", "realloc", "strdup", "wcsdup", "free")
TINY_BYTES = 32
OTHER_PREFIXES = ("FD", "FILE", "ADDR", "LIMIT", "BT", "SEND", "RECV", "GETNAME")

_POINTER = r"(?:0x)?[0-9a-f]+|\(nil\)"
_CALLS = re.compile(
    rf"malloc\((?P<malloc>\d+)\) = (?P<malloc_at>{_POINTER})"
    rf"|calloc\((?P<count>\d+),(?P<size>\d+)\) = (?P<calloc_at>{_POINTER})"
    rf"|realloc\((?P<old>{_POINTER}), (?P<realloc>\d+)\) = (?P<realloc_at>{_POINTER})"
    rf"|(?P<dup>strdup|wcsdup)\((?:{_POINTER})\) \((?P<dup_bytes>\d+)\) = (?P<dup_at>{_POINTER})"
    rf"|free\((?P<free>{_POINTER})\)"
)
_LINE = re.compile(r"MEM (?P<path>.*?):(?P<line>\d+) (?P<call>\w+\(.*)")


class LogError(Exception):
    """A line that no curl writes; the message has its number and text."""


@dataclasses.dataclass(frozen=True)
class Call:
    """One logged call; `at` is the new block (0: the call failed), `old` the one that it freed."""

    kind: str
    path: str
    line: int
    size: int = 0
    at: int = 0
    old: int = 0


def parse_line(text):
    """The call of one line without its newline; None for a line that is not about memory."""
    if text.partition(" ")[0] in OTHER_PREFIXES or not text:
        return None
    line = _LINE.fullmatch(text)
    call = _CALLS.fullmatch(line["call"]) if line else None
    if not call:
        raise LogError(f"not a line of a memory-debug log: {text!r}")
    where = (line["path"], int(line["line"]))
    if call["malloc"]:
        return Call("malloc", *where, int(call["malloc"]), _address(call["malloc_at"]))
    if call["size"]:
        size = int(call["count"]) * int(call["size"])
        return Call("calloc", *where, size, _address(call["calloc_at"]))
    if call["realloc"]:
        at, old = _address(call["realloc_at"]), _address(call["old"])
        return Call("realloc", *where, int(call["realloc"]), at, old)
    if call["dup"]:
        return Call(call["dup"], *where, int(call["dup_bytes"]), _address(call["dup_at"]))
    return Call("free", *where, old=_address(call["free"]))


def read(path):
    """All calls of a log in order, and whether its last line is truncated (the program died)."""
    with open(path, encoding="utf-8", errors="surrogateescape") as log:
        lines = log.read().split("\n")
    cut = lines.pop() != ""
    calls = []
    for number, text in enumerate(lines, 1):
        try:
            call = parse_line(text)
        except LogError as error:
            raise LogError(f"{path}:{number}: {error}") from None
        if call:
            calls.append(call)
    return calls, cut


@dataclasses.dataclass
class Tally:
    """Counters of a sequence of calls.

    allocations = malloc + calloc + realloc + strdup + wcsdup; total = the sum of their bytes;
    live = total - bytes freed or given up; peak = the highest that live ever was;
    allocations = sum(calls); total = sum(bytes).
    """

    counts: dict = dataclasses.field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    calls: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    bytes: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    live: int = 0
    peak: int = 0
    tiny: int = 0

    @property
    def allocations(self):
        return self.calls.total()

    @property
    def total(self):
        return self.bytes.total()


def tally(calls):
    """Counts the calls; `calls` by (path, line, kind), `bytes` by (path, line), frees by neither.

    A failed call and free(NULL) count nowhere, as in Larder. A block freed that the log has never
    seen was made before the log began; it changes no sum.
    """
    result = Tally()
    blocks = {}
    for call in calls:
        if not (call.old if call.kind == "free" else call.at):
            continue
        result.counts[call.kind] += 1
        result.live -= blocks.pop(call.old, 0)
        if call.kind == "free":
            continue
        blocks[call.at] = call.size
        result.calls[call.path, call.line, call.kind] += 1
        result.bytes[call.path, call.line] += call.size
        result.tiny += call.size < TINY_BYTES
        result.live += call.size
        result.peak = max(result.peak, result.live)
    return result


def _address(text):
    return 0 if text == "(nil)" else int(text, 16)

"""For gdb: at each sample of bench/sampler.c, the stack as gdb's own unwinder finds it, in the same
form, appended to $STACKS_FILE (native u64: process, number, count, addresses)."""

import os
import struct

import gdb

MOST_FRAMES = 1 << 16
VIRTUAL = (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME)
out = open(os.environ["STACKS_FILE"], "ab")


code = []


def is_code(process, address):
    """Whether it lies in an executable mapping; those that are known are looked at again if not."""
    if not any(start <= address < end for start, end in code):
        with open(f"/proc/{process}/maps", encoding="utf-8", errors="replace") as maps:
            lines = [line.split() for line in maps]
        code[:] = [[int(word, 16) for word in line[0].split("-")] for line in lines if "x" in line[1]]
    return any(start <= address < end for start, end in code)


class Taken(gdb.Breakpoint):
    left = int(os.environ["STACKS_MOST"])

    def stop(self):
        number = int(gdb.parse_and_eval("(unsigned long)$rdi"))
        innermost = int(gdb.parse_and_eval("(unsigned long)$rsi"))
        addresses = []
        process = gdb.selected_inferior().pid
        frame = gdb.newest_frame()
        while frame is not None and len(addresses) < MOST_FRAMES:
            if frame.type() not in VIRTUAL and (addresses or frame.pc() == innermost):
                addresses.append(frame.pc())
            frame = frame.older()
            # Above what makecontext returns to there is none, but gdb takes what lies there for one.
            if frame is not None and not is_code(process, frame.pc()):
                frame = None
        out.write(struct.pack(f"={3 + len(addresses)}Q", process, number, len(addresses), *addresses))
        Taken.left -= 1
        if Taken.left <= 0:
            self.enabled = False
        return False


for setting in ("breakpoint pending on", "backtrace past-main on", "backtrace past-entry on",
                "pagination off", "confirm off", "print thread-events off", "startup-with-shell off",
                "debuginfod enabled off"):
    gdb.execute("set " + setting)
gdb.execute("handle SIGALRM nostop noprint pass")
Taken("sampler_taken")
gdb.execute("run")
out.close()

"""What a person sees while the demo works: one line a step, with the time it took.

On a terminal the line of the running step is redrawn a few times a second; into a pipe each step is
one plain line. Single-threaded but for the redrawing thread, which only reads `_note`.
"""

import contextlib
import shutil
import sys
import threading
import time


class Steps:
    """Prints to `stream`; a step in progress owns the last line of it."""

    REDRAW_SECONDS = 0.2

    def __init__(self, stream=sys.stdout):
        self._stream = stream
        self._live = stream.isatty()
        self._note = ""

    @contextlib.contextmanager
    def step(self, title):
        """Runs the body as one step; yields a function that tells how far it has come."""
        self._note = ""
        started = time.monotonic()
        if not self._live:
            self._write(title + " ... ")
        stop = threading.Event()
        drawer = threading.Thread(target=self._redraw, args=(title, started, stop), daemon=True)
        if self._live:
            drawer.start()
        ended = "stopped after"
        try:
            yield self._take_note
            ended = ""
        finally:
            stop.set()
            if self._live:
                drawer.join()
                self._write("\r\033[K" + title + " ... ")
            self._write(f"{ended} {_elapsed(started)}".strip() + "\n")

    def _take_note(self, text):
        self._note = text

    def _redraw(self, title, started, stop):
        while not stop.wait(self.REDRAW_SECONDS):
            note = f" {self._note}" if self._note else ""
            line = f"{title} ...{note} ({_elapsed(started)})"
            self._write("\r\033[K" + line[: shutil.get_terminal_size().columns - 1])

    def _write(self, text):
        self._stream.write(text)
        self._stream.flush()


def _elapsed(started):
    return f"{time.monotonic() - started:.1f} s"

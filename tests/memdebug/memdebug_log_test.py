"""Tests of the log reader on lines in curl's format."""

import os
import tempfile
import unittest

from memdebug_log import KINDS, Call, LogError, parse_line, read, tally


class ParseLine(unittest.TestCase):
    def test_every_kind_of_call(self):
        for text, call in (
            ("MEM a/b.c:7 malloc(16) = 0x10", Call("malloc", "a/b.c", 7, 16, 0x10)),
            ("MEM b.c:8 calloc(3,40) = 0x20", Call("calloc", "b.c", 8, 120, 0x20)),
            ("MEM b.c:9 realloc((nil), 32) = 0x30", Call("realloc", "b.c", 9, 32, 0x30)),
            ("MEM b.c:9 realloc(0x30, 64) = 0x40", Call("realloc", "b.c", 9, 64, 0x40, 0x30)),
            ("MEM b.c:1 strdup(0x7ff) (5) = 0x50", Call("strdup", "b.c", 1, 5, 0x50)),
            ("MEM b.c:2 wcsdup(0x7ff) (8) = 0x60", Call("wcsdup", "b.c", 2, 8, 0x60)),
            ("MEM b.c:3 free(0x60)", Call("free", "b.c", 3, old=0x60)),
        ):
            self.assertEqual(parse_line(text), call)

    def test_failed_calls_have_no_block(self):
        self.assertEqual(parse_line("MEM b.c:7 malloc(16) = (nil)").at, 0)

    def test_pointers_of_old_logs_lack_the_prefix(self):
        self.assertEqual(parse_line("MEM b.c:3 free(7ffe60)").old, 0x7FFE60)

    def test_a_colon_and_a_space_in_the_path(self):
        call = parse_line("MEM /a b/c:d/e.c:12 malloc(1) = 0x10")
        self.assertEqual((call.path, call.line), ("/a b/c:d/e.c", 12))

    def test_lines_about_other_things(self):
        for text in ("FD a.c:1 socket() = 5", "FILE a.c:2 fclose(0x10)", "LIMIT a.c:3 x", ""):
            self.assertIsNone(parse_line(text))

    def test_nonsense_is_refused(self):
        for text in ("MEM a.c:1 malloc(-1) = 0x1", "MEM malloc(1) = 0x1", "MEMO", "MEM a.c:1 fr"):
            with self.assertRaises(LogError):
                parse_line(text)


class Read(unittest.TestCase):
    def read(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "log")
            with open(path, "w", encoding="utf-8") as log:
                log.write(text)
            return read(path)

    def test_a_cut_last_line_is_said_and_left_out(self):
        calls, cut = self.read("MEM a.c:1 malloc(1) = 0x1\nMEM a.c:2 mall")
        self.assertTrue(cut)
        self.assertEqual(len(calls), 1)

    def test_a_whole_log(self):
        calls, cut = self.read("MEM a.c:1 free(0x1)\n")
        self.assertEqual(calls, [Call("free", "a.c", 1, old=1)])
        self.assertFalse(cut)

    def test_a_bad_line_is_named(self):
        with self.assertRaisesRegex(LogError, ":2: "):
            self.read("FD a.c:1 socket() = 5\nrubbish\n")


class TallyOfCalls(unittest.TestCase):
    CALLS = (
        Call("malloc", "a.c", 1, 100, 0x1),
        Call("calloc", "a.c", 2, 50, 0x2),
        Call("realloc", "a.c", 3, 120, 0x3, 0x1),
        Call("strdup", "a.c", 4, 6, 0x4),
        Call("free", "a.c", 5, old=0x2),
        Call("free", "a.c", 5, old=0x4),
        Call("malloc", "a.c", 1, 10, 0),
        Call("free", "a.c", 5, old=0),
        Call("free", "a.c", 6, old=0x99),
    )

    def test_counters(self):
        result = tally(self.CALLS)
        self.assertEqual(result.counts, dict(zip(KINDS, (1, 1, 1, 1, 0, 3), strict=True)))
        self.assertEqual(result.allocations, 4)
        self.assertEqual(result.total, 100 + 50 + 120 + 6)
        self.assertEqual(result.peak, 50 + 120 + 6)
        self.assertEqual(result.live, 120)
        self.assertEqual(result.tiny, 1)
        self.assertEqual(result.calls["a.c", 1, "malloc"], 1)
        self.assertEqual(result.bytes["a.c", 3], 120)
        self.assertNotIn(("a.c", 5, "free"), result.calls)


if __name__ == "__main__":
    unittest.main()

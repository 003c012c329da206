"""The commands that a page shows, and how each is checked.

A fenced block whose info string is `sh` or `console` shows commands; `console` has them behind `$ `, with what
they print. tests/docs runs them, but where an HTML comment stands on the line before:

    <!-- not run: REASON -->            only options, scripts and targets are looked up
    <!-- exits with N: REASON -->       the last command's exit code; 0 otherwise, or what `$ echo $?` shows
    <!-- step -->                       all steps of a page are one shell session, and print what `console` shows:
                                        a line `…` is any lines, `…` in a line any text

A block with a file's name behind its language (`c program.c`) is a file for the commands below it. Behind
`<!-- table of commands -->` the commands in the last column are run, each row like a block.
"""

import re

from markdown import Fence, cells

SHELL = ("sh", "console")
LANGUAGES = SHELL + ("text", "c", "cc", "rust", "toml", "json", "yaml", "sql", "python")
NOT_RUN = re.compile(r"<!-- not run: (\S.*\s\S.*) -->$")
EXITS_WITH = re.compile(r"<!-- exits with (\d+): (\S.*\s\S.*) -->$")
STEP = re.compile(r"<!-- step -->$")
TABLE = re.compile(r"<!-- table of commands -->\n\|.*\n\|.*\n((?:\|.*\n)+)")
IN_A_ROW = re.compile(r"`((?:[A-Z_]+=\S+ )*(?:larder|pprof|\./app)\b[^`]*)`")
LIKE_A_MARK = re.compile(r"<!--\s*(?:not run|run|exits|step|table)\b", re.IGNORECASE)


class Command:
    """One command: its line on the page, its text with continued lines joined, its exit code, and the lines that
    show what it prints, or None."""

    def __init__(self, line, text, shown=None):
        self.line, self.text, self.code, self.shown = line, text, 0, shown

    def prints(self, output):
        """Is this what is shown?"""
        if self.shown is None:
            return True
        lines = (r"(?:.*\n)*" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + r"\n"
                 for line in self.shown)
        return re.fullmatch("".join(lines), re.sub(r"[ \t]+$", "", output, flags=re.MULTILINE)) is not None


def tables(page):
    """(line of the mark, the rows that have commands, as blocks) of each table of commands."""
    for table in TABLE.finditer(page.blocked):
        rows, line = [], page.line_at(table.start())
        for number, row in enumerate(table[1].splitlines(), line + 3):
            fence = Fence("sh", number, "")
            fence.lines = IN_A_ROW.findall(cells(row)[-1])
            rows += [fence] if fence.lines else []
        yield line, rows


def language(fence):
    return fence.info.split(" ")[0]


def file_name(fence):
    """Of the file that the block is, or None."""
    words = fence.info.split()
    return words[1] if len(words) == 2 and words[0] not in SHELL else None


def commands(fence):
    """Of a block that shows some, in order."""
    found, continued = [], False
    for number, line in enumerate(fence.lines, fence.line + 1):
        text = line.strip()
        if continued:
            found[-1].text += "\n" + text
        elif language(fence) == "console":
            if found and found[-1].text == "echo $?" and text.isdigit():
                found.pop()
                found[-1].code = int(text)
                continue
            if not text.startswith("$ "):
                if found:
                    found[-1].shown.append(line.rstrip())
                continue
            found.append(Command(number, text[2:], []))
        elif text and not text.startswith("#"):
            found.append(Command(number, text))
        continued = text.endswith("\\")
    exits = EXITS_WITH.match(fence.before)
    if exits and found:
        found[-1].code = int(exits[1])
    return found


def is_step(fence):
    return STEP.match(fence.before) is not None


def why_not_run(fence):
    """The reason, or None: the block is run."""
    mark = NOT_RUN.match(fence.before)
    return mark[1] if mark else None

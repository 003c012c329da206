"""The commands that a page shows, and how each is checked.

A fenced block whose info string is `sh` or `console` shows commands; `console` has them behind `$ `, with what
they print. tests/docs runs them, but where an HTML comment stands on the line before:

    <!-- not run: REASON -->            only options, scripts and targets are looked up
    <!-- exits with N: REASON -->       the last command's exit code; 0 otherwise, or what `$ echo $?` shows

A block with a file's name behind its language (`c program.c`) is a file for the commands below it.
"""

import re

SHELL = ("sh", "console")
LANGUAGES = SHELL + ("text", "c", "cc", "rust", "toml", "json", "yaml", "sql", "python")
NOT_RUN = re.compile(r"<!-- not run: (\S.*\s\S.*) -->$")
EXITS_WITH = re.compile(r"<!-- exits with (\d+): (\S.*\s\S.*) -->$")
LIKE_A_MARK = re.compile(r"<!--\s*(?:not run|run|exits)\b", re.IGNORECASE)


class Command:
    """One command: its line on the page, its text with continued lines joined, its exit code."""

    def __init__(self, line, text, code=0):
        self.line, self.text, self.code = line, text, code


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
            if not text.startswith("$ "):
                continue
            found.append(Command(number, text[2:]))
        elif text and not text.startswith("#"):
            found.append(Command(number, text))
        continued = text.endswith("\\")
    exits = EXITS_WITH.match(fence.before)
    if exits and found:
        found[-1].code = int(exits[1])
    return found


def why_not_run(fence):
    """The reason, or None: the block is run."""
    mark = NOT_RUN.match(fence.before)
    return mark[1] if mark else None

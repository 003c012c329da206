"""Reads GitHub's Markdown, as far as the checks of the pages need it.

Owns nothing. Lines are counted from 1. A page's prose is its text with all code blanked out, so that
what stands at an offset of the prose stands at the same offset of the text.
"""

import bisect
import re

FENCE = re.compile(r"^( {0,3}|\s+)(`{3,}|~{3,})\s*([^`]*?)\s*$")
# A run of backticks, the same run again, and no empty line between them.
CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)((?:(?!\n\s*\n).)+?)(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"\]\(\s*<?([^\s()<>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
DEFINITION = re.compile(r"^ {0,3}\[([^\]]+)\]:\s*<?(\S+?)>?\s*$", re.MULTILINE)
REFERENCE = re.compile(r"\]\[([^\]]+)\]")
HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.*?)(?:\s+#+)?\s*$")
SEPARATOR_CELL = re.compile(r"^\s*:?-+:?\s*$")


class Fence:
    """A fenced block: its info string, the line of its fence, its lines, and the line before it."""

    def __init__(self, info, line, before):
        self.info, self.line, self.before, self.lines = info, line, before, []


class Page:
    def __init__(self, path, text):
        self.path, self.text = path, text
        self.lines = text.split("\n")
        self.fences, blanked = read_fences(self.lines)
        self.blocked = "\n".join(blanked)
        self.starts = [0]
        for line in blanked:
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.spans = [(self.line_at(found.start(2)), " ".join(found[2].split()))
                      for found in CODE_SPAN.finditer(self.blocked)]
        self.prose = CODE_SPAN.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), self.blocked)

    def line_at(self, offset):
        return bisect.bisect_right(self.starts, offset)

    def links(self):
        """(line, target) of every link and definition."""
        found = [(match.start(), match[1]) for match in LINK.finditer(self.prose)]
        found += [(match.start(), match[2]) for match in DEFINITION.finditer(self.prose)]
        return [(self.line_at(offset), target) for offset, target in sorted(found)]

    def undefined_references(self):
        defined = {match[1].lower() for match in DEFINITION.finditer(self.prose)}
        return [(self.line_at(match.start()), match[1]) for match in REFERENCE.finditer(self.prose)
                if match[1].lower() not in defined]

    def anchors(self):
        """The valid fragments of links: headings by GitHub's rule, and HTML anchors."""
        names, uses = set(re.findall(r"<a\s+(?:name|id)=\"([^\"]+)\"", self.blocked)), {}
        for line in self.blocked.split("\n"):
            heading = HEADING.match(line)
            if heading:
                name = anchor(heading[1])
                count = uses[name] = uses.get(name, -1) + 1
                names.add(f"{name}-{count}" if count else name)
        return names


def read_fences(lines):
    """The fenced blocks, and the lines, with those of the blocks emptied."""
    fences, left, end = [], [], None
    for number, line in enumerate(lines, 1):
        opening = FENCE.match(line)
        if end is None and opening:
            end = re.compile(rf"^\s*{opening[2][0]}{{{len(opening[2])},}}\s*$")
            before = next((text for text in reversed(lines[:number - 1]) if text.strip()), "")
            fences.append(Fence(opening[3], number, before.strip()))
        elif end is None:
            left.append(line)
            continue
        elif end.match(line):
            end = None
        else:
            fences[-1].lines.append(line)
        left.append("")
    return fences, left


def anchor(heading):
    """From the heading's rendered text: lower case, hyphens for spaces, no other punctuation."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"(?<![\w\\])[*_]+(?=\S)|(?<=\S)[*_]+(?!\w)", "", text)
    return re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")


def cells(row):
    """The cells of a table's row. A pipe ends a cell in a code span, too, unless it is escaped."""
    row = row.strip()
    row = row[1:] if row.startswith("|") else row
    row = row[:-1] if row.endswith("|") and not row.endswith(r"\|") else row
    return re.split(r"(?<!\\)\|", row)


def is_separator(line):
    return "|" in line and all(SEPARATOR_CELL.match(cell) for cell in cells(line))


def table_faults(page):
    """(line, what is wrong) of the page's tables."""
    lines, faults, number = page.blocked.split("\n"), [], 0
    while number < len(lines):
        line, below = lines[number], lines[number + 1] if number + 1 < len(lines) else ""
        if not line.lstrip().startswith("|") and not is_separator(below):
            number += 1
            continue
        if not is_separator(below):
            faults.append((number + 1, "a row without a table: under its heading row stands no row of |---|"))
            number += 1
            while number < len(lines) and lines[number].lstrip().startswith("|"):
                number += 1
            continue
        width = len(cells(line))
        for row in range(number + 1, len(lines) + 1):
            text = lines[row] if row < len(lines) else ""
            if not text.strip():
                number = row
                break
            if "|" not in text:
                faults.append((row + 1, "text directly under a table becomes a row of it: leave a line free"))
            elif len(cells(text)) != width:
                faults.append((row + 1, f"{len(cells(text))} cells where the heading row has {width}"
                                        r" (a pipe in a cell is written \|, in code too)"))
    return faults

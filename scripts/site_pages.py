"""The order of the pages: that of docs/README.md, which is the only list of them.

Owns nothing. A page stands where docs/README.md links to it last, or below the README of its folder that links to it.
Paths are relative to the repository.
"""

import os
import re

from markdown import Page

START = "docs/README.md"
# Around what START lists.
FIRST, LAST = ("README.md", START), ("CONTRIBUTING.md", "CHANGELOG.md")


class Pages:
    """The pages of the repository in the folder `root`."""

    def __init__(self, root="."):
        self.root, self.read = root, {}

    def page(self, path):
        if path not in self.read:
            with open(os.path.join(self.root, path), encoding="utf-8") as file:
                self.read[path] = Page(path, file.read())
        return self.read[path]

    def title(self, path):
        """Its heading; tables that a tool has written have none, and are called by their files."""
        headings = (line.removeprefix("# ") for line in self.page(path).lines if line.startswith("# "))
        return next(headings, os.path.basename(path)).replace("`", "")

    def links(self, path):
        """(line, path) of the page's links to files of the repository, in order."""
        for line, target in self.page(path).links():
            name = target.partition("#")[0]
            if name and not re.match(r"[a-z][a-z0-9+.-]*:", target):
                yield line, os.path.normpath(os.path.join(os.path.dirname(path), name))

    def chapters(self):
        """(depth, path) of each page in order, and (None, heading) where a part begins."""
        found = [(0, path) for path in FIRST]
        headings = [(number, line.removeprefix("## ")) for number, line in enumerate(self.page(START).lines, 1)
                    if line.startswith("## ")]
        last = {path: line for line, path in self.links(START) if path.endswith(".md") and path not in FIRST}
        for path, line in sorted(last.items(), key=lambda item: item[1]):
            while headings and headings[0][0] < line:
                found.append((None, headings.pop(0)[1]))
            found += [(0, path), *((1, below) for below in self.below(path))]
        return [*found, (None, "The project"), *((0, path) for path in LAST)]

    def below(self, path):
        """The pages of a README's folder, in the order of its links."""
        if os.path.basename(path) != "README.md":
            return []
        return dict.fromkeys(below for _, below in self.links(path)
                             if below.endswith(".md") and os.path.dirname(below) == os.path.dirname(path))

    def summary(self):
        """mdBook's list of chapters."""
        lines = ["# Summary", ""]
        for depth, text in self.chapters():
            lines += ["", f"# {text}", ""] if depth is None else [f"{'    ' * depth}- [{self.title(text)}]({text})"]
        return "\n".join(lines) + "\n"

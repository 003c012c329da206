"""Finds in a site of HTML files the links that lead nowhere, and what would come from another host.

Owns nothing. A link to another host is fine, because it is followed only by a click; what a browser loads by itself
(scripts, styles, pictures, frames) is not.
"""

import html.parser
import os
import pathlib
import re
import urllib.parse

LOADS = {("script", "src"), ("img", "src"), ("iframe", "src"), ("link", "href"), ("source", "src"), ("object", "data")}
ELSEWHERE = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//|(?:https?|ftp):", re.IGNORECASE)
IN_A_STYLE = re.compile(r"(?:url\(\s*|@import\s+)[\"']?((?:https?:)?//[^\"')\s]+)", re.IGNORECASE)


class Document(html.parser.HTMLParser):
    """The anchors of a document, its links, and what it loads, with their lines."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links, self.loaded = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name == "id" or (tag, name) == ("a", "name"):
                self.anchors.add(value)
            elif (tag, name) in LOADS:
                self.loaded.append((self.getpos()[0], value or ""))
            elif (tag, name) == ("a", "href"):
                self.links.append((self.getpos()[0], value or ""))


def faults(folder):
    """A list of "file:line: what is wrong"."""
    folder = pathlib.Path(folder)
    documents = {str(path.relative_to(folder)): Document(path.read_text(encoding="utf-8"))
                 for path in sorted(folder.rglob("*.html"))}
    wrong = [] if documents else [f"{folder}: no HTML file in it"]
    for name, document in documents.items():
        for line, target in document.loaded:
            if ELSEWHERE.match(target):
                wrong.append(f"{name}:{line}: loads {target} from another host")
            elif not target.startswith("data:"):
                wrong += [f"{name}:{line}: {why}" for why in dead(name, target, folder, documents)]
        for line, target in document.links:
            if not re.match(r"[a-z][a-z0-9+.-]*:", target):
                wrong += [f"{name}:{line}: {why}" for why in dead(name, target, folder, documents)]
    for style in sorted(folder.rglob("*.css")):
        for number, line in enumerate(style.read_text(encoding="utf-8").splitlines(), 1):
            wrong += [f"{style.relative_to(folder)}:{number}: loads {target} from another host"
                      for target in IN_A_STYLE.findall(line)]
    return wrong


def dead(name, target, folder, documents):
    path, _, fragment = target.partition("#")
    path = urllib.parse.unquote(path.partition("?")[0])
    found = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
    if not (folder / found).is_file():
        return [f"link to {target}: there is no {found}"]
    if fragment and found in documents and urllib.parse.unquote(fragment) not in documents[found].anchors:
        return [f"link to {target}: {found} has no #{fragment}"]
    return []

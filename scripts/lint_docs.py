"""The checks of scripts/lint that read Markdown: tables, links, and the commands that a page shows.

Owns nothing and changes nothing. Each check gets the paths of all files of the tree, relative to the
current folder, and gives a list of "file:line: what is wrong; what to do".
"""

import fnmatch
import posixpath
import re
import urllib.parse

import doc_commands
import site_pages
from markdown import Page, table_faults

# Not a file's name: a placeholder, or several names in one.
PLACEHOLDER = re.compile(r"[<>{}$…\[\]|%=]|\.\.\.")


def pages(paths):
    for path in sorted(paths):
        if path.endswith(".md"):
            with open(path, encoding="utf-8") as file:
                yield Page(path, file.read())


def folders(paths):
    """Every folder that has a file, without a trailing slash; the root is ''."""
    found = {""}
    for path in paths:
        while path:
            path = posixpath.dirname(path)
            found.add(path)
    return found


def docs_tables(paths):
    return [f"{page.path}:{line}: {fault}" for page in pages(paths) for line, fault in table_faults(page)]


def docs_links(paths):
    """The targets of links, and paths of the repository in code, exist."""
    there, read = set(paths) | folders(paths), list(pages(paths))
    anchors, wrong = {page.path: page.anchors() for page in read}, []
    for page in read:
        for line, target in page.links():
            wrong += [f"{page.path}:{line}: {fault}" for fault in link_faults(page.path, target, there, anchors)]
        for line, name in page.undefined_references():
            wrong.append(f"{page.path}:{line}: [{name}] is defined nowhere; write '[{name}]: TARGET', or a link")
        for line, span in page.spans:
            wrong += [f"{page.path}:{line}: there is no {word}; name what there is, or mend the path"
                      for word in missing_paths(span, paths, there)]
    return wrong


def link_faults(path, target, there, anchors):
    if re.match(r"[a-z][a-z0-9+.-]*:", target):
        return []
    name, _, fragment = urllib.parse.unquote(target).partition("#")
    found = posixpath.normpath(posixpath.join("" if name.startswith("/") else posixpath.dirname(path),
                                              name.lstrip("/"))) if name else path
    found = "" if found == "." else found
    if found not in there:
        return [f"link to {target}: there is no {found}"]
    if fragment and found.endswith(".md") and fragment not in anchors[found]:
        return [f"link to {target}: {found} has no heading #{fragment}"]
    return []


def missing_paths(code, paths, there):
    """The words of a piece of code that begin with a top-level folder and do not exist."""
    tops = {path.split("/")[0] for path in there if "/" in path}
    missing = []
    for word in code.split():
        word = re.sub(r":\d+(?:-\d+)?$", "", word.strip("'\"`(),;").rstrip(":"))
        word = word.split("#")[0]
        if "/" not in word or word.split("/")[0] not in tops or PLACEHOLDER.search(word):
            continue
        found = fnmatch.filter(paths, word.rstrip("/") + ("/*" if word.endswith("/") else "")) if "*" in word \
            else word.rstrip("/") in there
        if not found:
            missing.append(word)
    return missing


def docs_listed(paths):
    """docs/README.md leads to every page, which is how the site orders them."""
    listed = {path for depth, path in site_pages.Pages().chapters() if depth is not None}
    return [f"{path}:1: {site_pages.START} does not list this page; link to it there, or in its folder's README.md"
            for path in sorted(paths) if path.startswith("docs/") and path.endswith(".md") and path not in listed]


def docs_commands(paths):
    """tests/docs sees every command that is shown, and none is left out without a reason."""
    there, wrong = set(paths) | folders(paths), []
    for page in pages(paths):
        for fence in page.fences:
            wrong += [f"{page.path}:{line}: {fault}" for line, fault in fence_faults(fence, paths, there)]
        marked = {fence.line - 1 for fence in page.fences if doc_commands.language(fence) in doc_commands.SHELL}
        marked |= {line for line, rows in doc_commands.tables(page) if rows}
        for number, line in enumerate(page.blocked.split("\n"), 1):
            if doc_commands.LIKE_A_MARK.search(line) and number not in marked:
                wrong.append(f"{page.path}:{number}: a mark that belongs to no command;"
                             " put it on the line before ```sh or ```console, or before a table of commands")
    return wrong


def fence_faults(fence, paths, there):
    language = doc_commands.language(fence)
    if language not in doc_commands.LANGUAGES:
        return [(fence.line, f"a block in '{language}'; write what it is: {', '.join(doc_commands.LANGUAGES)}")]
    if language not in doc_commands.SHELL:
        return [(number, "a command in a block that is not looked at; call the block console")
                for number, line in enumerate(fence.lines, fence.line + 1) if line.startswith("$ ")]
    faults = []
    marks = (doc_commands.NOT_RUN, doc_commands.EXITS_WITH, doc_commands.STEP)
    if doc_commands.LIKE_A_MARK.match(fence.before) and not any(mark.match(fence.before) for mark in marks):
        faults.append((fence.line - 1, "not a mark; write <!-- not run: REASON -->, <!-- exits with N: REASON -->,"
                       " with a reason of several words, or <!-- step -->"))
    shown = doc_commands.commands(fence)
    if not shown:
        faults.append((fence.line, "shows no command; call the block text, or write $ before the command"))
    for command in shown:
        faults += [(command.line, f"there is no {word}; name what there is, or mend the path")
                   for word in missing_paths(re.sub(r"\s#\s.*", "", command.text), paths, there)]
    return faults

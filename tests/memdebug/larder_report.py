"""Reads the output of `larder report --json`, in a form that can be compared with a log."""

import collections
import dataclasses
import json


@dataclasses.dataclass
class Report:
    counters: dict
    complete: bool  # nothing was lost, and every stack is whole
    calls: collections.Counter  # (path, line, kind) -> calls; frees have no site
    bytes: collections.Counter  # (path, line) -> bytes


def parse(text):
    """The counters and the sites. Sites that share a line (two functions of one name, two kinds)
    are summed up, because a log cannot distinguish them."""
    document = json.loads(text)
    complete = document["losses"]["complete"]
    report = Report(document["counters"], complete, collections.Counter(), collections.Counter())
    if len(document["sites"]) != document["site_count"]:
        raise ValueError(f"{len(document['sites'])} of {document['site_count']} sites are listed")
    for site in document["sites"]:
        path, line = site["file"] or site["module"] or "unknown", site["line"] or 0
        report.bytes[path, line] += site["bytes"]
        for kind, calls in site["kinds"].items():
            report.calls[path, line, kind] += calls
    return report


def differences(expected, actual):
    """What only one of two counters has, or has more of, as sorted lines of text."""
    lines = []
    for place in sorted(expected.keys() | actual.keys()):
        if expected[place] != actual[place]:
            where = f"{place[0]}:{place[1]}" + (f" {place[2]}" if len(place) > 2 else "")
            lines.append(f"{where}: {expected[place]} in the log, {actual[place]} in Larder")
    return lines

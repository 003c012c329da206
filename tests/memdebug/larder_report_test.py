"""Tests of the reading of `larder report --json` and of the comparison of sites."""

import collections
import json
import unittest

from larder_report import differences, parse


def document(sites, count=None):
    return json.dumps(
        {
            "counters": {"mallocs": 3},
            "losses": {"complete": True},
            "sites": sites,
            "site_count": len(sites) if count is None else count,
        }
    )


def site(line, kinds, size, file="a.c"):
    return {"file": file, "line": line, "module": "/bin/x", "kinds": kinds, "bytes": size}


class Parse(unittest.TestCase):
    def test_sites_of_one_line_are_added_up(self):
        sites = [site(4, {"malloc": 2, "strdup": 1}, 30), site(4, {"malloc": 1}, 5)]
        report = parse(document(sites))
        self.assertEqual(report.calls, {("a.c", 4, "malloc"): 3, ("a.c", 4, "strdup"): 1})
        self.assertEqual(report.bytes, {("a.c", 4): 35})
        self.assertEqual(report.counters, {"mallocs": 3})

    def test_a_site_without_a_line_goes_by_its_module(self):
        report = parse(document([site(None, {"malloc": 1}, 8, file=None)]))
        self.assertEqual(report.bytes, {("/bin/x", 0): 8})

    def test_a_shortened_list_is_refused(self):
        with self.assertRaises(ValueError):
            parse(document([], count=1))


class Differences(unittest.TestCase):
    def test_equal_counters_have_none(self):
        sites = collections.Counter({("a.c", 1, "malloc"): 2})
        self.assertEqual(differences(sites, sites.copy()), [])

    def test_each_side_is_reported(self):
        log = collections.Counter({("a.c", 1, "malloc"): 2, ("a.c", 2): 7})
        larder = collections.Counter({("a.c", 1, "malloc"): 3, ("b.c", 9): 1})
        self.assertEqual(
            differences(log, larder),
            [
                "a.c:1 malloc: 2 in the log, 3 in Larder",
                "a.c:2: 7 in the log, 0 in Larder",
                "b.c:9: 0 in the log, 1 in Larder",
            ],
        )


if __name__ == "__main__":
    unittest.main()

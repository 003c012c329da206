"""churn.py SCALE: an ordinary script's objects: records parsed, indexed, sorted and written.

Run with PYTHONMALLOC=malloc, so that each object is an allocation of the C library's family.
"""

import json
import re
import sys


def main():
    count = max(50, int(40_000 * float(sys.argv[1])))
    records = [
        {"id": i, "name": f"user-{i % 977}", "tags": [f"t{i % 7}", f"t{i % 13}"], "score": i * 0.5}
        for i in range(count)
    ]
    for _ in range(3):
        text = json.dumps(records)
        records = json.loads(text)
    by_name = {}
    for record in records:
        by_name.setdefault(record["name"], []).append(record)
    for group in by_name.values():
        group.sort(key=lambda record: (-record["score"], record["id"]))
    words = re.findall(r"[a-z]+-\d+", text)
    counts = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    lines = [f"{name}:{len(group)}:{counts[name]}" for name, group in sorted(by_name.items())]
    assert len(lines) == min(977, count)


main()

#!/usr/bin/env python3
"""What each mechanism of the allocator earns: liblarder.so without it, beside liblarder.so, under `larder bench`.

Each variant is the allocator's source with one piece of text replaced, which turns the mechanism off. A piece that is
not found once is an error, so that the list is true of this source.

Usage, in a tree with `make build workloads`:
  bench/profile/ablation.py --check            only looks for the pieces
  bench/profile/ablation.py [NAME...] [-- OPTION OF BENCH...]
  bench/profile/ablation.py --table RESULTS.JSON...
"""

import argparse
import collections
import json
import os
import shutil
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = os.path.join(ROOT, "build", "ablation")

# What liblarder.so is without: the file of alloc/, and what replaces what there.
VARIANTS = {
    "as-it-is": [],
    # thread_heap
    "last-object": [("core/thread_heap.h", "if (uintptr_t(p) == thread_state.last) {", "if (false) {")],
    "deferred-frees": [
        ("core/thread_heap.cc",
         "bool useful = bin.current != nullptr && bin.last",
         "bool useful = false && bin.last")],
    "full-list": [("core/thread_heap.cc", "while (full.beyond_bound())", "while (!full.slabs.empty())")],
    "passing-on": [("core/thread_heap.cc", "else if (bin.partial.size() > kIdleAdoptions &&", "else if (false &&")],
    "collecting": [("core/thread_heap.cc", "  remote_flush(this);\n  collect_some();\n", "  remote_flush(this);\n")],
    "cache-before-clean": [
        ("core/thread_heap.cc", "if ((s == nullptr || s->zero) && cache.bytes() != 0) {", "if (false) {"),
        ("core/slow_path.cc",
         "if (p != nullptr && has_cache && zero && heap->cache.bytes() != 0) {",
         "if (false) {")],
    "carving-by-page": [("base/policy.h", "kCarveBytes = 4096;", "kCarveBytes = 1 << 18;")],
    # heap_cache
    "empty-slabs": [
        ("core/heap_cache.cc",
         "void HeapCache::add_slab(Slab* s) {",
         "void HeapCache::add_slab(Slab* s) {\n  return slab_release(s);")],
    "cached-spans": [("core/heap_cache.cc", "if (s->pages > kMaxCachedSpanPages) return false;", "return false;")],
    "last-span": [
        ("core/heap_cache.cc", "if (last_freed != nullptr || s->sample_point", "if (true || s->sample_point")],
    "more-cache": [("core/heap_cache.cc", "if (evicted_bytes < more_bytes) return;", "if (more_bytes != 0) return;")],
    "carving-anew": [("core/heap_cache.cc", "if (size > kCacheLine && size <= kCarvedAnewBytes)", "if (size == 0)")],
    "slab-purge": [
        ("core/thread_heap.cc",
         "if (!is_shrinking()) return;",
         "if (emptied_bytes != ~size_t{0}) return;")],
    # remote, registry
    "remote-slots": [
        ("core/remote.cc",
         "return uint32_t(n < kMinPushed ? kMinPushed : n > kMaxPushed ? kMaxPushed : n);",
         "return uint32_t(n != 0 ? 1 : 1);"),
        ("core/remote.cc",
         "    set_next(p, nullptr);\n    *slot =",
         "    if (heap != nullptr) return remote_push(heap, s, {p, p, 1});\n    *slot =")],
    "waiting-heaps": [("core/registry.cc", "if (bytes > kWaitingBytes) {", "if (bytes != 0) {")],
    # large, page_heap, purge
    "last-mapping": [
        ("core/mapping_cache.cc",
         "if (s->sample_point != nullptr || sample_all ||\n",
         "if (s->sample_point != nullptr || sample_all || true ||\n")],
    "cached-mappings": [
        ("core/mapping_cache.cc",
         "return release_rate() == 0 ? SIZE_MAX / 2 : option(Option::kHugeKeptMib) << 20;",
         "return 0;")],
    "absorbing": [("core/large.cc", "bool grown = large_absorb(s, need - old);", "bool grown = false;")],
    "growth": [("core/large.cc", "{round_up(need + need / kGrowShare, large_granule()), need}", "{need, need}")],
    "mapped-bound": [("core/mapping_cache.cc", "if (total > most && release_rate() != 0)", "if (false)")],
    "span-growth": [
        ("core/large.cc",
         "else if (pages > s->pages && !page_heap.extend_span(s, pages))",
         "else if (pages > s->pages)")],
    "colour": [("core/colour.h", "if (slack_bytes < kCacheLine ||", "if (slack_bytes != ~size_t{0} ||")],
    "dirty-first": [
        ("core/page_heap.cc", "      if (warm != 0) {", "      if (false) {"),
        ("core/page_heap.cc", "if (!dirty_whole_.empty()) return dirty_whole_.back();", "")],
    "huge-pages": [("base/policy.h", "kHugeHeapBytes = size_t{64} << 20;", "kHugeHeapBytes = SIZE_MAX;")],
    "early-purge": [("base/policy.h", "kEarlyMinBytes = size_t{8} << 20", "kEarlyMinBytes = SIZE_MAX")],
    "growth-purge": [("base/policy.h", "kGrowthBytes = size_t{1} << 20", "kGrowthBytes = size_t{1} << 40")],
    "stale-decay": [("base/policy.h", "kStaleDecays = 4;", "kStaleDecays = 1 << 20;")],
    # base
    "one-thread": [
        ("base/single_threaded.h",
         "return &__libc_single_threaded != nullptr && __libc_single_threaded != 0;",
         "return false;")],
}


def edited(name):
    """The files of a variant, by their paths, and what they hold."""
    texts = {}
    for file, old, new in VARIANTS[name]:
        path = os.path.join("alloc", file)
        if path not in texts:
            with open(os.path.join(ROOT, path), encoding="utf-8") as source:
                texts[path] = source.read()
        if texts[path].count(old) != 1:
            sys.exit(f"{path}: {texts[path].count(old)} times, not once: {old!r} (of {name})")
        texts[path] = texts[path].replace(old, new)
    return texts


def copy_sources():
    """Files that have not changed keep their times, so that little is built again."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files"], check=True, capture_output=True, text=True)
    source = os.path.join(FOLDER, "source")
    for path in listed.stdout.split("\n"):
        if path and os.path.isfile(os.path.join(ROOT, path)):
            put(os.path.join(source, path), open(os.path.join(ROOT, path), "rb").read())
    return source


def put(path, content):
    if os.path.exists(path) and open(path, "rb").read() == content:
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


def build(source, name):
    """Returns the variant's library."""
    texts = edited(name)
    built = os.path.join(FOLDER, "build")
    for path, text in texts.items():
        put(os.path.join(source, path), text.encode())
    if not os.path.exists(os.path.join(built, "build.ninja")):
        # -w: what a variant does not use is no error.
        subprocess.run(["cmake", "-S", source, "-B", built, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
                        "-DCMAKE_CXX_FLAGS=-w", "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O2 -g1"], check=True,
                       stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", built, "--quiet", "larder_shared"], check=True)
    for path in texts:
        put(os.path.join(source, path), open(os.path.join(ROOT, path), "rb").read())
    library = os.path.join(FOLDER, f"{name}.so")
    shutil.copyfile(os.path.realpath(os.path.join(built, "liblarder.so")), library)
    return library


def table(paths):
    """What each variant needs, relative to the median of all libraries in the same round: most differ in nothing that a
    workload uses, so their median has less noise than one library. Workloads that lose 6 % in every round follow."""
    metrics = {"cpu_seconds": "CPU", "peak_kib": "RSS"}
    ratios, losses = collections.defaultdict(list), collections.defaultdict(list)
    for path in paths:
        with open(path, encoding="utf-8") as file:
            runs = json.load(file)["runs"]
        rounds = collections.defaultdict(dict)
        for run in (run for run in runs if "round" in run["pass"]):
            rounds[run["workload"], run["pass"]["round"]][run["allocator"]] = run["figures"]
        for workload in sorted({workload for workload, _ in rounds}):
            for metric, short in metrics.items():
                of = collections.defaultdict(list)
                for (name, _), figures in rounds.items():
                    if name == workload and all(figure.get(metric) for figure in figures.values()):
                        typical = statistics.median(figure[metric] for figure in figures.values())
                        for variant, figure in figures.items():
                            of[variant].append(figure[metric] / typical)
                for variant, values in of.items():
                    ratios[variant, path, metric].append(statistics.median(values))
                    if min(values) > 1.06:
                        losses[variant].append(f"{workload} {statistics.median(values):.2f} ({short})")
    for variant in sorted({variant for variant, _, _ in ratios}):
        figures = [f"{statistics.geometric_mean(ratios[variant, path, metric]):.2f}"
                   for path in paths for metric in metrics]
        print("|", " | ".join([variant, *figures, ", ".join(losses[variant])]), "|")


def main():
    parser = argparse.ArgumentParser(usage=__doc__.partition("Usage, ")[2])
    parser.add_argument("names", nargs="*", metavar="NAME", help="of: " + ", ".join(VARIANTS))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--table", nargs="+", metavar="RESULTS.JSON", help="of `larder bench --out`")
    own = sys.argv[1:]
    own, options = (own[:own.index("--")], own[own.index("--") + 1:]) if "--" in own else (own, [])
    arguments = parser.parse_args(own)
    if arguments.table:
        return table(arguments.table)
    names = arguments.names or list(VARIANTS)
    for name in names:
        if name not in VARIANTS:
            sys.exit(f"no variant {name}; there are {', '.join(VARIANTS)}")
        edited(name)
    if arguments.check:
        return
    source = copy_sources()
    peers = []
    for name in names:
        print(f"building {name}", file=sys.stderr)
        peers += ["--peer", f"{name}={build(source, name)}"]
    bench = [os.path.join(ROOT, "out", "bin", "larder"), "bench", "--allocators", ",".join(["larder", *names])]
    print(" ".join([*bench, *peers, *options]))
    if options:
        os.execv(bench[0], [*bench, *peers, *options])


main()

#!/usr/bin/env python3
"""What Larder's leak checker, valgrind's memcheck and LeakSanitizer call lost, of the same job, site by site.

Each runs the unmodified program: Larder and LeakSanitizer preloaded, valgrind with a malloc of its own. A site is a
stack: of each frame the file and the address in it, so that no symbols are needed; frames of the three's own libraries
are left out. Compared are bytes and objects of a site, those that are lost with others included (valgrind: definitely
and indirectly lost). What valgrind calls possibly lost has only a pointer into its middle, which counts here.

For each site that only some name, shown is what else is known of it: what valgrind calls it, and whether Larder calls
it lost after destructors (strict), without the stacks and registers of threads (no stacks), or has it still allocated
(draconian). What is in none of these has been freed when Larder looks or was allocated later.

Usage, in a tree with `make build`: bench/leaks/compare.py [PROGRAM...], or bench/leaks/compare.py -- COMMAND...
Exit 1 if Larder calls lost what neither of the others does.
"""

import argparse
import bisect
import collections
import glob
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

from jobs import JOBS

HERE = os.path.dirname(os.path.abspath(__file__))
# The library keeps as many.
FRAMES_MAX = 64
OWN = re.compile(r"(liblarder|liblsan|vgpreload_)[^/]*$")
PT_LOAD = 1
UNKNOWN = ("?", 0)


class Sites(collections.defaultdict):
    """Stack, innermost frame first, each a file and an address in it: [bytes, objects] of each kind."""

    def __init__(self):
        super().__init__(lambda: collections.defaultdict(lambda: [0, 0]))

    def add(self, stack, kind, size, objects):
        stack = [frame for frame in stack if not OWN.search(frame[0])]
        # Valgrind continues behind the outermost function.
        while stack and stack[-1] == UNKNOWN:
            stack.pop()
        figures = self[tuple(stack[:FRAMES_MAX])][kind]
        figures[0] += size
        figures[1] += objects


def segments(path):
    """The loaded parts of an ELF file: offset in the file, size there, address."""
    try:
        with open(path, "rb") as file:
            head = file.read(64)
            if head[:6] != b"\x7fELF\x02\x01":
                return []
            table, = struct.unpack_from("<Q", head, 32)
            entry, count = struct.unpack_from("<HH", head, 54)
            file.seek(table)
            rows = file.read(entry * count)
        found = (struct.unpack_from("<IIQQQQ", rows, i * entry) for i in range(count))
        return [(offset, size, address) for kind, _, offset, address, _, size in found if kind == PT_LOAD]
    except (OSError, ValueError, OverflowError, struct.error):
        return []


class Modules:
    """Where files are mapped: an address of the process as a file and an address in it."""

    def __init__(self):
        self.mapped, self.known = [], {}

    def add(self, begin, end, offset, path):
        path = os.path.realpath(path)
        if path not in self.known:
            self.known[path] = segments(path)
        for at, size, address in self.known[path]:
            if at <= offset + (end - begin) - 1 and offset < at + size and at & ~4095 == offset & ~4095:
                self.mapped.append((begin, end, begin - offset + at - address, path))
                return
        self.mapped.append((begin, end, begin - offset, path))

    def find(self, address):
        i = bisect.bisect_right(self.mapped, address, key=lambda row: row[0]) - 1
        if i >= 0 and address < self.mapped[i][1]:
            return self.mapped[i][3], address - self.mapped[i][2]
        return UNKNOWN


MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) \S+ \d+ +(/.*)$")
PART = re.compile(r"(\d+): (\d+) \[\d+: \d+\] @((?: 0x[0-9a-f]+)*)$")


def read_larder(text, sites):
    """A heap profile of leaks. Its addresses are those behind the call."""
    modules = Modules()
    parts, _, mappings = text.partition("MAPPED_LIBRARIES:")
    for line in mappings.splitlines():
        if found := MAPPING.match(line):
            begin, end, offset = (int(field, 16) for field in found.groups()[:3])
            modules.add(begin, end, offset, found[4])
    modules.mapped.sort()
    for line in parts.splitlines():
        if found := PART.match(line):
            stack = [modules.find(int(word, 16) - 1) for word in found[3].split()]
            sites.add(stack, "lost", int(found[2]), int(found[1]))


LSAN_PART = re.compile(r"(?:Direct|Indirect) leak of (\d+) byte\(s\) in (\d+) object\(s\)")
LSAN_FRAME = re.compile(r"    #\d+ 0x[0-9a-f]+ +\((?:(.+)\+0x([0-9a-f]+)|<unknown module>)\)")


def read_lsan(text, sites):
    """Its report, with symbolize=0."""
    part, stack = None, []
    for line in text.splitlines() + ["end"]:
        if part and (found := LSAN_FRAME.match(line)):
            stack.append((os.path.realpath(found[1]), int(found[2], 16)) if found[1] else UNKNOWN)
            continue
        if part:
            sites.add(stack, "lost", *part)
        found = LSAN_PART.match(line)
        part, stack = found and (int(found[1]), int(found[2])), []


VALGRIND_KIND = {"Leak_DefinitelyLost": "lost", "Leak_IndirectlyLost": "lost", "Leak_PossiblyLost": "possibly",
                 "Leak_StillReachable": "reachable"}
READING = re.compile(r"Reading syms from (/.*)\n.*svma 0x([0-9a-f]+), avma 0x([0-9a-f]+)")


def read_valgrind(text, log, sites):
    """Its XML, and its log with -v -v, which has the address of each file."""
    biases = collections.defaultdict(list)
    for path, linked, actual in READING.findall(log):
        biases[path].append(int(actual, 16) - int(linked, 16))
    for error in xml.etree.ElementTree.fromstring(text).iter("error"):
        kind = VALGRIND_KIND.get(error.findtext("kind"))
        if kind is None:
            continue
        stack = []
        for frame in error.find("stack"):
            at, path = int(frame.findtext("ip"), 16), frame.findtext("obj", "?")
            bias = max((bias for bias in biases[path] if bias <= at), default=None)
            stack.append((path, 0) if bias is None else (os.path.realpath(path), at - bias))
        # The bytes include what is lost with it, which has errors of its own.
        own = re.search(r"\(([\d,]+) direct", error.findtext("xwhat/text"))
        size = int(own[1].replace(",", "")) if own else int(error.findtext("xwhat/leakedbytes"))
        sites.add(stack, kind, size, int(error.findtext("xwhat/leakedblocks")))


class Reports:
    """The reports that a tool left in a folder, summed up."""

    def __init__(self):
        self.sites, self.processes = Sites(), 0

    def kind(self, stack, kind):
        return tuple(self.sites[stack][kind]) if stack in self.sites and kind in self.sites[stack] else None

    def total(self, kind="lost"):
        rows = [figures[kind] for figures in self.sites.values() if kind in figures]
        return sum(row[0] for row in rows), sum(row[1] for row in rows)


def load(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


class Tool:
    """How one of the tools runs a command, and how its reports are read."""

    def __init__(self, prefix=(), env=None):
        self.prefix, self.env = list(prefix), env or {}

    def run(self, job, read):
        """Runs the job, in an empty folder by default; returns its reports."""
        reports = Reports()
        with tempfile.TemporaryDirectory() as base:
            work, said = job.get("folder", f"{base}/work"), f"{base}/said"
            os.makedirs(work, exist_ok=True)
            os.mkdir(said)
            env = {k: v for k, v in os.environ.items()
                   if not k.startswith(("LARDER_", "LD_", "HEAP", "LSAN_", "ASAN_", "PYTHON", "PERL", "RUBY"))}
            env.update(LC_ALL="C.UTF-8", PYTHONHASHSEED="0", PERL_HASH_SEED="0")
            env.update(job.get("env", {}))
            for step in job.get("before", ()):
                subprocess.run(step, cwd=work, env=env, check=True, shell=True, stdout=subprocess.DEVNULL)
            env.update((k, v.replace("SAID", said)) for k, v in self.env.items())
            prefix = [word.replace("SAID", said) for word in self.prefix]
            with subprocess.Popen(prefix + job["run"], cwd=work, env=env, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                try:
                    if "drive" in job:
                        drive(job["drive"], work, process)
                    process.wait(job.get("limit", 300))
                except BaseException:
                    process.kill()
                    raise
            reports.code = process.returncode
            read(said, reports)
        return reports


def drive(script, work, process):
    """Runs the client of a server, again while that does not listen yet."""
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if subprocess.run(script, cwd=work, shell=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          check=False).returncode == 0:
            return
        time.sleep(0.2)
    raise RuntimeError(f"the server does not answer: {script}")


def read_heaps(said, reports):
    for path in glob.glob(f"{said}/*.heap"):
        reports.processes += 1
        read_larder(load(path), reports.sites)


def read_logs(said, reports):
    for path in glob.glob(f"{said}/lsan.*"):
        reports.processes += 1
        read_lsan(load(path), reports.sites)


def read_xmls(said, reports):
    for path in glob.glob(f"{said}/*.xml"):
        text = load(path)
        if "</valgrindoutput>" not in text:
            continue  # executed another program, which has a report of its own, or was killed
        reports.processes += 1
        read_valgrind(text, load(path[:-3] + "log"), reports.sites)


def larder(library, mode, **variables):
    return Tool(env={"LD_PRELOAD": library, "HEAPCHECK": mode, "LARDER_LEAK_REPORTS": "SAID", **variables})


def valgrind():
    return Tool(["valgrind", "-v", "-v", "--leak-check=full", "--show-leak-kinds=all", "--trace-children=yes",
                 "--child-silent-after-fork=yes", "--show-below-main=yes", "--read-inline-info=no",
                 f"--num-callers={FRAMES_MAX + 8}", "--leak-resolution=high", "--default-suppressions=no",
                 "--run-libc-freeres=no", "--run-cxx-freeres=no",
                 "--xml=yes", "--xml-file=SAID/%p.xml", "--log-file=SAID/%p.log"])


# Of gcc 12 it calls null for a program's signal(); before it, these go on to the C library.
SIGNALS = """#include <dlfcn.h>
#include <signal.h>
static void* real(const char* name) { return dlsym(dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), name); }
int sigaction(int n, const struct sigaction* to, struct sigaction* from) {
  return ((int (*)(int, const struct sigaction*, struct sigaction*))real("sigaction"))(n, to, from);
}
sighandler_t signal(int n, sighandler_t to) { return ((sighandler_t (*)(int, sighandler_t))real("signal"))(n, to); }
"""


def build_signals(folder):
    library = os.path.join(folder, "libsignals.so")
    subprocess.run(["gcc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-O1", "-o", library, "-x", "c", "-"], input=SIGNALS,
                   text=True, check=True)
    return library


def lsan(libraries):
    return Tool(env={"LD_PRELOAD": libraries, "LSAN_OPTIONS":
                     f"symbolize=0:fast_unwind_on_malloc=0:malloc_context_size={FRAMES_MAX + 8}:log_path=SAID/lsan"
                     ":exitcode=0:print_suppressions=0"})


def find_lsan():
    said = subprocess.run(["gcc", "-print-file-name=liblsan.so"], capture_output=True, text=True, check=False).stdout
    return os.path.realpath(said.strip()) if os.path.isabs(said.strip()) else None


class Comparison:
    """The tools' results for one job."""

    def __init__(self, job, library, with_lsan):
        self.larder = larder(library, "normal").run(job, read_heaps)
        self.others = {}
        if shutil.which("valgrind"):
            self.others["valgrind"] = valgrind().run(job, read_xmls)
        if with_lsan:
            self.others["LSan"] = lsan(with_lsan).run(job, read_logs)
        self.asked = {}
        self.ask = {"strict": lambda: larder(library, "strict").run(job, read_heaps),
                    "no stacks": lambda: larder(library, "as-is", HEAP_CHECK_IGNORE_THREAD_LIVE="0").run(job, read_heaps),
                    "draconian": lambda: larder(library, "draconian").run(job, read_heaps)}

    def alike(self, name):
        """Sites that both call lost with the same figures; with others; only here; only there."""
        other = self.others[name]
        here = {stack for stack in self.larder.sites if self.larder.kind(stack, "lost")}
        there = {stack for stack in other.sites if other.kind(stack, "lost")}
        both = here & there
        same = {stack for stack in both if self.larder.kind(stack, "lost") == other.kind(stack, "lost")}
        return same, both - same, here - there, there - here

    def known(self, stack):
        """All results for a site."""
        said = {}
        if found := self.larder.kind(stack, "lost"):
            said["Larder"] = found
        if "valgrind" in self.others:
            for kind in ("lost", "possibly", "reachable"):
                if found := self.others["valgrind"].kind(stack, kind):
                    said["valgrind" if kind == "lost" else f"valgrind: {kind}"] = found
        if "LSan" in self.others and (found := self.others["LSan"].kind(stack, "lost")):
            said["LSan"] = found
        for mode, run in self.ask.items():
            if mode not in self.asked:
                self.asked[mode] = run()
            if found := self.asked[mode].kind(stack, "lost"):
                said[mode] = found
        return said


def pair(figures):
    return f"{figures[0]:,} in {figures[1]:,}"


def show_site(stack, known, frames):
    print("  " + "; ".join(f"{tool} {pair(figures)}" for tool, figures in known.items()))
    for path, address in stack[:frames]:
        print(f"      {path}+{address:#x}")


def show(name, comparison, options):
    """One row, and with --verbose each site that differs."""
    row = [name, f"{pair(comparison.larder.total())}"]
    for other, reports in comparison.others.items():
        same, differ, here, there = comparison.alike(other)
        row += [pair(reports.total()), f"{len(same)}", f"{len(differ)}", f"{len(here)}", f"{len(there)}"]
    print("| " + " | ".join(row) + " |", flush=True)
    if not options.verbose:
        return
    codes = {tool: run.code for tool, run in [("Larder", comparison.larder), *comparison.others.items()]}
    processes = {tool: run.processes for tool, run in [("Larder", comparison.larder), *comparison.others.items()]}
    print(f"  exit {codes}, processes {processes}")
    shown = set()
    for other in comparison.others:
        for group in comparison.alike(other)[1:]:
            for stack in sorted(group - shown):
                show_site(stack, comparison.known(stack), options.frames)
                shown.add(stack)


def only_here(comparison):
    """Sites that no other calls lost; valgrind's possibly lost are not known lost."""
    found = [comparison.alike(other)[2] for other in comparison.others]
    return set.intersection(*found) if found else set()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="PROGRAM", help=f"of {', '.join(JOBS)}; all")
    parser.add_argument("--library", default=os.path.join(HERE, "../../out/lib/liblarder.so"))
    parser.add_argument("--verbose", action="store_true", help="each site that differs, with what is known of it")
    parser.add_argument("--frames", type=int, default=12, help="shown of a site [%(default)s]")
    ours, _, command = " ".join(map(shlex.quote, sys.argv[1:])).partition(" -- ")
    options = parser.parse_args(shlex.split(ours))
    jobs = {command: {"run": shlex.split(command), "folder": os.getcwd()}} if command else {k: JOBS[k] for k in options.names or JOBS}
    library, sanitizer = os.path.realpath(options.library), find_lsan()
    if not os.path.exists(library):
        sys.exit(f"{library} is missing: run 'make build'")
    if not shutil.which("valgrind"):
        print("valgrind is missing, and left out: run 'scripts/setup test'", file=sys.stderr)
    if sanitizer is None:
        print("gcc's liblsan.so is missing, and left out", file=sys.stderr)
    false = 0
    with tempfile.TemporaryDirectory() as folder:
        sanitizer = sanitizer and f"{build_signals(folder)}:{sanitizer}"
        head = ["program", "Larder: bytes in objects"]
        for other in ["valgrind"] * bool(shutil.which("valgrind")) + ["LSan"] * bool(sanitizer):
            head += [other, "sites alike", "other figures", "only Larder", f"only {other}"]
        print("| " + " | ".join(head) + " |\n|---" + "|---:" * (len(head) - 1) + "|")
        for name, job in jobs.items():
            if not shutil.which(job["run"][0]):
                print(f"| {name} is not installed |")
                continue
            comparison = Comparison(job, library, sanitizer)
            show(name, comparison, options)
            false += len(only_here(comparison))
    return 1 if false else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Checks each environment variable of tcmalloc that Larder reads against docs/tasks/move-from-tcmalloc.md.

Usage: variables.py WORKER. Mounts a small tmpfs and hugetlbfs where it may; what the machine does
not allow is said and not counted. Exit 1 when a test fails.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
import run_session  # pylint: disable=wrong-import-position

MIB = 1 << 20
WORKER = os.path.abspath(sys.argv[1])
failures = []


class Result:
    def __init__(self, done):
        self.code, self.err = done.returncode, done.stderr
        self.values = dict(line.rsplit("=", 1) for line in done.stdout.splitlines() if "=" in line)
        self.lines = self.err.splitlines()

    def count(self, part):
        """Blocks whose place has this in its name."""
        return sum(int(n) for name, n in self.values.items() if part in name)


def run(mode, **variables):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LARDER_", "TCMALLOC_"))}
    env.update(variables)
    return Result(subprocess.run([WORKER, mode], env=env, capture_output=True, text=True, errors="replace",
                                 timeout=run_session.HANG_S, check=False))


def check(condition, what, result):
    if not condition:
        failures.append(what)
        print(f"FAILED {what}: exit {result.code}, {result.values}, stderr {result.err!r}", file=sys.stderr)


def fine(result, what, lines=0):
    check(result.code == 0 and len(result.lines) == lines, f"{what}: ends well, {lines} lines on stderr", result)


def both(name, value, mode):
    for prefix in ("LARDER_", "TCMALLOC_"):
        yield prefix + name, run(mode, **{prefix + name: value})


def test_defaults():
    result = run("places")
    fine(result, "no variable")
    check(result.count("anonymous") == 300, "no variable: all is anonymous", result)


def test_skip():
    for name, result in both("SKIP_MMAP", "true", "places"):
        fine(result, name)
        check(result.count("[heap]") == 300, f"{name}: all comes from the break", result)
    result = run("places", LARDER_SKIP_MMAP="1", LARDER_SKIP_SBRK="1")
    fine(result, "both are skipped", 1)
    check(result.count("anonymous") == 300 and "leave nothing" in result.err, "both are skipped: mmap", result)
    for name, result in both("SKIP_SBRK", "false", "refused"):
        check(result.values.get("served") == "100", f"{name}: sbrk serves where mmap is refused", result)
    for value in ({}, {"LARDER_SKIP_SBRK": "1"}):
        result = run("refused", **value)
        check(int(result.values.get("served", 100)) < 20, f"{value}: sbrk does not serve", result)


def test_memfs(folder, what):
    for name, result in both("MEMFS_MALLOC_PATH", folder, "places"):
        fine(result, f"{name} on {what}")
        check(result.count(" shared") == 300 and result.count("anonymous") == 0, f"{name} on {what}: all is there", result)
    check(os.listdir(folder) == [], f"{what}: no file is left", result)
    result = run("places", TCMALLOC_MEMFS_MALLOC_PATH=folder, TCMALLOC_MEMFS_MAP_PRIVATE="1")
    fine(result, f"private on {what}")
    check(result.count(folder) == 300 and result.count(" shared") == 0, f"private on {what}: all is there", result)
    result = run("places", TCMALLOC_MEMFS_MALLOC_PATH=folder, TCMALLOC_MEMFS_LIMIT_MB="20")
    fine(result, f"limit on {what}", 1)
    check(result.count(folder) > 0 and result.count("anonymous") > 0 and "limit" in result.err,
          f"limit on {what}: the rest comes from mmap", result)
    result = run("places", LARDER_MEMFS_MALLOC_PATH=folder, LARDER_MEMFS_LIMIT_MB="20",
                 LARDER_MEMFS_ABORT_ON_FAIL="1")
    check(result.code == -6 and "ABORT_ON_FAIL" in result.err, f"abort on {what}", result)
    result = run("limit", TCMALLOC_MEMFS_MALLOC_PATH=folder, TCMALLOC_MEMFS_LIMIT_MB="20",
                 TCMALLOC_MEMFS_DISABLE_FALLBACK="1")
    check(result.code == 0 and result.values.get("granted") == "0", f"no fallback on {what}", result)


def test_memfs_prefix():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        result = run("places", LARDER_MEMFS_MALLOC_PATH=folder + "/heap")
        fine(result, "a path that files begin with")
        check(result.count(folder + "/heap.") == 300, "a path that files begin with: all is there", result)
        test_memfs(folder, "tmpfs")


@contextlib.contextmanager
def mounted(kind, options):
    folder = tempfile.mkdtemp()
    mount = subprocess.run(["mount", "-t", kind, "-o", options, "none", folder], capture_output=True, check=False)
    try:
        yield folder if mount.returncode == 0 else None
    finally:
        if mount.returncode == 0:
            subprocess.run(["umount", folder], check=True)
        os.rmdir(folder)


def test_full_memfs():
    with mounted("tmpfs", "size=8m") as folder:
        if folder is None:
            print("not tested: a full tmpfs (mounting is not allowed)")
            return
        result = run("again", LARDER_MEMFS_MALLOC_PATH=folder)
        fine(result, "a full tmpfs", 1)
        check(10 < int(result.values["filled"]) < 130 and "no more memory" in result.err, "a full tmpfs: is reported", result)
        check("anonymous" in result.values["again"], "a full tmpfs: is not asked again", result)
        result = run("again", LARDER_MEMFS_MALLOC_PATH=folder, LARDER_MEMFS_IGNORE_MMAP_FAIL="1")
        fine(result, "a full tmpfs, failures ignored", 1)
        check(folder in result.values["again"], "a full tmpfs, failures ignored: is asked again", result)
        test_memfs_survives_fullness(folder)


def test_memfs_survives_fullness(folder):
    result = run("places", TCMALLOC_MEMFS_MALLOC_PATH=folder)
    fine(result, "more than a tmpfs has", 1)
    check(result.count("anonymous") > 0 and result.count("anonymous") + result.count(folder) == 300,
          "more than a tmpfs has: the rest comes from mmap", result)


def test_hugetlbfs():
    setting = "/proc/sys/vm/nr_hugepages"
    try:
        with open(setting, encoding="ascii") as file:
            before = file.read()
        with open(setting, "w", encoding="ascii") as file:
            file.write("300")
    except OSError as error:
        print(f"not tested: hugetlbfs ({error})")
        return
    try:
        with open(setting, encoding="ascii") as file:
            got = int(file.read())
        with mounted("hugetlbfs", "pagesize=2M") as folder:
            if folder is None or got < 300:
                print(f"not tested: hugetlbfs ({got} pages, mounted: {folder is not None})")
                return
            test_memfs(folder, "hugetlbfs")
    finally:
        with open(setting, "w", encoding="ascii") as file:
            file.write(before)


def test_memfs_refusals():
    for path, why in (("/no/such/place", "No such file"), ("/proc/self", ""), ("x" * 5000, "too long")):
        for name, result in both("MEMFS_MALLOC_PATH", path, "places"):
            fine(result, f"{name}={path[:20]}", 1)
            check(result.count("anonymous") == 300 and why in result.err, f"{name}={path[:20]}: mmap", result)
    with tempfile.TemporaryDirectory(dir=os.path.dirname(WORKER)) as folder:
        result = run("places", LARDER_MEMFS_MALLOC_PATH=folder)
        fine(result, "nothing is mounted", 1)
        check("neither tmpfs nor hugetlbfs" in result.err and os.listdir(folder) == [], "nothing is mounted: reported", result)


def test_device():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "device")
        content = os.urandom(MIB) * 200
        with open(path, "wb") as file:
            file.write(content)
        for prefix in ("LARDER_", "TCMALLOC_"):
            result = run("places", **{prefix + "DEVMEM_START": "4", prefix + "DEVMEM_LIMIT": "40",
                                      prefix + "DEVMEM_DEVICE": path})
            fine(result, f"{prefix}DEVMEM", 1)  # the limit is reached, and reported
            check(result.count(path) > 0 and result.count(path) + result.count("anonymous") == 300,
                  f"{prefix}DEVMEM: it serves, and then mmap", result)
        with open(path, "rb") as file:
            now = file.read()
        check(now[:4 * MIB] == content[:4 * MIB] and now[40 * MIB:] == content[40 * MIB:],
              "device: nothing outside of the limits is written", result)
        check(now[4 * MIB:40 * MIB] != content[4 * MIB:40 * MIB], "device: what lies within is used", result)
        # A limit beyond the end of a file is the end of the file.
        result = run("places", LARDER_DEVMEM_START="4", LARDER_DEVMEM_LIMIT="9999", LARDER_DEVMEM_DEVICE=path)
        check(result.code == 0 and result.count(path) > 0, "device: shorter than the limit", result)
        for start, limit in (("300", "400"), ("40", "4"), ("4", "5")):
            result = run("places", LARDER_DEVMEM_START=start, LARDER_DEVMEM_LIMIT=limit, LARDER_DEVMEM_DEVICE=path)
            fine(result, f"device from {start} to {limit}", 1)
            check(result.count("anonymous") == 300, f"device from {start} to {limit}: mmap", result)
    result = run("places", TCMALLOC_DEVMEM_START="4", TCMALLOC_DEVMEM_DEVICE="/no/such/device")
    fine(result, "no device", 1)
    if not os.path.exists("/dev/mem"):
        result = run("places", TCMALLOC_DEVMEM_START="4")
        fine(result, "no /dev/mem", 1)
        check("/dev/mem" in result.err, "no /dev/mem: is reported", result)


def test_release_rate():
    stays = {}
    for rate in ("0", "1", "10"):
        name = ("LARDER_" if rate == "10" else "TCMALLOC_") + "RELEASE_RATE"
        result = run("decay", LARDER_EARLY_PURGE="0", **{name: rate})
        fine(result, f"{name}={rate}")
        stays[rate] = int(result.values["stays_ms"])
    check(stays["0"] >= 3000, "a rate of 0 keeps all", result)
    check(900 < stays["1"] < 3000, f"a rate of 1 keeps it for the decay time: {stays}", result)
    check(stays["10"] < stays["1"] / 2, f"a rate of 10 is faster: {stays}", result)
    result = run("decay", LARDER_EARLY_PURGE="0", TCMALLOC_AGGRESSIVE_DECOMMIT="1")
    check(int(result.values["stays_ms"]) < 600, "aggressive", result)


def test_cache():
    free_choice = int(run("cache").values["kept"])
    for name, result in both("MAX_TOTAL_THREAD_CACHE_BYTES", str(512 * 1024), "cache"):
        fine(result, name)
        check(int(result.values["kept"]) < MIB < 3 * MIB < free_choice, f"{name}: less than {free_choice}", result)


def test_large():
    fine(run("large"), "no report unless it is asked for")
    for name, result in both("LARGE_ALLOC_REPORT_THRESHOLD", "1900000", "large"):
        fine(result, name, 1)  # the next is less than an eighth larger
        pattern = r"^larder: large alloc 2000000 bytes == 0x[0-9a-f]+ @( 0x[0-9a-f]+){2,}$"
        check(re.match(pattern, result.err.rstrip("\n")), f"{name}: block and stack", result)
    result = run("large", LARDER_LARGE_ALLOC_REPORT_THRESHOLD="2000000")
    fine(result, "a threshold is not reached by what is equal")


def test_limit():
    for name, result in both("HEAP_LIMIT_MB", "100", "limit"):
        fine(result, name)
        check(result.values["granted"] == "0", f"{name}: 200 MiB are refused", result)
    result = run("limit", LARDER_HEAP_LIMIT_MB="300", TCMALLOC_HEAP_LIMIT_MB="100")
    check(result.values["granted"] == "1", "LARDER_ goes before TCMALLOC_", result)


def test_limit_as_a_share():
    with open("/proc/meminfo", encoding="ascii") as file:
        machine = int(re.search(r"MemTotal: *(\d+) kB", file.read())[1]) << 10
    all_of_it = int(run("limits", LARDER_SOFT_LIMIT_MIB="100%").values["soft"])
    check(MIB <= all_of_it <= machine, "a soft limit of all there is", run("limits"))
    for name, which in (("LARDER_SOFT_LIMIT_MIB", "soft"), ("LARDER_HEAP_LIMIT_MB", "hard"), ("TCMALLOC_HEAP_LIMIT_MB", "hard")):
        result = run("limits", **{name: "12.5%"})
        fine(result, f"{name}=12.5%")
        check(abs(int(result.values[which]) - all_of_it / 8) <= MIB, f"{name}=12.5%: an eighth of {all_of_it}", result)
        result = run("limits", **{name: "0.0000001%"})
        check(int(result.values[which]) == MIB, f"{name}: no share is no limit at all", result)
        for value in ("0%", "101%", "%", "-5%", "1e1%", "80%%", "80 %", "9" * 30 + "%"):
            result = run("limits", **{name: value})
            fine(result, f"{name}={value}", 1)
            check("MiB, or N%" in result.err and result.values[which] == "0", f"{name}={value}: is reported", result)
    check(run("limit", LARDER_HEAP_LIMIT_MB="0.001%").values["granted"] == "0", "a share is kept to", result)


def profile_with(**variables):
    """The output, and the profile's first lines."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "profile")
        result = run("places", LARDER_PROFILE=path, **variables)
        with open(path, encoding="utf-8") as file:
            return result, file.read().split("MAPPED_LIBRARIES")[0]


def test_sampling():
    for name, mean in (("TCMALLOC_SAMPLE_PARAMETER", 50), ("LARDER_SAMPLE_PARAMETER", 100), ("LARDER_PROFILE_BYTES", 1),
                       ("TCMALLOC_SAMPLE_PARAMETER", 1 << 36), ("TCMALLOC_SAMPLE_PARAMETER", 0)):
        result, profile = profile_with(**{name: str(mean)})
        fine(result, f"{name}={mean}")
        check(f"; mean {mean};" in profile, f"{name}={mean}: the mean", result)
        # Allocated, not in use at the end: on a busy machine the last block may be one of those left out. With the
        # largest mean one run in two hundred has a sample.
        samples = int(re.match(r"heap profile: \d+: \d+ \[(\d+):", profile)[1])
        check(mean == 1 << 36 or (samples > 0) == (mean > 0), f"{name}={mean}: {samples} samples", result)
    for name in ("TCMALLOC_SAMPLE_PARAMETER", "LARDER_PROFILE_BYTES"):
        for value in ("banana", "-1", "1e3", "9" * 30, "\x1b[31m", "0x10", "", str((1 << 36) + 1)):
            result, profile = profile_with(**{name: value})
            fine(result, f"{name}={value!r}", 1)
            check(name in result.err and "\x1b" not in result.err and "; mean 524288;" in profile,
                  f"{name}={value!r}: is reported, and the default stays", result)


def test_absurd():
    """Numbers beyond the valid range of each."""
    for name, values in (("RELEASE_RATE", ("1000.1", "99999999999", ".", "1..5", "nan", "inf")),
                         ("MAX_TOTAL_THREAD_CACHE_BYTES", ("0", "1", str((1 << 40) + 1))),
                         ("LARGE_ALLOC_REPORT_THRESHOLD", ("9" * 19,)), ("DEVMEM_START", (str((1 << 40) + 1),)),
                         ("DEVMEM_LIMIT", (str((1 << 40) + 1),)), ("MEMFS_LIMIT_MB", (str((1 << 40) + 1),)),
                         ("HEAP_LIMIT_MB", ("9" * 18,)), ("SKIP_MMAP", ("2", "on"))):
        for value in values:
            for prefixed, result in both(name, value, "limit"):
                fine(result, f"{prefixed}={value}", 1)
                check("default" in result.err and result.values["granted"] == "1", f"{prefixed}={value}: is reported", result)
    for rate in ("0.0000001", "1000", "0000000000.5"):
        fine(run("limit", TCMALLOC_RELEASE_RATE=rate), f"a rate of {rate}")


NUMBERS = """RELEASE_RATE MAX_TOTAL_THREAD_CACHE_BYTES HEAP_LIMIT_MB LARGE_ALLOC_REPORT_THRESHOLD DEVMEM_START
DEVMEM_LIMIT MEMFS_LIMIT_MB""".split()
SWITCHES = """AGGRESSIVE_DECOMMIT SKIP_MMAP SKIP_SBRK MEMFS_ABORT_ON_FAIL MEMFS_IGNORE_MMAP_FAIL MEMFS_MAP_PRIVATE
MEMFS_DISABLE_FALLBACK""".split()


def test_garbage():
    for name in NUMBERS + SWITCHES:
        for value in ("banana", "-1", "1e3", "9" * 30, "\x1b[31m", "0x10", " 1"):
            for prefixed, result in both(name, value, "limit"):
                fine(result, f"{prefixed}={value!r}", 1)
                check(prefixed in result.err and "\x1b" not in result.err and "default" in result.err,
                      f"{prefixed}={value!r}: is reported", result)
    for name in SWITCHES:
        fine(run("limit", **{"TCMALLOC_" + name: ""}), f"TCMALLOC_{name} without a value is on")


def test_secure():
    """A program that runs with another user's rights ignores the environment."""
    if os.geteuid() != 0:
        print("not tested: setuid (needs root)")
        return
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        copy = os.path.join(folder, "worker")
        shutil.copy(WORKER, copy)
        os.chown(copy, 65534, 65534)
        os.chmod(copy, 0o4755)
        env = dict(os.environ, TCMALLOC_HEAP_LIMIT_MB="100", LARDER_SKIP_MMAP="banana",
                   LARDER_MEMFS_MALLOC_PATH="/no/such/place")
        result = Result(subprocess.run([copy, "limit"], env=env, capture_output=True, text=True, check=False))
        fine(result, "setuid")
        check(result.values.get("granted") == "1", "setuid: no limit", result)


def main():
    for test in (test_defaults, test_skip, test_memfs_prefix, test_full_memfs, test_hugetlbfs, test_memfs_refusals,
                 test_device, test_release_rate, test_cache, test_large, test_limit,
                 test_limit_as_a_share, test_sampling, test_absurd, test_garbage, test_secure):
        test()
    print("variables: " + (f"{len(failures)} failed" if failures else "each does what it should"))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Checks which symbols a library or program defines, with nm and readelf from binutils.

prefixed FILE.a   every global symbol starts with larder_, or is hidden and of this project
program FILE      malloc, free and the rest are defined in the program itself
minimal FILE.so   as shared, without gperftools' profiler and leak checker
shared FILE.so    the whole family is exported, and nothing but the family, dlopen and larder_ names
"""

import re
import subprocess
import sys

FAMILY = """malloc calloc realloc reallocarray free free_sized free_aligned_sized aligned_alloc
posix_memalign memalign valloc pvalloc malloc_usable_size mallopt mallinfo mallinfo2 malloc_info
malloc_stats malloc_trim""".split()
OPERATORS = "_Znwm _Znam _ZdlPv _ZdaPv _ZdlPvm _ZdaPvm _ZnwmSt11align_val_t _ZdlPvSt11align_val_t".split()
# The mangled operators new and delete, libc's own names for its malloc, dlopen, and gperftools' interface.
EXPORTABLE = re.compile(r"^(larder_\w+|_Z(nw|na|dl|da)\w+|__libc_\w+|cfree|__posix_memalign|__malloc_\w+"
                        r"|dlopen|tc_\w+|nallocx|HeapProfiler(Start|Stop|Dump)|IsHeapProfilerRunning|GetHeapProfile|MallocExtension_\w+|_ZN1(5MallocExtension|2SysAllocator)\w+"
                        r"|_ZNK?1(5HeapLeakChecker|1HeapCleaner)\w+|_Z3\dHeapLeakChecker_\w+|__lsan_\w+"
                        r"|_ZT[VIS]1(5MallocExtension|2SysAllocator))$")


def run(*command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"check_symbols: {' '.join(command)}: {result.stderr.strip()}")
    return result.stdout


def symbols(path, dynamic=False, local=False):
    """Yields (name, visibility, binding) of each defined symbol, by default the non-local ones. A version is none."""
    table = run("readelf", "--wide", "--dyn-syms" if dynamic else "--syms", path)
    for line in table.splitlines():
        fields = line.split()
        if len(fields) < 8 or not fields[0].endswith(":") or not fields[0][:-1].isdigit():
            continue
        _, _, _, kind, binding, visibility, section, name = fields[:8]
        if (binding == "LOCAL" and not local) or section in ("UND", "ABS") or kind in ("FILE", "SECTION"):
            continue
        yield name.split("@")[0], visibility, binding


def check_prefixed(path):
    bad = []
    found = set()
    for name, visibility, _ in symbols(path):
        if name.startswith("larder_"):
            found.add(name)
        elif not (visibility in ("HIDDEN", "INTERNAL") and re.match(r"^_Z\w*6larder", name)):
            bad.append(f"{name} ({visibility.lower()})")
    missing = [name for name in FAMILY if "larder_" + name not in found]
    return [f"defines {name}" for name in bad] + [f"lacks larder_{name}" for name in missing]


def check_program(path):
    # The linker makes some of them local in a static PIE, where no other object can bind to them.
    defined = {name for name, _, _ in symbols(path, local=True)}
    return [f"does not define {name}" for name in FAMILY[:13] + OPERATORS if name not in defined]


def check_shared(path):
    exported = {name for name, _, _ in symbols(path, dynamic=True)}
    faults = [f"does not export {name}" for name in FAMILY + OPERATORS if name not in exported]
    faults += [
        f"exports {name}"
        for name in sorted(exported)
        if name not in FAMILY and not EXPORTABLE.match(name)
    ]
    needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "--dynamic", path))
    faults += [
        f"needs {name}" for name in needed if not re.match(r"^(libc\.|ld-linux|libc\.musl)", name)
    ]
    return faults


def check_minimal(path):
    exported = [name for name, _, _ in symbols(path, dynamic=True)]
    return check_shared(path) + [f"exports {name}" for name in exported
                                 if re.search(r"HeapProfiler|HeapLeakCheck|HeapCleaner|lsan", name)]


def main():
    checks = {"minimal": check_minimal, "prefixed": check_prefixed, "program": check_program, "shared": check_shared}
    if len(sys.argv) != 3 or sys.argv[1] not in checks:
        sys.exit(__doc__)
    faults = checks[sys.argv[1]](sys.argv[2])
    for fault in faults:
        print(f"FAILED check_symbols: {sys.argv[2]} {fault}", file=sys.stderr)
    if faults:
        sys.exit(1)
    print(f"check_symbols: {sys.argv[2]}: as it should be ({sys.argv[1]})")


if __name__ == "__main__":
    main()

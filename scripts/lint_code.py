"""The checks of scripts/lint that read code: the length of functions, where system calls are made,
where numbers stand, why atomics are relaxed, which tests run, and where they sleep.

Owns nothing and changes nothing. Each check gets the paths of all files of the tree, relative to the
current folder, and gives a list of "file:line: what is wrong; what to do".
"""

import ast
import re

# Rust has the same limit in clippy.toml.
MAX_FUNCTION_LINES = 70

# In clang-format's layout, a definition's last line ends with its brace, and the closing brace has the
# indentation of the definition.
C_NAMES = (".c", ".cc", ".cpp", ".h", ".hpp")
C_FUNCTION = re.compile(r"^(?P<margin>\s*)(?!\}|#|//|\*|if\b|for\b|while\b|switch\b|else\b|do\b|return\b|case\b)"
                        r"(?P<name>[^=;\"]*?[\w>~)\]=+\-*/!<|&^%]+\s*)\(")
HEAD_END = re.compile(r"([;{}])\s*(?://.*)?$|^\s*$")
SHELL_FUNCTION = re.compile(r"^(?P<margin>\s*)(?:function\s+)?(?P<name>[\w-]+)\s*\(\)\s*[{(]\s*$")

# Where the allocator may make system calls.
SYSTEM_CALLS = ("alloc/os/",)
SYSTEM_HEADER = re.compile(
    r"\s*#\s*include\s+[<\"](?:(?:alloc/)?(?:os/)?raw_call\.h|(?:asm/)?unistd\.h|fcntl\.h|poll\.h|sched\.h|syscall\.h"
    r"|linux/futex\.h|sys/(?:epoll|eventfd|ioctl|mman|poll|prctl|ptrace|random|resource|sendfile|socket|stat|statfs"
    r"|syscall|sysinfo|time|timerfd|uio|un|vfs|wait)\.h)[>\"]")
SYSTEM_CALL = re.compile(
    r"(?:(?<![\w.>:])|(?<![\w:])::)(?:syscall\d?|mmap(?:64)?|munmap|mremap|mprotect|madvise|mincore|brk|sbrk|_exit"
    r"|gettid|getpid|clone|ptrace|prctl|process_vm_readv)\s*\(|\bSYS_[a-z]\w*|\b_*asm_*\b.*\"\s*(?:syscall|svc\b)")

# Where the allocator's numbers stand: those that were chosen, and geometry.
NUMBERS = ("alloc/base/policy.h", "alloc/base/base.h", "alloc/base/size_class.h")
# Numbers that cannot be another: marks and places in a word; those of the machine, the kernel, libc or a format;
# mathematics; and the ranges of variables that a user may set.
NO_CHOICE = set("""
    kReached kVisited kIndirect kIgnored kDisabled kContended kDeferNoMore kNoHeap kNoLast kSbrkInPlaceOfMmap
    kCurrentBias kLinkTagShift kLinkTag kGenerationShift kMaxSystemPages kMaxAlign kHistogram
    kIsWrite kRegisters kRedZone kThreadBytes kPresent kSwapped kOfFile kPopulateRead kPopulateWrite kRestartNoHandler
    kVersion kLifetimes
    kStep kLn2 kQuantile
    kMaxInterval kMaxLeakOption""".split())
CONSTANTS = re.compile(r"\bconst(?:expr)?\s[^;(){}]*?\bk[A-Z]\w*\s*=[^;]*;")
CONSTANT = re.compile(r"\b(k[A-Z]\w*)\s*=\s*(.*?)\s*(?=,\s*k[A-Z]\w*\s*=|;)", re.DOTALL)
# Without the name of another constant, sizeof, or a text.
NUMBER = re.compile(r"(?=.*[1-9])(?:(?:0x)?\.?\d[\w.']*|u?int\w*_t|size_t|[-+*/<>(){}~&|\s])+", re.DOTALL)

RELAXED = re.compile(r"memory_order_relaxed|__ATOMIC_RELAXED")
# The variable of an atomic operation: x.load(, p->x[i].store(, __atomic_load_n(&p->x,
OPERATION = re.compile(r"(\w+)(?:\[[^\]]*\])*(?:\(\))?(?:\.|->)(?:load|store|exchange|fetch_\w+|compare_exchange_\w+)\("
                       r"|\b__atomic_\w+\(&?(?:\w+(?:\.|->))*(\w+)")
# Lines above a use or declaration where a comment may say why relaxed is enough.
REASON_LINES = 10
SAYS_RELAXED = re.compile(r"//.*\brelaxed\b", re.IGNORECASE)

# What in a test may sleep: the interval at which it looks for an event, and workloads that allocate at a pace, race
# for a time or record the call.
SLEEPERS = ("cli/tests/common/clock.c", "cli/tests/common/running.rs", "cli/tests/leaks.rs", "cli/tests/needless.rs",
            "cli/tests/top.rs", "record/tests/io.rs", "record/tests/names.rs", "record/tests/support/mod.rs",
            "tests/alloc/background_purge.cc", "tests/alloc/exit_race.cc",
            "tests/alloc/fork_storm.cc", "tests/alloc/huge_race.cc", "tests/alloc/profile_storm.cc",
            "tests/alloc/remote_patterns.cc", "tests/alloc/support.h", "tests/docs", "tests/leak/planted.cc", "tests/lint",
            "tests/programs/lib.sh", "tests/run")
SLEEP = re.compile(r"\b(?:u?sleep|sleep_ms|(?:clock_)?nanosleep|(?:thread::|time\.)sleep\w*)\s*\(|^\s*sleep\s+[\d.$\"]")


def texts(paths, wanted):
    """(path, text) of the files for which wanted(path, first line) holds."""
    for path in sorted(paths):
        with open(path, "rb") as file:
            text = file.read()
        if wanted(path, text.split(b"\n", 1)[0].decode(errors="replace")):
            yield path, text.decode(errors="replace")


def is_python(path, first):
    return path.endswith(".py") or (first.startswith("#!") and "python" in first)


def is_shell(path, first):
    return path.endswith(".sh") or re.match(r"#!.*(/|\s)(ba)?sh(\s|$)", first) is not None


def functions(paths):
    """No function of Python, C, C++ or shell is longer than MAX_FUNCTION_LINES."""
    found = []
    for path, text in texts(paths, is_python):
        found += [(path, node.lineno, node.name, node.end_lineno - node.lineno + 1)
                  for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    for path, text in texts(paths, lambda path, _: path.endswith(C_NAMES)):
        found += [(path, *function) for function in c_functions(text.split("\n"))]
    for path, text in texts(paths, is_shell):
        found += [(path, *function) for function in shell_functions(text.split("\n"))]
    return [f"{path}:{line}: {name} has {length} lines, at most {MAX_FUNCTION_LINES}; split it by concept"
            for path, line, name, length in found if length > MAX_FUNCTION_LINES]


def c_functions(lines):
    """(line, name, length) of each definition."""
    start = 0
    while start < len(lines):
        head, end = C_FUNCTION.match(lines[start]), start
        while lines[end].endswith("\\") and end + 1 < len(lines):  # a macro
            head, end = None, end + 1
        while head and end + 1 < len(lines) and not HEAD_END.search(lines[end]):
            end += 1
        if head and HEAD_END.search(lines[end])[1] == "{":
            yield start + 1, head["name"].split()[-1], lines_until(lines, end, head["margin"] + "}") + end - start
        start = end + 1


def shell_functions(lines):
    for number, line in enumerate(lines):
        head = SHELL_FUNCTION.match(line)
        if head is not None:
            yield number + 1, head["name"], lines_until(lines, number, head["margin"] + ("}" if "{" in line else ")"))


def lines_until(lines, start, end):
    """Number of lines from lines[start] to the first below it that begins with this."""
    below = next((number for number in range(start + 1, len(lines)) if lines[number].startswith(end)), start)
    return below - start + 1


def test_modules(paths):
    """The files beside a crate's tests/main.rs are modules of it: cargo does not find them by itself."""
    present, wrong = set(paths), []
    for path in sorted(paths):
        folder, _, name = path.rpartition("/")
        if not path.endswith(".rs") or name == "main.rs" or f"{folder}/main.rs" not in present or not folder.endswith("tests"):
            continue
        with open(f"{folder}/main.rs", encoding="utf-8") as file:
            if not re.search(rf"^mod {name[:-len('.rs')]};$", file.read(), re.MULTILINE):
                wrong.append(f"{path}:1: no test of it runs; add 'mod {name[:-len('.rs')]};' to {folder}/main.rs")
    return wrong


def test_sleeps(paths):
    """A test waits for an event, or passes time (docs/how/tests.md)."""
    wrong = []
    for path, text in texts(paths, lambda path, first: re.search(r"(?:^|/)tests/|_test\.\w+$", path)
                            and (path.endswith((".rs", *C_NAMES)) or is_python(path, first) or is_shell(path, first))):
        if path not in SLEEPERS:
            wrong += [f"{path}:{number}: a sleep: {line.strip()}; wait for an event, or pass time by the test's clock"
                      for number, line in enumerate(text.split("\n"), 1) if SLEEP.search(line)]
    return wrong


def system_calls(paths):
    """In the allocator, except its tests, only one folder makes system calls."""
    wrong = []
    for path, text in texts(paths, lambda path, _: path.startswith("alloc/") and path.endswith(C_NAMES)):
        if path.startswith(SYSTEM_CALLS) or re.search(r"_test\.\w+$", path):
            continue
        for number, line in enumerate(text.split("\n"), 1):
            code = re.sub(r"//.*", "", line)
            if SYSTEM_HEADER.match(code) or SYSTEM_CALL.search(code):
                wrong.append(f"{path}:{number}: a system call, or what is for them: {code.strip()};"
                             f" call os:: (os.h), or add to the files that are behind it")
    return wrong


def allocator_texts(paths):
    return texts(paths, lambda path, _: path.startswith("alloc/") and path.endswith(C_NAMES)
                 and not re.search(r"_test\.\w+$", path))


def constants(paths):
    """In the allocator, every number that was chosen stands in one table."""
    wrong = []
    for path, text in allocator_texts(paths):
        if path in NUMBERS:
            continue
        text = re.sub(r"//[^\n]*", "", text)
        for declaration in CONSTANTS.finditer(text):
            for constant in CONSTANT.finditer(declaration[0]):
                name, value = constant.groups()
                if name not in NO_CHOICE and NUMBER.fullmatch(value):
                    line = text.count("\n", 0, declaration.start() + constant.start()) + 1
                    wrong.append(f"{path}:{line}: {name} = {value} was chosen; move it to {NUMBERS[0]} with its unit, its "
                                 f"reason and its experiment, or list it in scripts/lint_code.py (NO_CHOICE)")
    return wrong


def relaxed_atomics(paths):
    """In the allocator, a comment at each relaxed atomic, or where it is declared, says why that is enough.

    The comment at a file's head speaks for all of the file's."""
    uses, explained = [], set()
    for path, text in allocator_texts(paths):
        lines = text.split("\n")
        head = next(number for number, line in enumerate(lines) if not line.startswith("//"))
        if SAYS_RELAXED.search("\n".join(lines[:head])):
            continue
        for number, line in enumerate(lines):
            if any(SAYS_RELAXED.search(above) for above in lines[max(0, number - REASON_LINES):number + 1]):
                explained.update(re.findall(r"\w+", line.split("//")[0]))
            elif RELAXED.search(line):
                operations = OPERATION.findall("\n".join(lines[max(0, number - 2):number + 1]))
                uses.append((path, number + 1, "".join(operations[-1]) if operations else "it"))
    return [f"{path}:{line}: relaxed; say in a comment here, or where {name} is declared, why that is enough"
            for path, line, name in uses if name not in explained]

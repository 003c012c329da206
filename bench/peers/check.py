"""Checks that a library is an allocator that a preload makes a program use.

It has to export the names, be in the maps of a running program, have the program's calls bound to it by
the loader, and serve two threads that free each other's blocks (churn.c).
"""

import os
import shlex
import subprocess
import tempfile
import threading

import workshop

EXPORTED = ("malloc", "calloc", "realloc", "free", "posix_memalign", "malloc_usable_size")
SECONDS = 120


def build_churn(folder):
    """Compiles the program; returns its path."""
    program = os.path.join(folder, "churn")
    done = subprocess.run([*shlex.split(workshop.cc()), "-O1", "-std=gnu17", "-Wall", "-fno-builtin", "-pthread",
                           os.path.join(workshop.HERE, "churn.c"), "-o", program, "-ldl"],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    if done.returncode != 0:
        raise workshop.Failure(f"churn.c cannot be compiled: {done.stdout.strip()}")
    return program


def check(library, churn, environment, must_be_true):
    """Raises Failure with the reason why `library` is not a peer."""
    library = os.path.realpath(library)
    check_exports(library)
    with tempfile.TemporaryDirectory() as folder:
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("LD_", "MALLOC_"))}
        variables.update(environment, LD_PRELOAD=library)
        maps = run_churn([churn, *must_be_true], variables)
        if not any(line.endswith(library) for line in maps.splitlines()):
            raise workshop.Failure(f"{library} is not in the maps of a program that preloads it")
        # All bindings at the start, by one thread: lines of two threads could mix.
        variables.update(LD_BIND_NOW="1", LD_DEBUG="bindings", LD_DEBUG_OUTPUT=os.path.join(folder, "bindings"))
        run_churn([churn, *must_be_true], variables)
        check_bindings(library, churn, folder)


def check_exports(library):
    if not os.path.isfile(library):
        raise workshop.Failure(f"{library} is not a file")
    listed = workshop.output(["nm", "-D", "--defined-only", library])
    exported = {line.split()[-1].split("@")[0] for line in listed.splitlines() if line.strip()}
    missing = [name for name in EXPORTED if name not in exported]
    if missing:
        raise workshop.Failure(f"{library} exports no {', '.join(missing)}: no allocator that a preload could use")


def run_churn(command, variables):
    """Runs the program to its end; returns its maps, read while it waits."""
    process = subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    alarm = threading.Timer(SECONDS, process.kill)
    alarm.start()
    try:
        maps = ""
        if process.stdout.readline() == "ok\n":
            with open(f"/proc/{process.pid}/maps", encoding="utf-8") as file:
                maps = file.read()
        _, errors = process.communicate()
    finally:
        alarm.cancel()
        process.kill()
        process.wait()
    if process.returncode != 0:
        last = (errors.strip().splitlines() or ["no message"])[-1]
        raise workshop.Failure(f"two threads that free each other's blocks: exit {process.returncode}, {last}")
    return maps


def check_bindings(library, churn, folder):
    bound = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
            for line in file:
                # binding file CHURN [0] to LIBRARY [0]: normal symbol `malloc' [VERSION]
                before, _, symbol = line.partition(": normal symbol `")
                user, _, provider = before.partition(" to ")
                if user.split("binding file ")[-1].startswith(churn + " "):
                    bound[symbol.split("'")[0]] = provider.rsplit(" [", 1)[0]
    for symbol in EXPORTED:
        provider = bound.get(symbol)
        if provider is None or os.path.realpath(provider) != library:
            raise workshop.Failure(f"the loader binds a program's {symbol} to {provider}, not to {library}")

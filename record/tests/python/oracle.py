"""At each allocation of 77,778 bytes notes the interpreter's own stack; at its end prints all."""

import contextlib
import functools
import gc
import os
import sys
import threading
import weakref

noted = []


def here():
    block, line = bytes(77745), sys._getframe().f_lineno
    stack = [f"here@oracle.py:{line}"]
    frame = sys._getframe().f_back
    while frame:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        file = code.co_filename.rsplit("/", 1)[-1]
        stack.append(f"{name}@{file}:{frame.f_lineno}")
        frame = frame.f_back
    noted.append(" ".join(stack))
    return block


def show():
    text = "".join(line + "\n" for line in noted).encode("utf-8", "surrogateescape")
    os.write(1, text)


def deep(count):
    return deep(count - 1) if count else here()


def deep_through_c(count):
    if not count:
        return here()
    return max([count], key=lambda value: bool(deep_through_c(count - 1)))


def generator():
    yield 1
    yield here()
    yield from inner_generator()


def inner_generator():
    try:
        yield here()
    finally:
        here()


class Größe:
    here()
    bytes_ = here()

    def __init__(self):
        here()

    def __getattr__(self, name):
        return here()

    def __del__(self):
        here()

    @property
    def länge(self):
        return (
            here(),
            len([here() for _ in range(2)]),
        )

    @staticmethod
    def 名前():
        class Inner:
            def __enter__(self):
                return here()

            def __exit__(self, *exception):
                here()

        with Inner():
            here()


@contextlib.contextmanager
def context():
    here()
    yield
    here()


def raises():
    try:
        try:
            raise ValueError
        except ValueError:
            here()
            raise KeyError from None
        finally:
            here()
    except KeyError:
        here()


class Awaited:
    def __await__(self):
        here()
        yield
        here()


async def coroutine():
    here()
    await Awaited()
    async for _ in async_generator():
        here()


async def async_generator():
    yield here()
    yield here()


def run(awaited):
    for _ in awaited.__await__() if hasattr(awaited, "__await__") else ():
        here()


def same_names_elsewhere():
    """Code objects that are freed, so that the next ones may take their place."""
    for index in range(20):
        source = "\n" * index + "def f():\n  return here()\nf()"
        exec(source, {"here": here})
        eval("\n" * index + "here()")
        name = "g" * (index % 3 + 1)
        exec(f"def {name}():\n  return here()\n{name}()", {"here": here})


def traced(frame, event, argument):
    if event == "line" and frame.f_code.co_name == "watched":
        here()
    return traced


def watched():
    value = 1
    return value


def tracing():
    sys.settrace(traced)
    watched()
    sys.settrace(None)


def thread(count):
    for depth in range(count):
        deep(depth)
        deep_through_c(depth)


def threads():
    started = [threading.Thread(target=thread, args=(count,)) for count in range(8)]
    for one in started:
        one.start()
    for one in started:
        one.join()


def cycles():
    one = Größe()
    one.itself = one
    del one
    gc.collect()
    kept = Größe.__new__(Größe)
    reference = weakref.ref(kept, lambda _: here())
    del kept
    return reference


def calls():
    here(), here()
    deep(7)
    deep_through_c(7)
    deep(700)
    deep_through_c(90)
    list(generator())
    one = next(generator())
    raises()
    size = Größe()
    size.länge, size.missing
    Größe.名前()
    del size
    with context():
        here()
    run(coroutine())
    same_names_elsewhere()
    tracing()
    cycles()
    functools.reduce(lambda a, b: here(), [1, 2, 3])
    functools.partial(deep, 3)()
    list(map(lambda value: here(), [1, 2]))
    sorted([3, 1, 2], key=lambda value: len(here()))
    (lambda *some, **named: here())(*[1, 2], **{"a": one})
    exec(compile("here()", "datei-\U0001f600.py", "exec"))
    exec(compile("here()", "wor\udcfft.py", "exec"))


def child():
    """A child of fork, and a program that it executes."""
    process = os.fork()
    if not process:
        noted.clear()
        deep(3)
        show()
        os.execv(sys.executable, [sys.executable, "-S", __file__, "executed"])
    os.waitpid(process, 0)


if __name__ == "__main__":
    if "executed" in sys.argv:
        deep(4)
    else:
        calls()
        threads()
        child()
    show()

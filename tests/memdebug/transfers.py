"""The transfers that curl is recorded at, one entry each: what to type, how it must end.

Together they pass through the transfer loop, failures before and after connecting, uploads,
redirects, cookies, threads (the name resolver) and allocations that are refused.
"""

import dataclasses
import hashlib
import typing

LARGE_BYTES = 64 << 20
SMALL_BYTES = 100_000

# curl's exit codes.
DONE, CANNOT_CONNECT, HTTP_ERROR, OUT_OF_MEMORY = 0, 7, 22, 27


@dataclasses.dataclass(frozen=True)
class Place:
    """What a transfer may use: the running server, a refused URL, folders and files."""

    server: object
    refused_url: str
    folder: object  # pathlib.Path, empty, for this transfer alone
    small: object
    large: object


@dataclasses.dataclass(frozen=True)
class Transfer:
    """`arguments` makes curl's command line, `check` says whether the transfer did its work.

    threads: curl allocates in two, so that its log's order need not be that of the calls.
    """

    name: str
    arguments: typing.Callable
    exit_code: int = DONE
    check: typing.Callable = lambda place: True
    environment: dict = dataclasses.field(default_factory=dict)
    threads: bool = False


def _got(name, source):
    return lambda place: _digest(place.folder / name) == _digest(getattr(place, source))


def _sent(name):
    return lambda place: place.server.uploads.get(name) == _digest(place.small)


def _digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _get_small(place):
    return ["-o", place.folder / "small", place.server.url("small.bin")]


TRANSFERS = (
    Transfer("one small file", _get_small, check=_got("small", "small")),
    Transfer(
        "two files at once",
        lambda place: [
            "--parallel",
            *_get_small(place),
            *("-o", place.folder / "large", place.server.url("large.bin")),
        ],
        check=lambda place: _got("small", "small")(place) and _got("large", "large")(place),
    ),
    Transfer(
        "a file that is not there",
        lambda place: ["--fail", "-o", place.folder / "none", place.server.url("none")],
        exit_code=HTTP_ERROR,
    ),
    Transfer(
        "connection refused",
        lambda place: ["-o", place.folder / "none", place.refused_url],
        exit_code=CANNOT_CONNECT,
    ),
    Transfer(
        "an upload",
        lambda place: ["-o", place.folder / "answer", "-T", place.small, place.server.url("up")],
        check=_sent("up"),
    ),
    Transfer(
        "a form with a file",
        lambda place: [
            *("-F", "name=value", "-F", f"file=@{place.small}", "-o", place.folder / "answer"),
            place.server.url("form"),
        ],
        check=lambda place: "form" in place.server.uploads,
    ),
    Transfer(
        "redirect, cookies, headers",
        lambda place: [
            *("-L", "-c", place.folder / "jar", "-b", "colour=green", "-A", "larder", "-H", "X: y"),
            *("-D", place.folder / "head", "-w", "%{json}", "-o", place.folder / "small"),
            place.server.url("moved/small.bin"),
        ],
        check=lambda place: _got("small", "small")(place) and (place.folder / "jar").exists(),
    ),
    Transfer(
        "a list of URLs",
        lambda place: [
            *("-o", place.folder / "#1-#2", place.server.url("{small,none}.bin?[1-20]")),
        ],
        check=lambda place: len(list(place.folder.glob("none-*"))) == 20,
    ),
    Transfer(
        "a name to resolve",
        lambda place: [
            *("-4", "-o", place.folder / "small"),
            place.server.url("small.bin", host="localhost"),
        ],
        check=_got("small", "small"),
        threads=True,
    ),
    Transfer(
        "the 60th allocation refused",
        _get_small,
        exit_code=OUT_OF_MEMORY,
        environment={"CURL_MEMLIMIT": "60"},
    ),
)

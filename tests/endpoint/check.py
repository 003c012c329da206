#!/usr/bin/env python3
"""The library's endpoint: what it serves, to whom, and what it refuses.

Usage: check.py LIBLARDER_SO WORKER. pprof and promtool read what it serves (PPROF and PROMTOOL name them). Exit 1 when
a test fails.

The library's thread takes one connection after the other and answers whoever has asked: once it answers somebody, it
has seen what others sent before (`seen`). Where its limits of time matter, the worker's clock is moved.
"""

import base64
import concurrent.futures
import contextlib
import fcntl
import glob
import os
import random
import re
import resource
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from run_session import HANG_S  # pylint: disable=wrong-import-position

LIBRARY, WORKER = (os.path.abspath(path) for path in sys.argv[1:3])
# Where scripts/setup puts what is no package.
TOOLS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), ".cache", "tools")
TOKEN = "0123456789abcdef-token"
failures = []


def check(condition, what, detail=""):
    if not condition:
        failures.append(what)
        print(f"FAILED {what}: {detail!r}", file=sys.stderr)


@contextlib.contextmanager
def program(mode="wait", without=None, **variables):
    """A worker on Larder that has begun, without the file of this number; it ends with its stdin."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LARDER_", "TCMALLOC_"))}
    env.update(variables, LD_PRELOAD=LIBRARY)
    process = subprocess.Popen([WORKER, mode], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, preexec_fn=without and (lambda: os.close(without)))
    process.stdout.readline()
    try:
        yield process
    finally:
        process.stdin.close()
        process.wait(HANG_S)


def step(process, what):
    """When the worker has done so."""
    for letter in what:
        process.stdin.write(letter.encode())
        process.stdin.flush()
        process.stdout.readline()


def seen(place):
    """When it has seen what was sent before."""
    return get(place, "/metrics")[0] == 200


def until_closed(client):
    """What comes until the other side closes it."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(65536):
            parts.append(part)
    return b"".join(parts)


def ended(process):
    process.stdin.close()
    process.wait(HANG_S)
    return process.stderr.read().decode(errors="replace")


def connection(place):
    if isinstance(place, str):
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(HANG_S)
        client.connect(place)
        return client
    return socket.create_connection(("127.0.0.1", place), HANG_S)


def exchange(place, request, half_closed=False):
    """The whole answer to these bytes."""
    with connection(place) as client:
        client.sendall(request)
        if half_closed:
            client.shutdown(socket.SHUT_WR)
        return until_closed(client)


def parted(answer):
    """Status and body, which is None unless it is whole."""
    head, _, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"^Content-Length: (\d+)\r?$", head, re.M)
    return int(head.split()[1]) if head else 0, body if length and int(length[1]) == len(body) else None


def get(place, path, header="", version="1.1", half_closed=False):
    return parted(exchange(place, f"GET {path} HTTP/{version}\r\nHost: h\r\n{header}\r\n".encode(), half_closed))


def post(path, text):
    return f"POST {path} HTTP/1.1\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_routes(folder):
    path = os.path.join(folder, "routes.%p")
    with program(LARDER_LISTEN="unix:" + path) as process:
        path = path.replace("%p", str(process.pid))
        mode = os.stat(path)
        check(stat.S_ISSOCK(mode.st_mode) and stat.S_IMODE(mode.st_mode) == 0o600, "a socket, the user's alone", mode)
        status, listing = get(path, "/")
        check(status == 200 and b"/metrics\n" in listing, "a list", listing)
        for route in listing.decode().split():
            for version in ("1.0", "1.1"):
                status, body = get(path, route, version=version)
                check(status == 200 and body, f"{route} by {version}", (status, body))
        status, heap = get(path, "/debug/pprof/heap")
        check(heap.startswith(b"heap profile: ") and b"MAPPED_LIBRARIES:" in heap and b"worker" in heap, "heap", heap[:200])
        in_use = int(heap.split()[3])
        check(30 << 20 < in_use < 60 << 20, "heap: 40 MiB are in use", in_use)
        check(get(path, "/pprof/cmdline") == (200, WORKER.encode() + b"\0wait\0"), "cmdline")
        status, growth = get(path, "/debug/pprof/growth")
        check(b"@ growthz" in growth.splitlines()[0], "growth", growth[:100])
        status, metrics = get(path, "/metrics")
        value = re.search(rb"^larder_in_use_bytes (\d+)$", metrics, re.M)
        check(value and 40 << 20 <= int(value[1]) < 50 << 20, "metrics: in use", value)
        for bad, want in (("/nothing", 404), ("/metrics/", 404), ("/metrics?seconds=3", 400),
                          ("/pprof/heap?seconds=0", 400), ("/pprof/heap?seconds=", 400), ("/pprof/heap?seconds=-1", 400),
                          ("/pprof/heap?seconds=1.5", 400), ("/pprof/heap?seconds=3601", 400),
                          ("/pprof/growth?seconds=99999999999999999999", 400)):
            check(get(path, bad)[0] == want, f"{bad}: {want}", get(path, bad))
        names = sorted(open(f"/proc/{process.pid}/task/{t}/comm", encoding="ascii").read().strip()
                       for t in os.listdir(f"/proc/{process.pid}/task"))
        check(names == ["endpoint_worker", "larder-endpoint"], "its thread has a name", names)
        files = [os.readlink(f"/proc/{process.pid}/fd/{f}") for f in os.listdir(f"/proc/{process.pid}/fd")]
        check(not any("socket" in f for f in files), "the program sees no socket", files)
        others = f"/proc/{process.pid}/task"
        thread = next(t for t in os.listdir(others) if t != str(process.pid))
        files = [os.readlink(f"{others}/{thread}/fd/{f}") for f in os.listdir(f"{others}/{thread}/fd")]
        check(len(files) == 1 and "socket" in files[0], "the thread has nothing but its socket", files)
        symbols(path, heap)
        tools(path)
        check(ended(process) == "", "nothing is said")
    check(not os.path.exists(path), "the socket goes with the program")


def named(path, text):
    status, body = parted(exchange(path, post("/pprof/symbol", text)))
    check(status == 200 and body is not None, f"names of {text[:40]}", (status, body))
    return dict(line.split("\t") for line in (body or b"").decode().splitlines())


def symbols(path, heap):
    check(get(path, "/pprof/symbol") == (200, b"num_symbols: 1\n"), "there are symbols")
    stack = [int(a, 16) for line in heap.decode().splitlines() if "] @ 0x" in line for a in line.split("@")[1].split()]
    names = named(path, "+".join(hex(a - 1) for a in stack))
    check("allocate_kept" in names.values() and "main" in names.values(), "names of a stack", names)
    check(all(int(a, 16) + 1 in stack for a in names), "names have the addresses that were asked for", names)
    some = next(a for a, name in names.items() if name == "allocate_kept")
    check(named(path, f"{some}+{some}+x++0x+0xg+0x1+0xffffffffffffffff+0x{'1' * 17}+{some[2:]}") == {some: "allocate_kept"},
          "what is no address is passed over")
    check(named(path, "") == {}, "no address, no name")
    check(parted(exchange(path, post("/pprof/symbol", "x" * (512 << 10))))[0] == 200, "a body as large as may be")
    for text, want in ((post("/pprof/symbol", "x" * ((512 << 10) + 1)), 413), (post("/pprof/heap", "0x1"), 405),
                       (post("/metrics", ""), 405), (post("/pprof/symbol", "0x1") + b"+", 400)):
        with contextlib.suppress(BrokenPipeError):
            check(parted(exchange(path, text))[0] == want, f"{text[:60]}: {want}")


def tool(name):
    found = os.environ.get(name.upper()) or shutil.which(name, path=f"{os.environ['PATH']}:{TOOLS}")
    if found is None:
        sys.exit(f"{name} is missing; install it by: scripts/setup test")
    return found


def tools(path):
    metrics = get(path, "/metrics")[1]
    done = subprocess.run([tool("promtool"), "check", "metrics"], input=metrics, capture_output=True, check=False)
    check(done.returncode == 0 and done.stderr + done.stdout == b"", "promtool is content", done)


def basic(password):
    return f"Authorization: Basic {base64.b64encode(f'any:{password}'.encode()).decode()}\r\n"


def sums(profile):
    """By the first line of a profile: objects, bytes in use, objects, bytes allocated."""
    return [int(n) for n in re.findall(rb"\d+", profile.splitlines()[0])]


def test_seconds(folder):
    path = os.path.join(folder, "seconds")
    def asked(route, seconds):
        client = connection(path)
        client.sendall(f"GET {route}?seconds={seconds} HTTP/1.1\r\n\r\n".encode())
        return client

    with program("steps", LARDER_LISTEN="unix:" + path, LARDER_PROFILE_BYTES="65536") as process:
        step(process, "s")
        waiting = [asked(route, 4) for route in ("/pprof/heap", "/pprof/growth", "/debug/pprof/allocs")]
        check(seen(path), "others are served meanwhile")
        step(process, "a")
        last = asked("/pprof/heap", 3600)
        check(seen(path) and get(path, "/pprof/heap?seconds=1")[0] == 503, "no more wait at once than may")
        last.close()
        seen(path)
        one = asked("/pprof/growth", 1)
        seen(path)
        step(process, "t")
        check(seen(path) and parted(until_closed(one))[0] == 200, "who goes leaves the place")
        step(process, "ttt")
        seen(path)
        answers = [parted(until_closed(client)) for client in waiting]
        for which, (status, body) in zip(("heap", "growth", "allocs"), answers):
            check(status == 200 and 5 << 20 < sums(body)[1] < 20 << 20 and 5 << 20 < sums(body)[3] < 20 << 20,
                  f"{which} over a time: 10 MiB", body[:200])
        names = named(path, "+".join(re.findall("0x[0-9a-f]+", answers[0][1].decode())))
        check("allocate_later" in names.values() and "allocate_kept" not in names.values(), "and nothing else", names)
        freed = [asked(route, 2) for route in ("/pprof/heap", "/pprof/growth")]
        seen(path)
        step(process, "ftt")
        seen(path)
        heap, growth = (parted(until_closed(client))[1] for client in freed)
        less = [int(n) for n in re.findall(rb"^-\d+: (-\d+) \[0: 0\]", heap, re.M)]
        check(sums(heap) == [0, 0, 0, 0] and -30 << 20 < sum(less) < -10 << 20, "heap over a time: 20 MiB less", heap[:200])
        check(sums(growth) == [0, 0, 0, 0], "growth over a time: none", growth[:200])


def test_half_closed(folder):
    """Who sends no more may read still, and keeps its place until another wants it."""
    path, port = os.path.join(folder, "half"), free_port()
    with program(LARDER_LISTEN="unix:" + path):
        for route in ("/metrics", "/pprof/heap?seconds=1", "/pprof/growth?seconds=1"):
            check(get(path, route, half_closed=True)[0] == 200, f"{route}, sending no more")
    with program(LARDER_LISTEN=f"127.0.0.1:{port}", LARDER_TOKEN=TOKEN) as process:
        request = f"GET /pprof/heap?seconds=3600&token={TOKEN} HTTP/1.1\r\n\r\n".encode()
        for _ in range(4):
            with connection(port) as client:
                client.sendall(request)
        staying = connection(port)
        staying.sendall(request)
        staying.shutdown(socket.SHUT_WR)
        get(port, f"/metrics?token={TOKEN}")
        before = cpu_ticks(process)
        status, body = get(port, f"/pprof/heap?seconds=2&token={TOKEN}", half_closed=True)
        check(status == 200 and body is not None, "four that have gone leave a place", status)
        check(cpu_ticks(process) - before < 50, "they cost no time", cpu_ticks(process) - before)
        staying.close()


def cpu_ticks(process):
    with open(f"/proc/{process.pid}/stat", encoding="ascii") as file:
        return sum(map(int, file.read().rpartition(")")[2].split()[11:13]))


def deaf(path, request):
    """A client that asks for more than the system keeps for it, and does not listen."""
    client = connection(path)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.sendall(request)
    return client


def test_refusals(folder):
    path = os.path.join(folder, "refusals")
    request = b"GET /pprof/heap HTTP/1.1\r\n\r\n"
    with program("sites", LARDER_LISTEN="unix:" + path, LARDER_PROFILE_BYTES="1") as process:
        step(process, "s")
        check(len(get(path, "/pprof/heap")[1]) > 3 << 20, "a large profile")
        clients = []
        while len(clients) < 15 and get(path, "/metrics")[0] == 200:
            clients.append(deaf(path, request))
        refused = get(path, "/pprof/heap")
        check(refused == (503, b"too much is being sent to others\n"), "503 when too much is being sent", refused)
        check(4 <= len(clients) < 15, "not too soon", len(clients))
        for client in clients:
            client.close()
        check(get(path, "/pprof/heap")[0] == 200, "200 when they have gone")
        with open(f"/proc/{process.pid}/statm", encoding="ascii") as file:
            mapped = int(file.read().split()[0]) * os.sysconf("SC_PAGESIZE")
        for more, route, want in ((1 << 20, "/pprof/heap", (500, b"there is no memory for the answer\n")),
                                  (1 << 20, "/metrics", None), (0, "/metrics", (500, b""))):
            resource.prlimit(process.pid, resource.RLIMIT_AS, (mapped + more, resource.RLIM_INFINITY))
            answer = get(path, route)
            check(answer == want if want else answer[0] == 200, f"{route} with {more} bytes left", answer)
        resource.prlimit(process.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        check(get(path, "/pprof/heap")[0] == 200, "200 when there is memory again")
        check(ended(process) == "" and process.returncode == 0, "and the program goes on", process.returncode)


def test_few_files(folder):
    """A bound on open files below the clients that may come, as a sandbox sets it."""
    path = os.path.join(folder, "few")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with program(LARDER_LISTEN="unix:" + path) as process:
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (8, hard))
        check(get(path, "/metrics")[0] == 200, "it serves with 8 files")
        with connection(path) as waiting:
            waiting.sendall(b"GET /pprof/heap?seconds=2 HTTP/1.1\r\n\r\n")
            seen(path)
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (1, hard))
            before = cpu_ticks(process)
            check(waiting.recv(100).startswith(b"HTTP/1.1 200 "), "who waits is answered, with one file")
            check(cpu_ticks(process) - before < 50, "at no cost of time", cpu_ticks(process) - before)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (hard, hard))
        check(get(path, "/metrics")[0] == 200, "it serves when there are files again")


def test_deaf_clients(folder):
    path = os.path.join(folder, "deaf")
    with program(without=2, LARDER_LISTEN="unix:" + path) as process:
        step(process, "s")
        heap = get(path, "/pprof/heap")[1].decode()
        begin = int(re.search(r"^([0-9a-f]+)-.* r-xp .*libc\.so", heap, re.M)[1], 16)
        addresses = "+".join(hex(begin + 16 * i) for i in range(34000))
        clients = [deaf(path, post("/pprof/symbol", addresses)) for _ in range(8)]
        check(all(get(path, "/metrics")[0] == 200 for _ in range(20)), "it serves beside clients that do not listen")
        thread = next(t for t in os.listdir(f"/proc/{process.pid}/task") if t != str(process.pid))
        files = [int(f) for f in os.listdir(f"/proc/{process.pid}/task/{thread}/fd")]
        check(len(files) == 9 and min(files) > 2, "no client is a standard file", files)
        one = clients.pop()
        parts = []
        while part := one.recv(65536):
            parts.append(part)
            time.sleep(0.01)
        status, body = parted(b"".join(parts))
        check(status == 200 and body is not None and len(body) > 250000, "a slow one gets all of it", (status, sum(map(len, parts))))
        step(process, "t" * 29)
        seen(path)
        check(len(os.listdir(f"/proc/{process.pid}/task/{thread}/fd")) == 8, "who does not listen is waited for")
        step(process, "t" * 2)
        seen(path)
        files = os.listdir(f"/proc/{process.pid}/task/{thread}/fd")
        check(len(files) == 1, "who does not listen is let go", files)
        for client in (*clients, one):
            client.close()


def test_pprof():
    pprof = tool("pprof")
    port = free_port()
    with program(LARDER_LISTEN=f"127.0.0.1:{port}", LARDER_TOKEN=TOKEN):
        for header, query, want in (("", "", 401), ("", "?token=" + TOKEN, 200), ("", "?token=" + TOKEN[:-1], 401),
                                    (f"Authorization: Bearer {TOKEN}\r\n", "", 200),
                                    (f"Authorization: Bearer {TOKEN}x\r\n", "", 401),
                                    ("Authorization: Bearer \r\n", "", 401), ("", "?token=", 401),
                                    (f"Authorization: Basic {TOKEN}\r\n", "", 401),
                                    (basic(TOKEN), "", 200), (basic(TOKEN + "x"), "", 401), (basic(""), "", 401)):
            for route in ("/metrics", "/", "/nothing"):
                status = get(port, route + query, header)[0]
                check(status == (404 if want == 200 and route == "/nothing" else want), f"{header}{route}{query}", status)
        for route, want in (("heap", "allocate_kept"), ("growth", "allocate_kept")):
            url = f"http://127.0.0.1:{port}/debug/pprof/{route}?token={TOKEN}"
            done = subprocess.run([pprof, "-top", url], capture_output=True, text=True, check=False,
                                  env=dict(os.environ, PPROF_TMPDIR=tempfile.gettempdir(), HOME="/tmp"))
            check(done.returncode == 0 and want in done.stdout, f"pprof reads {route}", (done.stdout, done.stderr))
        for route, want in (("heap", "allocate_kept"), ("growth", "allocate_kept"), ("heap?seconds=1", "Showing nodes")):
            url = f"http://any:{TOKEN}@127.0.0.1:{port}/pprof/{route}"
            done = subprocess.run([pprof, "-top", "-symbolize=remote", url], capture_output=True, text=True, check=False,
                                  env=dict(os.environ, PPROF_TMPDIR=tempfile.gettempdir(), HOME="/tmp"))
            check(done.returncode == 0 and want in done.stdout, f"pprof asks for the names of {route}",
                  (done.stdout, done.stderr))


def test_requests(folder):
    path = os.path.join(folder, "requests")
    noise = random.Random(1)
    with program(LARDER_LISTEN="unix:" + path) as process:
        for text, want in ((b"POST /metrics HTTP/1.1\r\n\r\n", 405), (b"GET /metrics\r\n\r\n", 400),
                           (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 3000 + b"\r\n", 431), (b"x" * 20000, 431),
                           (b"GET / HTTP/1.1\r\nContent-Length: 9\r\n\r\n123456789", 413),
                           (b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n", 400), (b"\0\xff\r\n\r\n", 400)):
            with contextlib.suppress(BrokenPipeError):
                answer = exchange(path, text)
                check(answer.startswith(b"HTTP/1.1 %d " % want), f"{text[:30]}: {want}", answer[:80])
        for _ in range(300):
            with contextlib.suppress(BrokenPipeError):
                exchange(path, noise.randbytes(noise.randrange(3000)) + b"\r\n\r\n")
        check(get(path, "/metrics")[0] == 200, "it serves after noise")
        # Slow ones: those that say nothing, and one that does not read.
        step(process, "s")
        idle = [connection(path) for _ in range(40)]
        deaf = connection(path)
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(b"GET /debug/pprof/heap HTTP/1.1\r\n\r\n")
        check(get(path, "/metrics")[0] == 200, "it serves beside slow clients")
        step(process, "ttt")
        check(seen(path), "it serves beside slow clients later")
        check(all(client.recv(1) == b"" for client in idle), "who says nothing is let go")
        half = connection(path)
        half.sendall(b"GET /metrics HT")
        check(seen(path), "it serves beside one who stops in the middle")
        step(process, "ttt")
        check(seen(path), "it serves beside one who stops in the middle later")
        check(half.recv(1) == b"", "who stops in the middle is let go")
        for client in (*idle, deaf, half):
            client.close()
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            done = list(pool.map(lambda _: get_again(path), range(1000)))
        check(all(done), "1,000 connections", done.count(False))
        check(process.poll() is None, "the program goes on")


def get_again(path):
    """More at once than it keeps: one that was let go asks again."""
    for _ in range(50):
        with contextlib.suppress(OSError):
            if get(path, "/debug/pprof/heap")[0] == 200:
                return True
    return False


def test_fork(folder):
    path = os.path.join(folder, "fork")
    with program("fork", LARDER_LISTEN="unix:" + path) as process:
        for _ in range(100):
            status, body = get(path, "/debug/pprof/heap")
            check(status == 200 and body is not None, "a profile while the program forks", (status, body))
        check(ended(process) == "" and process.returncode == 0, "forks while it serves", process.returncode)
    check(not os.path.exists(path), "children leave the socket to their parent")


def told(where, why, **more):
    with program(LARDER_LISTEN=where, **more) as process:
        text = ended(process)
        check(process.returncode == 0 and text.count("\n") == 1 and why in text and "\x1b" not in text,
              f"{where[:40]!r} is told and the program runs", text)


def test_places(folder):
    for where, why in (("banana", "unix:PATH"), ("0.0.0.0:8080", "unix:PATH"), ("localhost:8080", "unix:PATH"),
                       ("unix:", "no path"), ("unix:" + "x" * 108, "107"), ("unix:/no/such/place", "No such"),
                       ("\x1b[31m", "unix:PATH"), ("127.0.0.1:", "port"), ("127.0.0.1:0", "port"),
                       ("127.0.0.1:65536", "port"), ("127.0.0.1:99999999999", "port"), ("127.0.0.1:8x", "port")):
        told(where, why, LARDER_TOKEN=TOKEN)
    port = free_port()
    told(f"127.0.0.1:{port}", "LARDER_TOKEN")
    for token in ("", "short", "x" * 300, "has a space in its middle", "control\x01characters-in-it"):
        told(f"127.0.0.1:{port}", "LARDER_TOKEN", LARDER_TOKEN=token)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        told(f"127.0.0.1:{taken.getsockname()[1]}", "in use", LARDER_TOKEN=TOKEN)
    path = os.path.join(folder, "there")
    with open(path, "w", encoding="ascii") as file:
        file.write("mine")
    told("unix:" + path, "in use")
    with open(path, encoding="ascii") as file:
        check(file.read() == "mine", "a file stays")
    link = os.path.join(folder, "link")
    os.symlink(os.path.join(folder, "elsewhere"), link)
    told("unix:" + link, "in use")
    check(os.path.islink(link) and not os.path.exists(link), "a link is not followed")


def test_closed_file(folder):
    path = os.path.join(folder, "closed")
    with program(without=2, LARDER_LISTEN="unix:" + path):
        check(get(path, "/metrics")[0] == 200, "it serves a program that has no stderr")


def test_replaced_socket(folder):
    path = os.path.join(folder, "replaced")
    with program(LARDER_LISTEN="unix:" + path):
        os.unlink(path)
        with open(path, "w", encoding="ascii"):
            pass
    check(os.path.exists(path), "what has taken the socket's name stays")


def test_dead_socket(folder):
    path = os.path.join(folder, "dead")
    with program(LARDER_LISTEN="unix:" + path) as process:
        told("unix:" + path, "in use")
        check(get(path, "/metrics")[0] == 200, "the first goes on")
        process.kill()
    check(os.path.exists(path), "one that was killed leaves its socket")
    with program(LARDER_LISTEN="unix:" + path):
        check(get(path, "/metrics")[0] == 200, "the next one takes it over")


def is_open_in_a_child(folder):
    with contextlib.suppress(OSError):
        for children in glob.glob("/proc/self/task/*/children"):
            with open(children, encoding="ascii") as file:
                for child in file.read().split():
                    if any(os.readlink(link) == folder for link in glob.glob(f"/proc/{child}/task/*/fd/*")):
                        return True
    return False


def test_socket_in_the_making(folder):
    """What has its name but does not listen yet is not taken for dead."""
    path = os.path.join(folder, "making")
    held = os.open(folder, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with socket.socket(socket.AF_UNIX) as other, concurrent.futures.ThreadPoolExecutor(1) as pool:
        other.bind(path)
        start = pool.submit(told, "unix:" + path, "in use")
        while not is_open_in_a_child(folder):
            time.sleep(0.01)
        other.listen()
        os.close(held)
        start.result()
        with socket.socket(socket.AF_UNIX) as client:
            check(client.connect_ex(path) == 0, "a socket that is just being made stays")


def main():
    with tempfile.TemporaryDirectory() as folder:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            late = pool.submit(test_deaf_clients, folder)
            for test in (test_routes, test_seconds, test_half_closed, test_refusals, test_few_files, test_requests, test_fork, test_places, test_closed_file,
                         test_replaced_socket, test_dead_socket, test_socket_in_the_making):
                test(folder)
            late.result()
        test_pprof()
    print("endpoint: " + (f"{len(failures)} failed" if failures else "serves what it should, to whom it should"))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

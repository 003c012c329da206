"""A small HTTP/1.1 server on loopback, for transfers that a test or the demo records.

It serves named files, takes uploads, answers 404 for the rest, and lives in the process that
started it, so that no server can outlive its user. The kernel picks a free port. Each connection
has a thread of its own; `uploads` is written under a lock.
"""

import hashlib
import http.server
import os
import socket
import threading


class FileServer:
    """`with FileServer({name: path}) as server:` serves http://127.0.0.1:PORT/name."""

    def __init__(self, files):
        self.files = dict(files)
        self.uploads = {}  # name -> sha256 of the body received
        self.lock = threading.Lock()
        self._http = _Http(("127.0.0.1", 0), _Handler)
        self._http.owner = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    @property
    def port(self):
        return self._http.server_address[1]

    def url(self, name, host="127.0.0.1"):
        return f"http://{host}:{self.port}/{name}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._http.shutdown()
        self._http.server_close()


class _Http(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a client that never closes must not hold up the end

    def handle_error(self, request, client_address):
        """A client that goes away in mid-transfer shows in its own exit code."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self):
        name = self.path.lstrip("/")
        if name.startswith("moved/"):
            self._answer(302, b"", Location="/" + name.removeprefix("moved/"))
            return
        path = self.server.owner.files.get(name)
        if path is None:
            self._answer(404, b"There is no such file here.\n")
            return
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            self._head(200, size)
            if self.command == "GET":
                self._send_file(file, size)

    do_HEAD = do_GET

    def do_PUT(self):
        digest = hashlib.sha256()
        left = int(self.headers.get("Content-Length", 0))
        while left:
            piece = self.rfile.read(min(left, 1 << 16))
            if not piece:
                self.close_connection = True
                return
            left -= len(piece)
            digest.update(piece)
        owner = self.server.owner
        with owner.lock:
            owner.uploads[self.path.lstrip("/")] = digest.hexdigest()
        self._answer(201, b"Taken.\n")

    do_POST = do_PUT

    def _answer(self, status, body, **headers):
        self._head(status, len(body), **headers)
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status, size, **headers):
        self.send_response(status)
        self.send_header("Content-Length", str(size))
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Set-Cookie", "visit=1; Path=/; Max-Age=3600")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _send_file(self, file, size):
        if self.connection.sendfile(file, 0, size) != size:
            self.close_connection = True  # shorter than promised: the client must notice

    def log_message(self, *_):
        pass


def closed_port():
    """A socket that holds a loopback port on which nobody listens: connecting is refused."""
    holder = socket.socket()
    holder.bind(("127.0.0.1", 0))
    return holder

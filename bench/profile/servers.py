"""Servers on the loopback interface, started under a tool, loaded from outside, and stopped by their own means.

A server is measured by its processor time for so many requests, its tool's included, its load generator's not.
"""

import os
import re
import socket
import subprocess
import time

PAGE = "".join(f"line {i * 7919 % 1009} of a page that compresses well\n" for i in range(120)).encode()
NGINX = """daemon off;
master_process off;
pid nginx.pid;
error_log log;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  types {{ text/plain txt; }}
  gzip on;
  gzip_comp_level 1;
  gzip_types text/plain;
  server {{ listen 127.0.0.1:{port}; root {folder}; }}
}}
"""
# Longer than any tool needs to start a server.
PATIENCE_S = 120


def output(words):
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout


class Nginx:
    """Compressed texts for wrk, over 32 connections for three seconds, as if these were `REQUESTS` requests."""

    needs = ("/usr/sbin/nginx", "wrk", "curl")
    REQUESTS = 20000

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/page.txt"
        with open(os.path.join(folder, "page.txt"), "wb") as file:
            file.write(PAGE)
        configuration = os.path.join(folder, "nginx.conf")
        with open(configuration, "w", encoding="ascii") as file:
            file.write(NGINX.format(port=port, folder=folder))
        self.command = ["/usr/sbin/nginx", "-p", folder, "-e", "log", "-c", configuration]

    def answers(self):
        return output(["curl", "-sf", "--compressed", self.url]) == PAGE

    def load(self):
        """What the processor time is multiplied with, and whether every answer was right."""
        header = "Accept-Encoding: gzip"
        printed = output(["wrk", "-t", "1", "-c", "32", "-d", "3s", "-H", header, self.url]).decode()
        served = re.search(r"(\d+) requests in", printed)
        failed = served is None or "Non-2xx" in printed or "Socket errors" in printed
        return (0, False) if failed else (self.REQUESTS / int(served[1]), self.answers())

    def stop(self):
        output(self.command + ["-s", "quit"])


class Redis:
    """Strings, lists and sorted sets for redis-benchmark."""

    needs = ("redis-server", "redis-benchmark", "redis-cli")

    def __init__(self, folder):
        self.socket = os.path.join(folder, "socket")
        self.command = ["redis-server", "--port", "0", "--unixsocket", self.socket, "--save", "", "--appendonly", "no",
                        "--dir", folder]

    def client(self, *words):
        return output(["redis-cli", "-s", self.socket, *words])

    def answers(self):
        return self.client("ping") == b"PONG\n"

    def load(self):
        words = ["-n", "20000", "-c", "20", "-r", "10000", "-d", "100", "-q", "-t", "set,get,incr,lpush,lpop,zadd"]
        printed = output(["redis-benchmark", "-s", self.socket, *words])
        right = self.client("set", "key", "value") == b"OK\n" and self.client("get", "key") == b"value\n"
        return 1, right and printed.count(b"requests per second") == 6

    def stop(self):
        self.client("shutdown", "nosave")


SERVERS = {"nginx": Nginx, "redis": Redis}


def run(kind, tool, folder):
    """Seconds of processor time, the exit code, and whether all answers were right."""
    server = kind(folder)
    with open(os.path.join(folder, "server.log"), "wb") as log:
        process = subprocess.Popen(tool + server.command, cwd=folder, stdout=log, stderr=log)
    end = time.monotonic() + PATIENCE_S
    while not server.answers():
        if time.monotonic() > end:
            process.kill()
            raise SystemExit(f"{server.command[0]} does not answer; see {log.name}")
        time.sleep(0.05)
    factor, right = server.load()
    server.stop()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return factor * (used.ru_utime + used.ru_stime), process.returncode, right

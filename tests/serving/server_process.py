"""A process of `bocl serve`, and clients for it."""

from __future__ import annotations

import http.client
import os
import re
import socket
import subprocess
import sys
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

import bocl.errors

SOURCE = Path(bocl.errors.__file__).parents[1]
SURROUNDINGS = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}


class Running:
    """A server process and its address."""

    def __init__(self, process, line):
        self.process, self.line = process, line
        self.port = int(re.search(r"http://127\.0\.0\.1:(\d+)", line)[1])

    def ask(self, path, body=None, *, connection=None, **headers):
        """Return status and content; the client is Python's own."""
        with closing(self.client()) if connection is None else nullcontext(connection) as asked:
            asked.request("GET" if body is None else "POST", path, body, headers)
            reply = asked.getresponse()
            return reply.status, reply.read()

    def client(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def connect(self, *sent):
        """Return a bare connection on which so much was sent."""
        opened = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        for each in sent:
            opened.sendall(each)
        return opened

    def most_memory(self):
        """Return the most MiB that the process has ever taken."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", text)[1]) / 1024


@contextmanager
def server(folder, *options):
    command = [sys.executable, "-m", "bocl", "serve", str(folder), "--port", "0", "--device", "cpu", *options]
    process = subprocess.Popen(command, env=SURROUNDINGS, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield Running(process, line)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()

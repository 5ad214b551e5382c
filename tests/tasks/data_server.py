"""A server on this machine that misbehaves on demand."""

from __future__ import annotations

import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from data_files import zipped


class Server:
    """Serves ``contents`` under any folder.

    /short/ cuts them off, /flaky/ the first time, /wrong/ changes them, /endless/ never ends, /bomb/ sends many zeros
    in few bytes, /away/ redirects to /good/.
    """

    def __init__(self, contents):
        self.asked: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                server.asked.append(self.path)
                folder, _, name = self.path[1:].partition("/")
                if name not in contents or folder == "missing":
                    self.send_error(404)
                    return
                content = contents[name]
                if folder == "away":
                    self.send_response(302)
                    self.send_header("Location", f"{server.address}/good/{name}")
                    self.end_headers()
                    return
                self.send_response(200)
                if folder == "bomb":
                    content = zipped(bytes(1 << 24))
                    self.send_header("Content-Encoding", "gzip")
                if folder == "endless":
                    self.end_headers()
                    with suppress(OSError):  # the client hangs up
                        while True:
                            self.wfile.write(content)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if folder == "short" or (folder == "flaky" and server.asked.count(self.path) == 1):
                    content = content[: len(content) // 2]
                if folder == "wrong":
                    content = bytes(len(content))
                self.wfile.write(content)

            def log_message(self, *arguments):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.05,))
        self.thread.start()

    def stop(self):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()

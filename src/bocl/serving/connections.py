"""Connections that end: those of clients that send too slowly, take too slowly, say nothing, or are too many.

uvicorn waits for ever for the rest of a header or for a client that does not take its answer. What is here is asked of
every connection ten times a second, so that no timer is needed for every request.
"""

from __future__ import annotations

import time
from typing import Any

from bocl.extras import needed
from bocl.serving.limits import HEADERS, Limits
from bocl.serving.replies import error


def connections_within(limits: Limits) -> Any:
    """Return the class of connections that keep to these limits."""
    h11_protocol: Any = needed("uvicorn.protocols.http.h11_impl", "serve", "bocl serve answers over HTTP").H11Protocol

    class Connection(h11_protocol):  # type: ignore[misc]
        """One client.

        since    when the server began to wait for it; None while it does not
        request  the last one that had come then
        """

        since: float | None = None
        request: Any = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > limits.connections:
                self.end_with(503, f"{limits.connections} clients are connected; try again")

        def on_response_complete(self) -> None:
            self.since = None
            super().on_response_complete()

        def send_400_response(self, _msg: str) -> None:
            self.end_with(400, f"the request is not HTTP/1.1, or its headers have more than {HEADERS:,} bytes")

        def end_with(self, status: int, why: str) -> None:
            """Say why, where nothing else is being said, and close."""
            if self.cycle is None or not self.cycle.response_started:
                self.transport.write(error(status, why).as_http)
            self.transport.close()

        def end_if_late(self, now: float) -> None:
            """Close a connection that the server has waited for too long."""
            request, stuck = self.cycle, bool(self.transport.get_write_buffer_size())
            asked = request is not None and not request.response_complete
            if asked and not request.more_body and not stuck:
                self.since = None  # the client waits for the server
            elif self.since is None or request is not self.request:
                self.since, self.request = now, request
            elif now - self.since > limits.seconds:
                if asked and not stuck and not self.transport.is_closing():
                    self.end_with(408, f"the body did not arrive within {limits.seconds:g} seconds")
                else:
                    self.transport.abort()

    return Connection


def end_late_ones(connections: Any) -> None:
    """Close the connections that the server has waited for too long."""
    now = time.monotonic()
    for connection in list(connections):
        connection.end_if_late(now)

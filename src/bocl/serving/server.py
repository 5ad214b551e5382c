"""The server: uvicorn with plain ASGI, at one address until it is told to stop."""

from __future__ import annotations

import logging
import math
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bocl.errors import InputError
from bocl.extras import needed
from bocl.serving.app import App
from bocl.serving.connections import connections_within, end_late_ones
from bocl.serving.limits import HEADERS, Limits
from bocl.serving.served import Served, ServedRun

GRACE = 30  # seconds in which accepted requests are finished
WHY = "bocl serve answers over HTTP"


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that clients can connect to; port 0 takes any that is free."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)  # asyncio sends at once only where the protocol is named
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(place)
            listening.listen(1024)
        except OSError:
            listening.close()
            raise
        return listening
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot listen on {host}, port {port}: {reason}; give another --host or --port") from error


def serve(
    folder: str,
    place: tuple[str, int],
    limits: Limits,
    *,
    device: str = "auto",
    trust: bool = False,
    access_log: bool = False,
    ready: Callable[[str, Served], None],
) -> None:
    """Answer for a run until SIGTERM or SIGINT; then finish what was accepted, and return.

    place  host and port
    trust  whether a network that is code of the run's maker may be run
    ready  is called with the address once the first request would be answered
    """
    uvicorn: Any = needed("uvicorn", "serve", WHY)
    run = ServedRun(folder, device=device, trust=trust)

    class Server(uvicorn.Server):  # type: ignore[misc]
        async def startup(self, sockets: Any) -> None:
            await super().startup(sockets=sockets)
            ready(_address(sockets[0]), run.served)

        async def on_tick(self, counter: int) -> bool:
            end_late_ones(self.server_state.connections)
            return bool(await super().on_tick(counter))

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Take a signal as the wish to stop, which is no failure; uvicorn would raise it again."""
            before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
            try:
                yield
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)

    config = uvicorn.Config(
        App(run, limits),
        http=connections_within(limits),
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",
        access_log=access_log,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=math.ceil(limits.seconds),
        timeout_graceful_shutdown=GRACE,
        h11_max_incomplete_event_size=HEADERS,
    )
    if access_log:
        logging.basicConfig(format="%(message)s")
        logging.getLogger("uvicorn.access").setLevel(logging.INFO)
    with listen(*place) as listening:
        Server(config).run(sockets=[listening])


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

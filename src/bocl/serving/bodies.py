"""Bodies of requests, read within limits: of one, of all together, and of time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from bocl.serving.limits import Limits
from bocl.serving.replies import Refusal
from bocl.serving.samples import NPY

Scope = MutableMapping[str, Any]  # of ASGI, as the next two
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class ClientLeft(Exception):  # noqa: N818 - nothing went wrong here
    """Nobody waits for the answer."""


class Bodies:
    """The bodies of all requests that are not answered yet; ``held`` is how many bytes they have."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.held = 0

    @asynccontextmanager
    async def read(self, scope: Scope, receive: Receive) -> AsyncIterator[bytes]:
        """Give a request's body, and count it as held until the work inside is done."""
        body = bytearray()
        try:
            yield await self._received(body, _declared(scope), receive)
        finally:
            self.held -= len(body)

    async def _received(self, body: bytearray, declared: int, receive: Receive) -> bytes:
        limits = self._limits
        try:
            async with asyncio.timeout(limits.seconds):
                while True:
                    is_npy = body.startswith(NPY[: len(body)])  # as far as can be seen
                    self._check(max(declared, len(body)), is_npy=is_npy)
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientLeft
                    part = message.get("body", b"")
                    if self.held + len(part) > limits.all_bodies:
                        raise busy("the server holds as many bytes of other requests as it may")
                    body += part
                    self.held += len(part)
                    if not message.get("more_body", False):
                        self._check(len(body), is_npy=body.startswith(NPY))
                        return bytes(body)
        except TimeoutError:
            raise Refusal(408, f"the body did not arrive within {limits.seconds:g} seconds") from None

    def _check(self, size: int, *, is_npy: bool) -> None:
        limits = self._limits
        if size > limits.body:
            raise Refusal(413, f"the body has more than {limits.body:,} bytes; send fewer samples at once")
        if size > limits.json and not is_npy:
            raise Refusal(413, f"the body has more than {limits.json:,} bytes of JSON; send fewer samples, or .npy")


def busy(why: str) -> Refusal:
    """Return what is answered to those who should come again."""
    return Refusal(503, f"{why}; try again", ("retry-after", "1"))


def _declared(scope: Scope) -> int:
    """Return how long a body is said to be; 0 where it comes in chunks."""
    return next((int(value) for name, value in scope["headers"] if name == b"content-length"), 0)

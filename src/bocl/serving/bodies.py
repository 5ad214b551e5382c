"""Bodies of requests, read within limits: of one, and of all together. What comes slowly, ``connections.py`` ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
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

    async def read(self, scope: Scope, receive: Receive) -> bytes:
        """Return a request's body, which is held from now on."""
        declared = next((int(value) for name, value in scope["headers"] if name == b"content-length"), 0)
        parts: list[bytes] = []
        size, begins, more = 0, b"", True
        try:
            while more:
                self._check(max(declared, size), begins)
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientLeft
                part, more = message.get("body", b""), message.get("more_body", False)
                if self.held + len(part) > self._limits.all_bodies:
                    raise busy("the server holds as many bytes of other requests as it may")
                parts.append(part)
                size, begins = size + len(part), (begins + part)[: len(NPY)]
                self.held += len(part)
            self._check(size, begins)
        except BaseException:
            self.held -= size
            raise
        return b"".join(parts)

    def release(self, body: bytes) -> None:
        """Hold a body no longer."""
        self.held -= len(body)

    def _check(self, size: int, begins: bytes) -> None:
        """Refuse a body of this size, as far as its beginning shows what it is."""
        limits = self._limits
        if size > limits.body:
            raise Refusal(413, f"the body has more than {limits.body:,} bytes; send fewer samples at once")
        if size > limits.json and not begins.startswith(NPY[: len(begins)]):
            raise Refusal(413, f"the body has more than {limits.json:,} bytes of JSON; send fewer samples, or .npy")


def busy(why: str) -> Refusal:
    """Return what is answered to those who should come again."""
    return Refusal(503, f"{why}; try again", ("retry-after", "1"))

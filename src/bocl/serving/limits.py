"""How much one client, and all of them together, may ask of the server."""

from __future__ import annotations

from dataclasses import dataclass

HEADERS = 16 * 1024  # bytes of a request's first line and headers


@dataclass(frozen=True)
class Limits:
    """Whatever is beyond them is refused.

    body         bytes of a request; JSON may have a quarter of them, because it takes many times its size once read
    samples      of a request
    seconds      in which a client must send a request, take its answer, or ask again
    waiting      predictions that wait for others
    connections  at once
    batch        samples of several requests that are computed together; with 1, each request is computed by itself
    """

    body: int = 16 * 1024 * 1024
    samples: int = 1000
    seconds: float = 20.0
    waiting: int = 256
    connections: int = 512
    batch: int = 1

    @property
    def json(self) -> int:
        """Bytes of a request that is JSON."""
        return self.body // 4

    @property
    def all_bodies(self) -> int:
        """Bytes of all requests together, from when they arrive until they are answered."""
        return 4 * self.body

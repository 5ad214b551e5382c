"""What goes back to a client: bytes with a status, and one clear line where something is refused."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from bocl.errors import InputError
from bocl.wording import one_line

log = logging.getLogger("uvicorn.error")

_USUAL = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
_ENCODER = json.JSONEncoder(allow_nan=False, ensure_ascii=False)

JSON, NPY, HTML = "application/json", "application/x-npy", "text/html; charset=utf-8"


@dataclass(frozen=True)
class Reply:
    """An answer to a request."""

    body: bytes
    kind: str = JSON
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def all_headers(self) -> list[tuple[bytes, bytes]]:
        """Every header, as ASGI takes them."""
        about = [(b"content-type", self.kind.encode()), (b"content-length", str(len(self.body)).encode())]
        return about + _USUAL + [(name.encode(), value.encode()) for name, value in self.headers]

    @property
    def as_http(self) -> bytes:
        """The whole answer, for a client whose connection ends with it."""
        first = f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\n".encode()
        headers = [*self.all_headers, (b"connection", b"close")]
        return first + b"".join(b"%s: %s\r\n" % header for header in headers) + b"\r\n" + self.body


class Refusal(Exception):  # noqa: N818 - a client's mistake, not one of the server's
    """A request that is not answered; ``reply`` says why."""

    def __init__(self, status: int, why: str, *headers: tuple[str, str]) -> None:
        super().__init__(why)
        self.reply = error(status, why, *headers)


def error(status: int, why: str, *headers: tuple[str, str]) -> Reply:
    """Return an answer that says in one line what is wrong."""
    return as_json({"error": one_line(why)}, status, *headers)


def failed(failure: Exception) -> Reply:
    """Return what is answered in place of what failed; what is no client's mistake is logged."""
    if isinstance(failure, Refusal):
        return failure.reply
    if isinstance(failure, InputError):
        return error(400, str(failure))
    log.error("a request failed", exc_info=failure)
    return error(500, "the server failed; its log says why")


def as_json(value: Any, status: int = 200, *headers: tuple[str, str]) -> Reply:
    """Return a value as JSON, in a line of its own."""
    body = f"{_ENCODER.encode(value)}\n".encode(errors="backslashreplace")  # half a character becomes its escape
    return Reply(body, JSON, status, headers)

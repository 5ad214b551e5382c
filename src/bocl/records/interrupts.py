"""Signals that ask a run to stop; they are held back while a record is being written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

STOPS = (signal.SIGINT, signal.SIGTERM)


class Terminated(KeyboardInterrupt):
    """SIGTERM, raised where Ctrl-C would be."""


@contextmanager
def stopping_on_terminate() -> Iterator[None]:
    """Let SIGTERM end the work as Ctrl-C does, instead of killing the process."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def held_back() -> Iterator[None]:
    """Finish what is inside before SIGINT or SIGTERM takes effect. Python handles signals only in its main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    before: dict[int, Any] = {}
    try:
        for number in STOPS:
            before[number] = signal.signal(number, lambda stop, _frame: received.append(stop))
        yield
    finally:
        for stop, handler in before.items():
            signal.signal(stop, signal.SIG_DFL if handler is None else handler)  # None: not set by Python
        for stop in received[:1]:
            signal.raise_signal(stop)

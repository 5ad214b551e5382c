"""Signals that ask a run to stop; they are held back while a record is being written."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# SIGUSR1 or SIGUSR2 is how a cluster says that a job's time is nearly over. Windows has neither.
_NAMES = ("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2")
STOPS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))


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


def terminate_when_input_ends() -> None:
    """Send SIGTERM to this process when its standard input ends: whoever started it has gone."""

    def wait() -> None:
        while os.read(0, 1 << 16):  # not sys.stdin, whose lock would hold up the end of the process
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def held_back() -> Iterator[None]:
    """Finish what is inside before such a signal takes effect. Python handles signals only in its main thread."""
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

"""Stopping a run from outside, between two epochs.

Whoever starts a run says what stops it (``cancelled_by``); the training loop looks (``stop_if_cancelled``). Each thread
looks at its own, so runs next to each other are stopped one by one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_stop: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


@contextmanager
def cancelled_by(stop: threading.Event) -> Iterator[None]:
    """Stop what is trained inside once the event is set."""
    token = _stop.set(stop)
    try:
        yield
    finally:
        _stop.reset(token)


def stop_if_cancelled() -> None:
    """Raise KeyboardInterrupt, as Ctrl-C would, if the event that cancels this run is set."""
    stop = _stop.get()
    if stop is not None and stop.is_set():
        raise KeyboardInterrupt

"""Stopping a run from outside, between two epochs.

Whoever starts a run gives an event that stops it (``cancelled_by``); the training loop checks the event
(``stop_if_cancelled``). Each thread has its own, so that runs side by side can be stopped one by one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_stop: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


@contextmanager
def cancelled_by(stop: threading.Event) -> Iterator[None]:
    """Stop the training inside once the event is set."""
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

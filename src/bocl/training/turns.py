"""Runs side by side on one GPU: threads of one process, each with its own stream, that take turns.

Replaying a captured step, and what the host does within one, touches nothing but the run's own memory, and it is most
of a run; there the GPU works for all of them at once. Everything else has state that belongs to the process (PyTorch's
allocator while a step is captured, its precision switch, random numbers, a library's settings), so only the run whose
turn it is does it. Then no run can tell whether it is alone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_turn = threading.Lock()
_this_thread = threading.local()


@contextmanager
def in_turns() -> Iterator[None]:
    """Do the work of a run that others may be beside."""
    with _turn:
        _this_thread.has_turn = True
        try:
            yield
        finally:
            _this_thread.has_turn = False


@contextmanager
def others_turn() -> Iterator[None]:
    """Let other runs go on during the work inside; does nothing for a run that is alone."""
    if not getattr(_this_thread, "has_turn", False):
        yield
        return
    _turn.release()
    try:
        yield
    finally:
        _turn.acquire()

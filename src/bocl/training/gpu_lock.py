"""Runs side by side on one GPU: threads of one process, each with its own stream, that share one lock.

Replaying a captured step, and what the host does within one, touches nothing but the run's own memory, and it is most
of a run: it is done without the lock, so that the GPU works for all runs at once. Everything else uses state of the
process (PyTorch's allocator while a step is captured, its precision switch, its number of threads, random numbers), so
only the run that holds the lock does it. Then no run can tell whether it is alone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_this_thread = threading.local()


@contextmanager
def holding_gpu() -> Iterator[None]:
    """Do the work of a run next to which others may run."""
    with _lock:
        _this_thread.holds = True
        try:
            yield
        finally:
            _this_thread.holds = False


@contextmanager
def gpu_released() -> Iterator[None]:
    """Let other runs go on during the work inside; does nothing for a run that is alone."""
    if not getattr(_this_thread, "holds", False):
        yield
        return
    _lock.release()
    try:
        yield
    finally:
        _lock.acquire()

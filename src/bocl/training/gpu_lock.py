"""Runs side by side on one GPU: threads of one process, each with its own stream, that share one lock.

Most of a run is replaying captured steps, and what the host does within a step. This touches only the run's own memory,
so it is done without the lock, and the GPU works for all runs at once. Everything else uses state of the process
(PyTorch's allocator while a step is captured, its precision switch, its number of threads, random numbers), so only the
run that holds the lock does it. Then runs side by side compute what each would compute by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_this_thread = threading.local()


@contextmanager
def holding_gpu() -> Iterator[None]:
    """Do the work of a run while others may run next to it."""
    with _lock:
        _this_thread.holds = True
        try:
            yield
        finally:
            _this_thread.holds = False


@contextmanager
def gpu_released() -> Iterator[None]:
    """Let other runs continue during the work inside; does nothing for a single run."""
    if not getattr(_this_thread, "holds", False):
        yield
        return
    _lock.release()
    try:
        yield
    finally:
        _lock.acquire()

"""One thread of torch for a searcher's small matrices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_thread() -> Iterator[None]:
    """Run on one torch thread, restored after.

    Matrices of a few dozen rows gain nothing from more, and sums keep their order.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)

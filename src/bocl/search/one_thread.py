"""One thread of torch for a searcher's small matrices."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Run on one torch thread: matrices of a few dozen rows gain nothing from more, and sums keep their order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def quiet_single_thread() -> Iterator[None]:
    """Run on one torch thread, without warnings that do not help the caller."""
    with warnings.catch_warnings(), one_thread():
        warnings.filterwarnings("ignore", message=r".torch\.jit\.", category=DeprecationWarning)
        from botorch.exceptions.warnings import BotorchWarning
        from gpytorch.utils.warnings import NumericalWarning
        from linear_operator.utils.warnings import NumericalWarning as LinearNumericalWarning

        # A fit or an ascent that runs out of iterations and a matrix that needs jitter are expected here.
        for category in (BotorchWarning, NumericalWarning, LinearNumericalWarning):
            warnings.simplefilter("ignore", category)
        yield

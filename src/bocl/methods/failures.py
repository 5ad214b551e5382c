"""How a training can fail: a loss that is not finite, and memory that runs out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from bocl.errors import WorkError
from bocl.records.events import Callback, Event

NOT_FINITE = "the loss was not finite"


def check_trained(accuracy: float, task: str, failure: str = NOT_FINITE) -> None:
    """Refuse to keep a network whose training failed; ``accuracy`` is that of its Fit."""
    if math.isnan(accuracy):
        way_out = "; try a smaller recipe.learning_rate" if NOT_FINITE in failure else ""
        raise WorkError(f"task '{task}': {failure}{way_out}")


class Listener:
    """A callback, and what it raised: that is its owner's, and no failure of a training."""

    def __init__(self, callback: Callback) -> None:
        self.raised: BaseException | None = None
        self._callback = callback

    def __call__(self, event: Event) -> None:
        """Pass an event on."""
        try:
            self._callback(event)
        except BaseException as error:
            self.raised = error
            raise


@contextmanager
def out_of_memory_explained(way_out: str, listener: Listener) -> Iterator[None]:
    """Turn running out of memory, unless the listener raised it, into a WorkError that names what to make smaller."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if error is listener.raised or not is_out_of_memory(error):
            raise
        first_line = str(error).partition("\n")[0]
        raise WorkError(f"there is not enough memory to learn the task ({first_line}); try {way_out}") from error


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error says that memory ran out, on whatever device."""
    # The CPU's allocator raises a plain RuntimeError, so its words are all there is to go by.
    words = (
        "not enough memory",
        "can't allocate memory",
        "out of memory",
        "Storage size calculation overflowed",
        "CUBLAS_STATUS_ALLOC_FAILED",
    )
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return type(error) is RuntimeError and any(word in str(error) for word in words)

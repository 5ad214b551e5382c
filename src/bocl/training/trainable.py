"""What the training loop can train."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Protocol

from torch import Tensor


class Trainable(Protocol):
    """K networks that are trained together; every tensor of their state is (K, …)."""

    training: bool

    @property
    def count(self) -> int:
        """K."""

    @property
    def draws(self) -> bool:
        """Whether a training step draws random numbers, as dropout does."""

    @property
    def parameters(self) -> Mapping[str, Tensor]:
        """What the optimiser changes."""

    @property
    def state(self) -> Mapping[str, Tensor]:
        """Parameters, running statistics and all else in which two networks of one signature may differ."""

    @property
    def signature(self) -> Hashable:
        """Networks of one signature compute alike: copying one's state into the other makes them the same.

        It may name an object by its ``id()`` where the network keeps it alive and what is read of it never changes.
        """

    def __call__(self, x: Tensor, task: int, precomputed: Tensor | None = None) -> Tensor:
        """Return logits (K, n, classes) for shared inputs (n, *shape); ``precomputed`` is of ``precompute``."""

    def precompute(self, inputs: Tensor) -> Tensor | None:
        """Compute for all samples what stays the same in every step: (n, …), or None."""

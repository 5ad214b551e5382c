"""What the training loop can train."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Protocol, Self

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
        """Parameters, running statistics and all other tensors in which two networks of one signature may differ."""

    @property
    def signature(self) -> Hashable:
        """Networks of one signature compute the same once one's state is copied into the other.

        It may contain the ``id()`` of an object that the network keeps alive and never changes.
        """

    def __call__(self, x: Tensor, task: int, precomputed: Tensor | None = None) -> Tensor:
        """Return logits (K, n, classes) for shared inputs (n, *shape); ``precomputed`` comes from ``precompute``."""

    def precompute(self, inputs: Tensor) -> Tensor | None:
        """Compute what is the same for these samples in every step: (n, …), or None."""


class Divisible(Trainable, Protocol):
    """Networks of which some can go on without the others."""

    def kept(self, which: Sequence[int]) -> Self:
        """Return the networks at these places, in this order, as copies."""

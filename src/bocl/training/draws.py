"""The random numbers of dropout.

PyTorch's dropout takes no generator, so it draws from those of the process. They are set to our numbers while steps are
taken. For everyone else, whoever is called between two epochs included, they are as they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from bocl.training.trainable import Trainable


class Draws:
    """Random numbers for a network: the process's own generators give them while they are in use."""

    def __init__(self, network: Trainable, device: torch.device, seed: int) -> None:
        self._generators = _generators(device) if network.draws else []
        self._states = [
            torch.Generator(generator.device).manual_seed(seed).get_state() for generator in self._generators
        ]

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Let dropout draw the next of these numbers."""
        before = self._exchange(self._states)
        try:
            yield
        finally:
            self._states = self._exchange(before)

    def _exchange(self, states: Sequence[Tensor]) -> list[Tensor]:
        found = [generator.get_state() for generator in self._generators]
        for generator, state in zip(self._generators, states, strict=True):
            generator.set_state(state)
        return found


def _generators(device: torch.device) -> list[torch.Generator]:
    """Return the process's own generators that a network on this device draws from."""
    if device.type == "cpu":
        return [torch.default_generator]
    with torch.cuda.device(device):
        return [torch.default_generator, torch.cuda.default_generators[torch.cuda.current_device()]]

"""What a method adds to a training step: EWC's anchor, GEM's projection, DEN's sparsity."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from bocl.training.proximal import Proximal, take_proximal

Parameters = Mapping[str, Tensor]


@dataclass(frozen=True)
class Hooks:
    """Functions called in every step, each optional.

    adjust_gradients  called between backward and the optimiser's step, may change ``.grad``
    proximal          called after the optimiser's step, solves for another term of the objective (``proximal.py``)

    A step may be captured as a CUDA graph. So hooks are tensor operations, the same in every step, and all they read is
    on the device; a training whose hooks do more is given ``graphed=False``.
    """

    adjust_gradients: Callable[[Parameters], None] | None = None
    proximal: Proximal | None = None

    def update(self, optimiser: torch.optim.Optimizer, parameters: Parameters) -> None:
        """Take the optimiser's step and all that goes with it; gradients are there."""
        if self.adjust_gradients is not None:
            self.adjust_gradients(parameters)
        optimiser.step()
        if self.proximal is not None:
            take_proximal(self.proximal, parameters, optimiser)

"""What a method adds to a training step: EWC's anchor, GEM's projection, DEN's sparsity.

A term R of the objective L(θ) + R(θ) can be solved for instead of followed. The optimiser steps on L alone, to θ', and
a proximal hook moves on to

    argmin_θ  R(θ) + Σ_i (θ_i - θ'_i)² / (2 s_i)

A steady gradient g of L moves θ_i by -s_i g_i a step, so the two come to rest where ∂L/∂θ + ∂R/∂θ = 0, whatever the
optimiser, and no R is too steep for the learning rate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bocl.training.optimisers import Optimiser

Parameters = Mapping[str, Tensor]
#: (parameters, a function that gives s of one of them) → the parameters changed in place, by tensor operations alone
Proximal = Callable[[Parameters, Callable[[Tensor], Any]], None]


@dataclass(frozen=True)
class Hooks:
    """Functions called in every step, each optional.

    adjust_gradients  called between backward and the optimiser's step, may change ``.grad``
    proximal          called after the optimiser's step, solves for another term of the objective

    A step may be captured as a CUDA graph. So hooks are tensor operations, the same in every step, and all they read is
    on the device; a training whose hooks do more is given ``graphed=False``.
    """

    adjust_gradients: Callable[[Parameters], None] | None = None
    proximal: Proximal | None = None

    def update(self, optimiser: Optimiser, parameters: Parameters) -> None:
        """Take the optimiser's step and all that goes with it; gradients are there."""
        if self.adjust_gradients is not None:
            self.adjust_gradients(parameters)
        optimiser.step()
        if self.proximal is not None:
            with torch.no_grad():
                self.proximal(parameters, optimiser.step_size)

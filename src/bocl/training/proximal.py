"""Proximal steps: a term of the objective is solved for after the optimiser's step on the loss.

For the objective L(θ) + R(θ) the optimiser takes a step on L only, to θ', and the hook then moves to

    argmin_θ  R(θ) + Σ_i (θ_i - θ'_i)² / (2 s_i)

A steady gradient g of L moves θ_i by -s_i g_i a step, so the two come to rest where ∂L/∂θ + ∂R/∂θ = 0, whatever the
optimiser, and no R is too steep for the learning rate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

#: (parameters, a function that gives s of one of them) → the parameters changed in place, by tensor operations only
Proximal = Callable[[Mapping[str, Tensor], Callable[[Tensor], Any]], None]


def step_size(optimiser: torch.optim.Optimizer, parameter: Tensor) -> Any:
    """Return s, a number or one for every entry: η / (1 - μ) of SGD with momentum μ, η / (√v̂ + ε) of Adam."""
    (group,) = optimiser.param_groups
    if isinstance(optimiser, torch.optim.SGD):
        return group["lr"] / (1 - group["momentum"])
    state, decay = optimiser.state[parameter], group["betas"][1]
    return group["lr"] / ((state["exp_avg_sq"] / (1 - decay ** state["step"])).sqrt() + group["eps"])

"""Averaged weights: a network is scored and kept with the mean of its weights over many steps.

m ← m + c_t (w - m)    after every step t

``last``         c_t = 1, 1/2, 1/3, … over the last steps, and 0 before: the plain mean of these steps' weights
``exponential``  c_t = 1/s after a start with 1, 1/2, 1/3, …: a mean that forgets, over about s steps
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from bocl.training.recipe import Recipe


def weight_of_step(recipe: Recipe, step: int, steps: int) -> float:
    """Return c_t of step t = ``step``, from 0, of so many in all."""
    if recipe.average == "off":
        return 0.0
    span = max(1, round(recipe.average_share * steps))
    if recipe.average == "exponential":
        return 1 / min(step + 1, span)
    return 1 / (step - (steps - span) + 1) if step >= steps - span else 0.0


def new_averages(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return zeros; the first weight is 1, so that nothing is left of them."""
    return {name: torch.zeros_like(parameter, requires_grad=False) for name, parameter in parameters.items()}


def add_to_averages(averages: Mapping[str, Tensor], parameters: Mapping[str, Tensor], weight: float | Tensor) -> None:
    """Take the parameters into their averages: m ← m + c (w - m), for all tensors at once."""
    with torch.no_grad():
        means = list(averages.values())
        differences = torch._foreach_sub([parameters[name] for name in averages], means)
        torch._foreach_mul_(differences, weight)
        torch._foreach_add_(means, differences)


def load_averages(averages: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> None:
    """Put the averages in the parameters' place. A weight that is 0 stays 0: that is how methods take one out."""
    with torch.no_grad():
        for name, average in averages.items():
            parameter = parameters[name]
            parameter.copy_(torch.where(parameter == 0, parameter, average))

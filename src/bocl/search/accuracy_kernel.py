"""The covariance of accuracies over widths and tasks. It imports GPyTorch, so import it where it is used."""

from __future__ import annotations

import math
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from bocl.search.likelihood import log_normal
from bocl.search.problem import FloatArray


class AccuracyKernel(Kernel):  # type: ignore[misc]
    """k((z, t), (z', t')) = k_shared(z, z') + [t = t'] (k_own(z, z') + level), each k_ a Matérn 5/2 with ARD.

    One kernel rather than a tree of GPyTorch's, whose bookkeeping would take most of the time of a fit.

    inputs (…, n, d + 1)  z scaled, and the number of the task
    values (m,)           d lengthscales of k_shared, its variance and that of the level; with earlier tasks also d
                          lengthscales of k_own and its variance
    modes  (m,)           the most likely values before any data
    """

    def __init__(self, values: FloatArray, modes: FloatArray, dimensions: int) -> None:
        super().__init__()
        self.dimensions = dimensions
        self.logs = nn.Parameter(torch.tensor(values, dtype=torch.float64).log())
        self.register_prior("prior", log_normal(modes), lambda kernel: kernel.values)

    @property
    def values(self) -> Tensor:
        """The hyperparameters themselves (m,)."""
        return self.logs.exp()

    @property
    def variance(self) -> Tensor:
        """The covariance of any point with itself, ()."""
        d = self.dimensions
        return self.values[d] + self.values[d + 1] + self.values[2 * d + 2 :].sum()

    def forward(self, x1: Tensor, x2: Tensor, **_: Any) -> Tensor:
        """Return the covariance (…, n, k)."""
        d = self.dimensions
        (*lengthscales, shared, level), own = self.values[: d + 2], self.values[d + 2 :]
        covariance = shared * _matern(x1[..., :d], x2[..., :d], torch.stack(lengthscales))
        own_covariance = level
        if len(own):
            own_covariance = level + own[d] * _matern(x1[..., :d], x2[..., :d], own[:d])
        same_task = x1[..., :, None, d] == x2[..., None, :, d]
        result: Tensor = covariance + same_task * own_covariance
        return result


def _matern(x1: Tensor, x2: Tensor, lengthscales: Tensor) -> Tensor:
    """Return (1 + a + a²/3) exp(-a), (…, n, k), a = √5 ‖(x1 - x2) / lengthscales‖."""
    # By differences, because matrix products would lose the digits of small distances.
    distances = torch.cdist(x1 / lengthscales, x2 / lengthscales, compute_mode="donot_use_mm_for_euclid_dist")
    a = math.sqrt(5) * distances
    return (1 + a + a.square() / 3) * (-a).exp()

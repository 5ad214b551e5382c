"""Linear discriminant analysis of the classes of all tasks, added up task by task. No sample is kept.

Of every class c a mean μ_c, and of all classes of all tasks one covariance Σ within classes, over n samples f (d,):

    S = Σ_c Σ_i (f_ci - μ_c)(f_ci - μ_c)ᵀ        Σ = (S + s I · tr S / (n d)) / (n + s),    s = d / 10

A sample counts for a task by the mean density of its classes:

    log p(f | t) = log 1/C_t Σ_{c in t} exp(w_c · f + b_c) + …    w_c = Σ⁻¹ μ_c,    b_c = -½ w_c · μ_c

where … is the same for all tasks. Every class belongs to one task, so that sums over tasks are what one pass over all
samples gives, in whatever order they come.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import log

import torch
from torch import Tensor

SHRINKAGE = 0.1  # s / d: how many samples of a round covariance are counted in, for each number of a sample


@dataclass(frozen=True, eq=False)
class ClassSums:
    """Of the classes of one task.

    sums    (classes, d) of the samples of each class
    counts  (classes,)   how many these are
    """

    sums: Tensor
    counts: Tensor


@dataclass(frozen=True, eq=False)
class Discriminant:
    """What is kept of all tasks, in float64.

    tasks    sums of every task
    scatter  (d (d + 1) / 2,) S, its lower triangle
    """

    tasks: tuple[ClassSums, ...]
    scatter: Tensor

    @staticmethod
    def of(task: ClassSums, scatter: Tensor, before: Discriminant | None) -> Discriminant:
        """Return what is kept once one more task is added."""
        if before is None:
            return Discriminant((task,), scatter)
        return Discriminant((*before.tasks, task), before.scatter + scatter)

    @property
    def size(self) -> int:
        """The number d of a sample's numbers."""
        return self.tasks[0].sums.shape[1]

    def numbers(self) -> int:
        """Count what is kept."""
        return self.scatter.numel() + sum(task.sums.numel() + task.counts.numel() for task in self.tasks)

    @cached_property
    def weights(self) -> tuple[Tensor, Tensor]:
        """Return w (classes of all tasks, d) and b (classes of all tasks,)."""
        d, samples = self.size, sum(float(task.counts.sum()) for task in self.tasks)
        scatter, added = unpacked(self.scatter, d), SHRINKAGE * d
        variance = (scatter.trace() / (samples * d)).clamp(min=torch.finfo(torch.float32).tiny)
        covariance = (scatter + added * variance * torch.eye(d, dtype=scatter.dtype, device=scatter.device)) / (
            samples + added
        )
        means = torch.cat([task.sums / task.counts[:, None] for task in self.tasks])
        w = torch.cholesky_solve(means.T, torch.linalg.cholesky(covariance)).T.contiguous()
        return w, -0.5 * (w * means).sum(1)

    def log_densities(self, features: Tensor) -> Tensor:
        """Return log p(f | t) for samples (n, d): (n, tasks), up to a number of each sample."""
        w, b = self.weights
        by_class = features.double() @ w.T + b
        by_task = by_class.split([len(task.counts) for task in self.tasks], dim=1)
        return torch.stack([scores.logsumexp(1) - log(scores.shape[1]) for scores in by_task], dim=1)


def add_up(batches: Iterable[tuple[Tensor, Tensor]], classes: int) -> tuple[ClassSums, Tensor]:
    """Return the sums of a task's classes and its part of S, from its samples (n, d) and labels (n,), in batches.

    Products are taken around a point among the samples, so that little is lost where all are far from 0.
    """
    origin, moments = None, None
    for features, labels in batches:
        f = features.double()
        if origin is None or moments is None:
            origin = f.mean(0)
            sums, moments = f.new_zeros(classes, f.shape[1]), f.new_zeros(f.shape[1], f.shape[1])
            counts = f.new_zeros(classes)
        f = f - origin
        which = torch.nn.functional.one_hot(labels, classes).to(f.dtype)
        sums += which.T @ f
        counts += which.sum(0)
        moments += f.T @ f
    assert origin is not None
    assert moments is not None
    within = moments - sums.T @ (sums / counts[:, None])
    return ClassSums(sums + counts[:, None] * origin, counts), packed(within)


def packed(symmetric: Tensor) -> Tensor:
    """Return the lower triangle of a matrix (d, d), row by row: (d (d + 1) / 2,)."""
    rows, columns = torch.tril_indices(*symmetric.shape, device=symmetric.device)
    return symmetric[rows, columns]


def unpacked(triangle: Tensor, d: int) -> Tensor:
    """Undo ``packed``."""
    rows, columns = torch.tril_indices(d, d, device=triangle.device)
    full = triangle.new_zeros(d, d)
    full[rows, columns] = full[columns, rows] = triangle
    return full

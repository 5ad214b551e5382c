"""A Gaussian process on accuracy, over the widths of this task and of every earlier one. Float64 throughout.

    name         shape    meaning
    inputs       (n, d)   log1p(z_i) / log1p(bound_i), of the groups that can grow; what is read, as a place on a line
    tasks        (n,)     0 for this task, 1, 2, … for earlier ones; -1 for this task after the first rung of a round
    values       (n,)     A
    targets      (n,)     (A - centre) / spread; the spread is that of trials around the mean of their own task

    A(z, t) = shared(z) + own_t(z) + level_t + ε
    k((z, t), (z', t')) = k_shared(z, z') + [t = t'] (k_own(z, z') + level)        each k_ a Matérn 5/2 with ARD

``shared`` is what tasks have in common; ``own`` and a level are how they differ. How much of each there is, is fitted:
tasks that turn out to differ inform each other less, and this task's own trials always weigh more than others'.
Without earlier tasks the covariance is k_shared + level. The penalty is known, so it is not part of the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bocl.records.record import ReadsKind
from bocl.search.likelihood import make_model, maximise_likelihood
from bocl.search.one_thread import quiet_single_thread
from bocl.search.problem import FloatArray, IntArray
from bocl.widths import Widths

FIT_ITERATIONS = 50
PLACES: dict[ReadsKind, float] = {"base": 0.0, "first": 0.0, "near": 0.2, "all": 0.4, "own": 1.0}
LEAST_SPREAD = 1e-3  # smaller differences of accuracies are taken to be noise


@dataclass(frozen=True, eq=False)
class Accuracies:
    """What was measured."""

    inputs: FloatArray  # (n, d)
    tasks: IntArray  # (n,)
    values: FloatArray  # (n,)


@dataclass(frozen=True, eq=False)
class Hyperparameters:
    """What a fit decides, in units of the standardised targets."""

    kernel: FloatArray  # those of AccuracyKernel, in its order
    noise: float  # variance of ε


@dataclass(frozen=True, eq=False)
class AccuracyModel:
    """A process conditioned on data, ready to predict."""

    data: Accuracies
    centre: float
    spread: float
    hyperparameters: Hyperparameters
    kernel: Any  # AccuracyKernel
    points: Tensor  # (n, d + 1): inputs, with the number of the task as the last column
    factor: Tensor  # (n, n): Cholesky factor of K + noise
    weights: Tensor  # (n, 1): (K + noise)⁻¹ targets

    @property
    def noise_std(self) -> float:
        """Standard deviation of one measurement, in accuracy."""
        return self.spread * math.sqrt(self.hyperparameters.noise)


def scale(points: Sequence[Widths] | IntArray, bounds: Widths, choices: Sequence[ReadsKind] = ()) -> FloatArray:
    """Return log1p(z) / log1p(bound), (n, d); a group with bound 0 cannot vary and is left out of the d inputs.

    choices  what the last entry of a point is the number of: it becomes a place on a line, on which the ways to read
             earlier tasks lie close together and a network of its own lies apart
    """
    last = len(bounds) - bool(choices)
    growing = [group for group, bound in enumerate(bounds[:last]) if bound > 0]
    rows = np.asarray(points, dtype=np.float64).reshape(-1, len(bounds))
    scaled: FloatArray = np.log1p(rows[:, growing]) / np.log1p(np.array(bounds, dtype=np.float64)[growing])
    if len(choices) < 2:
        return scaled
    places = np.array([PLACES[kind] for kind in choices])
    return np.column_stack([scaled, places[rows[:, -1].astype(np.int64)]])


def prior_modes(dimensions: int, *, earlier_tasks: bool) -> Hyperparameters:
    """Return the most likely values before any data; every fit starts from them.

    Tasks are assumed to be alike until they are seen to differ: k_own has a fifth of the variance of k_shared.
    """
    lengthscales = [0.5 * math.sqrt(dimensions)] * dimensions
    own = [*lengthscales, 0.2] if earlier_tasks else []
    return Hyperparameters(np.array([*lengthscales, 1.0, 1.0, *own]), noise=0.03)


def fit(data: Accuracies, last: Hyperparameters | None = None) -> AccuracyModel:
    """Condition a process on data of at least one trial, with fitted hyperparameters.

    last  hyperparameters of an earlier fit, used if this one breaks down; without them, the prior modes
    """
    start = prior_modes(data.inputs.shape[1], earlier_tasks=bool((data.tasks > 0).any()))
    centre, spread = _scale_of(data)
    with quiet_single_thread():
        points, targets = _with_tasks(data.inputs, data.tasks), (data.values - centre) / spread
        model = make_model(points, targets, _kernel(start, data), noise=start.noise, noise_mode=start.noise)
        if maximise_likelihood(model, FIT_ITERATIONS):
            found = model.covar_module.values.detach().numpy()
            return condition(data, centre, spread, Hyperparameters(found, model.likelihood.noise.item()))
    fits = last is not None and len(last.kernel) == len(start.kernel)  # else it is of a model with other terms
    return condition(data, centre, spread, last if last is not None and fits else start)


def condition(data: Accuracies, centre: float, spread: float, hyperparameters: Hyperparameters) -> AccuracyModel:
    """Return the process with given hyperparameters on data."""
    targets = (data.values - centre) / spread
    with quiet_single_thread():
        kernel = _kernel(hyperparameters, data).requires_grad_(False)
        points = _with_tasks(data.inputs, data.tasks)
        covariance = kernel.forward(points, points)
        covariance.diagonal().add_(hyperparameters.noise)
        factor = torch.linalg.cholesky(covariance)
        weights = torch.cholesky_solve(torch.as_tensor(targets).unsqueeze(-1), factor)
    return AccuracyModel(data, centre, spread, hyperparameters, kernel, points, factor, weights)


def predict(model: AccuracyModel, inputs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard deviation of this task's A, without noise, at inputs (k, d): (k,), (k,)."""
    with quiet_single_thread():
        points = _with_tasks(inputs)
        across = model.kernel.forward(model.points, points)  # (n, k)
        mean = (across.T @ model.weights).squeeze(-1).numpy()
        explained = torch.linalg.solve_triangular(model.factor, across, upper=False).square().sum(0)
        variance = (model.kernel.variance - explained).clamp(min=1e-12).numpy()
    return model.centre + model.spread * mean, model.spread * np.sqrt(variance)


def draw(model: AccuracyModel, inputs: FloatArray, count: int, seed: int) -> FloatArray:
    """Return draws (count, k) of this task's A at inputs (k, d) from the process."""
    with quiet_single_thread():
        points = _with_tasks(inputs)
        across = torch.linalg.solve_triangular(model.factor, model.kernel.forward(model.points, points), upper=False)
        covariance = (model.kernel.forward(points, points) - across.T @ across).numpy()
    values, vectors = np.linalg.eigh(covariance)  # unlike Cholesky, it takes eigenvalues just below zero
    root = vectors * np.sqrt(np.maximum(values, 0))
    noise = np.random.default_rng(seed).normal(size=(count, len(inputs)))
    drawn: FloatArray = predict(model, inputs)[0] + model.spread * noise @ root.T
    return drawn


def believe(model: AccuracyModel, inputs: FloatArray) -> AccuracyModel:
    """Return the process as if points (k, d) of this task had been tried and had given their posterior mean.

    The mean stays the same everywhere; the uncertainty around the points shrinks.
    """
    mean, _ = predict(model, inputs)
    data = Accuracies(
        np.concatenate([model.data.inputs, inputs]),
        np.concatenate([model.data.tasks, np.zeros(len(inputs), dtype=np.int64)]),
        np.concatenate([model.data.values, mean]),
    )
    return condition(data, model.centre, model.spread, model.hyperparameters)


def _scale_of(data: Accuracies) -> tuple[float, float]:
    """Return the mean of all accuracies, and the spread of trials around the mean of their own task."""
    numbers, places = np.unique(data.tasks, return_inverse=True)
    means = np.bincount(places, data.values) / np.bincount(places)
    freedom = max(1, len(places) - len(numbers))
    spread = math.sqrt(float(np.square(data.values - means[places]).sum()) / freedom)
    return float(data.values.mean()), max(spread, LEAST_SPREAD)


def _with_tasks(inputs: FloatArray, tasks: IntArray | int = 0) -> Tensor:
    """Return the inputs with the number of their task as a last column."""
    return torch.as_tensor(np.column_stack([inputs, np.broadcast_to(np.float64(tasks), len(inputs))]))


def _kernel(values: Hyperparameters, data: Accuracies) -> Any:
    from bocl.search.accuracy_kernel import AccuracyKernel

    d = data.inputs.shape[1]
    return AccuracyKernel(values.kernel, prior_modes(d, earlier_tasks=len(values.kernel) > d + 2).kernel, d)

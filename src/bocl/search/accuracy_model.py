"""A Gaussian process on accuracy, over the widths of this task and of every earlier one. Float64 throughout.

    name         shape    meaning
    inputs       (n, d)   log1p(z_i) / log1p(bound_i), of the d groups that can grow
    tasks        (n,)     0 for this task, 1, 2, … for earlier ones
    accuracies   (n,)     A
    targets      (n,)     (A - centre) / spread; the spread is that of trials around the mean of their own task

    A(z, t) = shared(z) + own_t(z) + level_t + ε
    k((z, t), (z', t')) = k_shared(z, z') + [t = t'] (k_own(z, z') + level)        each k_ a Matérn 5/2 with ARD

What tasks have in common is ``shared``; in what they differ, ``own`` and a level. Their shares are fitted, so
tasks that turn out unlike inform each other less, and this task's own trials always weigh more than others'.
Without earlier tasks there is nothing to tell apart: k_shared + level. A penalty is no part of it: it is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bocl.search.likelihood import make_model, maximise_likelihood
from bocl.search.one_thread import quiet_single_thread
from bocl.search.problem import FloatArray, IntArray
from bocl.widths import Widths

FIT_ITERATIONS = 50
LEAST_SPREAD = 1e-3  # accuracies that differ by less are taken to differ by noise


@dataclass(frozen=True, eq=False)
class Accuracies:
    """What was measured."""

    inputs: FloatArray  # (n, d)
    tasks: IntArray  # (n,)
    values: FloatArray  # (n,)


@dataclass(frozen=True, eq=False)
class Hyperparameters:
    """What a fit decides, in units of the standardised targets; ``own`` is None without earlier tasks."""

    lengthscales: FloatArray  # (d,)
    shared: float
    level: float
    noise: float
    own_lengthscales: FloatArray | None = None  # (d,)
    own: float | None = None

    def numbers(self) -> list[float]:
        """Return them in one row: those of ``AccuracyKernel``, and the noise."""
        own = [] if self.own_lengthscales is None or self.own is None else [*self.own_lengthscales, self.own]
        return [*self.lengthscales, self.shared, self.level, *own, self.noise]

    @classmethod
    def of(cls, numbers: Sequence[float], dimensions: int) -> Hyperparameters:
        """Return them from one row."""
        d = dimensions
        lengthscales, (shared, level), own, noise = numbers[:d], numbers[d : d + 2], numbers[d + 2 : -1], numbers[-1]
        alone = cls(np.array(lengthscales), shared, level, noise)
        return replace(alone, own_lengthscales=np.array(own[:d]), own=own[d]) if own else alone


@dataclass(frozen=True, eq=False)
class AccuracyModel:
    """A process conditioned on data, ready to predict.

    kernel, points, factor, weights  what predictions need: the covariance, inputs with the task's number joined to
                                     them, the Cholesky factor L of K + noise, and (K + noise)⁻¹ targets
    """

    data: Accuracies
    centre: float
    spread: float
    hyperparameters: Hyperparameters
    kernel: Any  # AccuracyKernel
    points: Any  # Tensor (n, d + 1)
    factor: Any  # Tensor (n, n)
    weights: Any  # Tensor (n, 1)

    @property
    def noise_std(self) -> float:
        """Standard deviation of one measurement, in accuracy."""
        return self.spread * math.sqrt(self.hyperparameters.noise)


def scale(points: Sequence[Widths] | IntArray, bounds: Widths) -> FloatArray:
    """Return log1p(z) / log1p(bound), (n, d); a group with bound 0 cannot vary and is left out of the d inputs."""
    growing = [group for group, bound in enumerate(bounds) if bound > 0]
    widths = np.asarray(points, dtype=np.float64).reshape(-1, len(bounds))[:, growing]
    scaled: FloatArray = np.log1p(widths) / np.log1p(np.array(bounds, dtype=np.float64)[growing])
    return scaled


def prior_modes(dimensions: int, earlier_tasks: bool) -> Hyperparameters:
    """Return the most likely values before any data; every fit starts from them.

    Tasks of a stream are alike until they are seen to differ: what is a task's own has a fifth of the variance.
    """
    lengthscales = np.full(dimensions, 0.5 * math.sqrt(dimensions))
    alike = Hyperparameters(lengthscales, shared=1.0, level=1.0, noise=0.03)
    return replace(alike, own_lengthscales=lengthscales.copy(), own=0.2) if earlier_tasks else alike


def fit(data: Accuracies, last: Hyperparameters | None = None) -> AccuracyModel:
    """Condition a process on data of at least one trial, its hyperparameters found from the prior modes.

    last  what stays where the fit breaks down: the hyperparameters of an earlier fit, else the prior modes
    """
    earlier = bool((data.tasks > 0).any())
    start = prior_modes(data.inputs.shape[1], earlier)
    otherwise = start if last is None or (last.own is not None) != earlier else last
    centre, spread = _scale_of(data)
    with quiet_single_thread():
        model = _model(data, (data.values - centre) / spread, start)
        fitted = _hyperparameters(model) if maximise_likelihood(model, FIT_ITERATIONS) else otherwise
    return condition(data, centre, spread, fitted)


def condition(data: Accuracies, centre: float, spread: float, hyperparameters: Hyperparameters) -> AccuracyModel:
    """Return the process of given hyperparameters on data."""
    targets = (data.values - centre) / spread
    with quiet_single_thread():
        import torch

        kernel = _kernel(hyperparameters).requires_grad_(False)
        points = _with_tasks(data.inputs, data.tasks)
        covariance = kernel.forward(points, points)
        covariance.diagonal().add_(hyperparameters.noise)
        factor = torch.linalg.cholesky(covariance)
        weights = torch.cholesky_solve(torch.as_tensor(targets).unsqueeze(-1), factor)
    return AccuracyModel(data, centre, spread, hyperparameters, kernel, points, factor, weights)


def predict(model: AccuracyModel, inputs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard deviation of this task's A, free of noise, at inputs (k, d): (k,), (k,)."""
    with quiet_single_thread():
        import torch

        points = _with_tasks(inputs, np.zeros(len(inputs), dtype=np.int64))
        across = model.kernel.forward(model.points, points)  # (n, k)
        mean = (across.T @ model.weights).squeeze(-1).numpy()
        explained = torch.linalg.solve_triangular(model.factor, across, upper=False).square().sum(0)
        variance = (model.kernel.forward(points, points, diag=True) - explained).clamp(min=1e-12).numpy()
    return model.centre + model.spread * mean, model.spread * np.sqrt(variance)


def draw(model: AccuracyModel, inputs: FloatArray, count: int, seed: int) -> FloatArray:
    """Return draws (count, k) of this task's A at inputs (k, d) from the process."""
    with quiet_single_thread():
        import torch

        points = _with_tasks(inputs, np.zeros(len(inputs), dtype=np.int64))
        across = torch.linalg.solve_triangular(model.factor, model.kernel.forward(model.points, points), upper=False)
        covariance = (model.kernel.forward(points, points) - across.T @ across).numpy()
    values, vectors = np.linalg.eigh(covariance)  # a root that takes eigenvalues just below zero
    root = vectors * np.sqrt(np.maximum(values, 0))
    noise = np.random.default_rng(seed).normal(size=(count, len(inputs)))
    drawn: FloatArray = predict(model, inputs)[0] + model.spread * noise @ root.T
    return drawn


def believe(model: AccuracyModel, inputs: FloatArray) -> AccuracyModel:
    """Return the process as if points (k, d) of this task had been tried and had given just their posterior mean.

    The mean stays as it is everywhere; the uncertainty around the points shrinks.
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


def _with_tasks(inputs: FloatArray, tasks: IntArray) -> Any:
    import torch

    return torch.as_tensor(np.column_stack([inputs, tasks.astype(np.float64)]))


def _kernel(values: Hyperparameters) -> Any:
    from bocl.search.accuracy_kernel import AccuracyKernel

    modes = prior_modes(len(values.lengthscales), values.own is not None)
    return AccuracyKernel(values.numbers()[:-1], modes.numbers()[:-1], len(values.lengthscales))


def _model(data: Accuracies, targets: FloatArray, values: Hyperparameters) -> Any:
    """Return the BoTorch model of data, its hyperparameters set and its priors registered."""
    noise_mode = prior_modes(data.inputs.shape[1], values.own is not None).noise
    points = _with_tasks(data.inputs, data.tasks)
    return make_model(points, targets, _kernel(values), noise=values.noise, noise_mode=noise_mode)


def _hyperparameters(model: Any) -> Hyperparameters:
    """Read the hyperparameters of a BoTorch model made by ``_model``."""
    kernel = model.covar_module
    return Hyperparameters.of([*kernel.values.tolist(), model.likelihood.noise.item()], kernel.dimensions)

"""The process and its improvement against formulas written out here."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from bocl.search.gaussian_process import (
    GaussianProcess,
    believe,
    fit,
    log_expected_improvement,
    maximise_improvement,
    predict,
    prior_modes,
)
from bocl.search.problem import FloatArray


def matern(a: FloatArray, b: FloatArray, lengthscales: FloatArray, outputscale: float) -> FloatArray:
    """Matérn-5/2 with a lengthscale per input, point by point."""
    out = np.empty((len(a), len(b)))
    for i, j in np.ndindex(out.shape):
        distance = math.sqrt(sum(((a[i] - b[j]) / lengthscales) ** 2))
        root = math.sqrt(5.0) * distance
        out[i, j] = outputscale * (1.0 + root + root**2 / 3.0) * math.exp(-root)
    return out


def reference(process: GaussianProcess, where: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Posterior mean and standard deviation, in rewards, by explicit inversion."""
    values = process.hyperparameters
    kernel = matern(process.inputs, process.inputs, values.lengthscales, values.outputscale)
    inverse = np.linalg.inv(kernel + values.noise * np.eye(len(kernel)))
    cross = matern(where, process.inputs, values.lengthscales, values.outputscale)
    mean = cross @ inverse @ process.targets
    variance = values.outputscale - np.einsum("ij,jk,ik->i", cross, inverse, cross)
    return process.centre + process.spread * mean, process.spread * np.sqrt(variance)


def data(points: int, dimensions: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """A saturating reward on lattice points of the unit box, with a little noise."""
    generator = np.random.default_rng(seed)
    inputs = generator.integers(0, 30, (points, dimensions)) / 29.0
    rewards = 0.7 + (0.2 * (1 - np.exp(-4 * inputs)) - 0.1 * inputs).sum(1) + 0.003 * generator.normal(size=points)
    return inputs, rewards


CASES = [(3, 1, 0), (5, 2, 1), (12, 2, 2), (23, 4, 3), (20, 8, 4)]


@pytest.mark.parametrize(("points", "dimensions", "seed"), CASES)
def test_posterior_and_improvement_agree_with_the_formulas(points: int, dimensions: int, seed: int) -> None:
    inputs, rewards = data(points, dimensions, seed)
    process = fit(inputs, rewards)
    where = np.random.default_rng(seed + 100).random((40, dimensions))
    where = np.concatenate([where, inputs])  # the points tried are the hardest: little variance is left there
    mean, std = predict(process, where)
    expected_mean, expected_std = reference(process, where)
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-8)
    np.testing.assert_allclose(std, expected_std, rtol=1e-8)

    best = float(rewards.max())
    u = (expected_mean - best) / expected_std
    improvement = (expected_mean - best) * norm.cdf(u) + expected_std * norm.pdf(u)
    telling = u > -5  # beyond that the textbook formula loses its digits to cancellation, not ours
    assert telling.sum() >= 10
    ours = np.exp(log_expected_improvement(process, where, best))
    np.testing.assert_allclose(ours[telling], improvement[telling], rtol=1e-7)


def test_targets_are_standardised() -> None:
    inputs, rewards = data(10, 2, 0)
    process = fit(inputs, rewards)
    assert process.targets.mean() == pytest.approx(0, abs=1e-12)
    assert process.targets.std(ddof=1) == pytest.approx(1)
    np.testing.assert_allclose(process.centre + process.spread * process.targets, rewards)


def test_the_fit_is_indifferent_to_the_units_of_reward() -> None:
    inputs, rewards = data(10, 2, 0)
    plain, percent = fit(inputs, rewards), fit(inputs, 100 * rewards - 7)
    np.testing.assert_allclose(plain.hyperparameters.lengthscales, percent.hyperparameters.lengthscales, rtol=1e-3)


def test_the_fit_learns_which_input_matters_and_how_noisy_rewards_are() -> None:
    generator = np.random.default_rng(5)
    inputs = generator.random((40, 2))
    smooth = np.sin(6 * inputs[:, 0])
    quiet = fit(inputs, smooth + 0.01 * generator.normal(size=40)).hyperparameters
    loud = fit(inputs, smooth + 0.5 * generator.normal(size=40)).hyperparameters
    assert quiet.lengthscales[1] > 3 * quiet.lengthscales[0]
    assert loud.noise > 5 * quiet.noise


def breaks(objective: Any, **options: Any) -> None:
    from linear_operator.utils.errors import NotPSDError

    raise NotPSDError("not positive definite")


def runs_away(objective: Any, **options: Any) -> None:
    for parameter in objective.model.covar_module.parameters():
        parameter.data.fill_(1e4)  # a logarithm: the hyperparameter is infinite


@pytest.mark.parametrize("fails", [breaks, runs_away])
def test_a_fit_that_breaks_down_keeps_the_prior_modes(fails: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, rewards = data(6, 2, 0)
    assert not np.allclose(fit(inputs, rewards).hyperparameters.lengthscales, prior_modes(2).lengthscales)

    import botorch.optim.fit

    monkeypatch.setattr(botorch.optim.fit, "fit_gpytorch_mll_scipy", fails)
    process = fit(inputs, rewards)
    np.testing.assert_array_equal(process.hyperparameters.lengthscales, prior_modes(2).lengthscales)
    assert np.isfinite(predict(process, inputs)[0]).all()


def test_believing_keeps_the_mean_and_shrinks_the_doubt() -> None:
    inputs, rewards = data(8, 2, 1)
    process = fit(inputs, rewards)
    pending = np.array([[0.3, 0.8], [0.9, 0.1]])
    where = np.random.default_rng(0).random((20, 2))
    believed = believe(process, pending)
    np.testing.assert_allclose(predict(believed, where)[0], predict(process, where)[0], rtol=1e-8)
    assert (predict(believed, pending)[1] < 0.9 * predict(process, pending)[1]).all()


@pytest.mark.parametrize("dimensions", [1, 2])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_ascent_ends_no_lower_than_the_best_of_a_grid(dimensions: int, seed: int) -> None:
    inputs, rewards = data(4 + 2 * seed, dimensions, seed)
    process = fit(inputs, rewards)
    best = float(rewards.max())
    ends = maximise_improvement(process, best, seed)
    assert ends.shape[1] == dimensions
    assert (ends >= 0).all()
    assert (ends <= 1).all()
    values = log_expected_improvement(process, ends, best)
    assert (np.diff(values) <= 1e-9).all()  # best first
    grid = np.array(list(itertools.product(np.arange(30) / 29, repeat=dimensions)))
    assert values[0] >= log_expected_improvement(process, grid, best).max() - 1e-6


def test_few_and_awkward_points() -> None:
    for inputs, rewards in [
        (np.array([[0.0], [1.0]]), np.array([0.5, 0.6])),
        (np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 0.5]]), np.array([0.5, 0.5, 0.5 + 1e-12])),
        (np.linspace(0, 1, 30)[:, None], np.where(np.arange(30) == 17, 1.0, 0.0)),
    ]:
        process = fit(inputs, rewards)
        mean, std = predict(process, inputs)
        assert np.isfinite(mean).all()
        assert (std > 0).all()
        assert np.isfinite(maximise_improvement(process, float(rewards.max()), 0)).all()

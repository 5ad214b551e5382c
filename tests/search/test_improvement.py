"""Expected improvement over integers: its value in the far tail, and that climbing finds the highest point."""

from __future__ import annotations

import math
import signal
from contextlib import suppress

import mpmath
import numpy as np
import pytest
from scipy.stats import qmc

from bocl.search.improvement import (
    climb,
    log_expected_improvement,
    log_reward_improvement,
    neighbours,
    spread_points,
)
from bocl.search.lattice import whole_lattice
from bocl.search.problem import FloatArray, IntArray, Problem


@pytest.mark.parametrize("u", [8.0, 1.0, 0.0, -0.99, -1.01, -5.0, -37.0, -900.0, -2e4])
def test_log_expected_improvement_is_exact_far_into_the_tail(u: float) -> None:
    std = 0.02
    with mpmath.workdps(60):
        exact = mpmath.log(std * (mpmath.npdf(u) + mpmath.mpf(u) * mpmath.ncdf(u))) if u > -1000 else None
    (value,) = log_expected_improvement(np.array([0.7 + u * std]), np.array([std]), 0.7)
    wanted = math.log(std) - u * u / 2 - 0.5 * math.log(2 * math.pi) - 2 * math.log(-u) if exact is None else exact
    assert value == pytest.approx(float(wanted), rel=1e-6, abs=1e-9)


def test_spread_points_are_even_over_the_logarithm_and_inside() -> None:
    points = spread_points((30, 0, 7), 256, seed=1)
    assert points.shape == (256, 3)
    assert points.min() == 0
    assert (points.max(0) == [30, 0, 7]).all()
    assert np.median(points[:, 0]) == pytest.approx(math.expm1(math.log1p(30) / 2), abs=1)
    assert not (points == spread_points((30, 0, 7), 256, seed=2)).all()
    assert (spread_points((30, 0, 7), 5, seed=1) == points[:5]).all()  # more points change none of the first


def test_an_interrupt_of_scipy_takes_effect_once_its_table_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def interrupted(*arguments: object, **options: object) -> None:
        with suppress(KeyboardInterrupt):  # what SciPy's compiled code does
            signal.raise_signal(signal.SIGINT)
        made.append(arguments)

    monkeypatch.setattr(qmc, "Sobol", interrupted)
    with pytest.raises(KeyboardInterrupt):
        spread_points((3, 3), 4, 0)
    assert made == [(2,)]


def test_neighbours_differ_in_one_coordinate_and_stay_inside() -> None:
    around = neighbours(np.array([[3, 0, 7]]), (10, 0, 7))
    assert {tuple(row) for row in around.tolist()} == {
        *((width, 0, 7) for width in (0, 1, 2, 4, 5, 7, 10)),
        *((3, 0, width) for width in (3, 5, 6, 7)),
    }


def test_climbing_reaches_the_top_of_a_hill_and_passes_by_what_is_taken() -> None:
    bounds, top = (40, 40, 40), (31, 2, 17)

    def height(points: IntArray) -> FloatArray:
        return -np.square(points - np.array(top)).sum(1).astype(float)

    def keep(points: IntArray) -> IntArray:
        found = np.unique(points, axis=0)
        return found[(found != top).any(1)]

    assert climb(np.array([[0, 0, 0]]), height, lambda points: points, bounds) == (top, 0.0)
    point, value = climb(np.array([[0, 0, 0]]), height, keep, bounds)
    assert value == -1
    assert sum(abs(a - b) for a, b in zip(point, top, strict=True)) == 1


def test_last_bits_do_not_keep_it_climbing() -> None:
    calls = 0

    def height(points: IntArray) -> FloatArray:
        nonlocal calls
        calls += 1
        assert calls < 9, "it goes round and round"
        return np.full(len(points), calls * 1e-16)

    climb(whole_lattice((3, 3)), height, lambda points: points, (3, 3))
    assert calls == 2


@pytest.mark.parametrize("best", [0.55, 0.68, 0.70, 0.78])
@pytest.mark.parametrize(("mean", "std"), [(0.6, 0.05), (0.69, 0.02), (0.75, 0.03), (0.5, 0.1)])
def test_with_a_target_it_is_the_mean_gain_of_draws(mean: float, std: float, best: float) -> None:
    wanted = Problem((9, 9), lambda z: 10 * z.sum(1), lambda z: np.zeros(len(z)), target=0.7)
    z = np.array([[1, 2], [7, 8]])
    drawn = mean + std * np.random.default_rng(0).normal(size=(200_000, 1))
    gains = np.maximum(wanted.reward(np.repeat(drawn, 2, axis=1), z) - best, 0)
    error = gains.std(0) / math.sqrt(len(gains))
    found = np.exp(log_reward_improvement(wanted, z, np.full(2, mean), np.full(2, std), best))
    assert np.all(np.abs(found - gains.mean(0)) <= 4 * error + 1e-12)


def test_without_a_target_the_penalty_is_taken_off() -> None:
    priced = Problem((9,), lambda z: z.sum(1), lambda z: 0.01 * z.sum(1))
    z, mean, std = np.array([[0], [5]]), np.array([0.6, 0.7]), np.array([0.1, 0.1])
    found = log_reward_improvement(priced, z, mean, std, 0.62)
    np.testing.assert_allclose(found, log_expected_improvement(mean - [0, 0.05], std, 0.62))

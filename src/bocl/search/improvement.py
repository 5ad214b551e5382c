"""Expected improvement of the reward, on the integer lattice itself: nothing is rounded.

    EI(b)  = σ (φ(u) + u Φ(u)),  u = (μ - b) / σ        expected improvement of A(z) ~ N(μ, σ²) over b

    with a price       EI(r* + penalty(z))              r*: the best posterior mean of r among the trained children
    with target t      P (r_t(z) - r*)⁺ + [EI(r*) - EI(t) - (t - r*) P]⁺      P = Φ((μ - t) / σ) = P(A(z) ≥ t)
                       r_t(z) is the reward of z if it reaches t; the bracket is the gain below t, if r* is below t
    with tolerance ε   10 ε P (p* - p(z))⁺ + EI(A*)     t = A* - ε; A* the best posterior mean of A among the trained
                       p* the share of the smallest of them within ε of A*: what is saved, and what is found better

A few points are scored, and the best of them climb: one coordinate at a time, by steps of 1, 2, 4, …, while EI rises.
A small lattice is scored whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import erfcx, ndtr

from bocl.records.interrupts import held_back
from bocl.search.problem import FloatArray, IntArray, Problem
from bocl.widths import Widths

Score = Callable[[IntArray], FloatArray]  # z (n, groups) → (n,)
Keep = Callable[[IntArray], IntArray]  # z (n, groups) → those that may be asked for, each once

SAVING = 10.0  # what it is worth to save all parameters, in tolerances
CLIMBERS = 4
LEAST_RISE = 1e-9  # the last bits of a score depend on the points scored along with it


def log_expected_improvement(mean: FloatArray, std: FloatArray, best: float) -> FloatArray:
    """Return log EI (n,) over ``best``, of rewards with posterior mean and std (n,); it does not underflow."""
    u = (mean - best) / std
    near = np.maximum(u, -1.0)
    direct = np.log(np.exp(-0.5 * near**2) / math.sqrt(2 * math.pi) + near * ndtr(near))
    # Far below the best, φ(u) + u Φ(u) = φ(u) (1 + u m(u)) with Mills' ratio m, and 1 + u m(u) → 1 / u².
    far = np.minimum(u, -1.0)
    ratio = -far * math.sqrt(math.pi / 2) * erfcx(-far / math.sqrt(2))
    rest = np.where(far > -1e4, np.log1p(-np.minimum(ratio, 1 - 1e-15)), -2 * np.log(-far))
    tail = -0.5 * far**2 - 0.5 * math.log(2 * math.pi) + rest
    result: FloatArray = np.log(std) + np.where(u > -1, direct, tail)
    return result


def log_reward_improvement(problem: Problem, z: IntArray, mean: FloatArray, std: FloatArray, best: float) -> FloatArray:
    """Return log EI (n,) of r over ``best``, at widths (n, groups) of accuracies with posterior mean and std (n,)."""
    if problem.target is None:
        return log_expected_improvement(mean - problem.penalty(z), std, best)
    target = problem.target
    reached = ndtr((mean - target) / std)
    gained = reached * np.maximum(problem.reward(np.full(len(z), target), z) - best, 0)
    if best < target:
        beyond_best, beyond_target = (np.exp(log_expected_improvement(mean, std, bound)) for bound in (best, target))
        gained += np.maximum(beyond_best - beyond_target - (target - best) * reached, 0)
    logs: FloatArray = np.log(np.maximum(gained, np.finfo(np.float64).tiny))
    return logs


def log_tolerance_gain(saved: FloatArray, mean: FloatArray, std: FloatArray, best: float, within: float) -> FloatArray:
    """Return the log of the gain (n,) with a tolerance ``within``, at points that would save shares ``saved`` (n,)."""
    reached = ndtr((mean - best + within) / std)
    gained = SAVING * within * reached * np.maximum(saved, 0) + np.exp(log_expected_improvement(mean, std, best))
    logs: FloatArray = np.log(np.maximum(gained, np.finfo(np.float64).tiny))
    return logs


def spread_points(bounds: Widths, count: int, seed: int, *, choices: int = 0) -> IntArray:
    """Return lattice points (count, groups) spread evenly over log1p(z), by a scrambled Sobol sequence.

    choices  how many there are for the last entry, which is no width: it is spread evenly over them
    """
    from scipy.stats import qmc  # half a second, needed by this search only

    # SciPy prints an interrupt that comes while it fills its table, goes on, and draws other points.
    with held_back():
        generator = qmc.Sobol(len(bounds), rng=np.random.default_rng(seed))
    shares = generator.random_base2(max(1, (count - 1).bit_length()))[:count]
    widths = np.rint(np.expm1(shares * np.log1p(np.array(bounds, dtype=np.float64))))
    points: IntArray = widths.astype(np.int64)
    if choices:
        points[:, -1] = np.minimum((shares[:, -1] * choices).astype(np.int64), choices - 1)
    return points


def neighbours(points: IntArray, bounds: Widths) -> IntArray:
    """Return the points of the box that differ in one coordinate, by 1, 2, 4, … as far as the bounds: (n, groups)."""
    moved = [points[:0]]
    for group, bound in enumerate(bounds):
        for step in [1 << power for power in range(bound.bit_length())]:
            for way in (step, -step):
                shifted = points.copy()
                shifted[:, group] = np.clip(points[:, group] + way, 0, bound)
                moved.append(shifted)
    return np.concatenate(moved)


def climb(points: IntArray, score: Score, keep: Keep, bounds: Widths) -> tuple[Widths, float]:
    """Return the highest point that can be reached from points (n, groups), at least one, and its score."""
    values = score(points)
    while True:
        top = np.argsort(-values, kind="stable")[:CLIMBERS]
        points, values = points[top], values[top]
        around = keep(neighbours(points, bounds))
        heights = score(around)
        if not len(around) or heights.max() <= values[0] + LEAST_RISE:
            return tuple(points[0].tolist()), float(values[0])
        points, places = np.unique(np.concatenate([points, around]), axis=0, return_index=True)
        values = np.concatenate([values, heights])[places]

"""Expected improvement of r(z) = A(z) - penalty(z) over the integer lattice itself: nothing is rounded.

    u      = (μ(z) - penalty(z) - r*) / σ(z)        r*: the best posterior mean of a child that was trained
    EI(z)  = σ(z) (φ(u) + u Φ(u))

Few points are tried out, and the best of them climb: one coordinate at a time, by steps of 1, 2, 4, …, while
EI rises. A small lattice is tried out whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import erfcx, ndtr
from scipy.stats import qmc

from bocl.records.record import Widths
from bocl.search.problem import FloatArray, IntArray

Score = Callable[[IntArray], FloatArray]  # z (n, groups) → (n,)
Keep = Callable[[IntArray], IntArray]  # z (n, groups) → those of them that may be asked for, each once

CLIMBERS = 4
LEAST_RISE = 1e-9  # a point scored among other points may differ in its last bits


def log_expected_improvement(mean: FloatArray, std: FloatArray, best: float) -> FloatArray:
    """Return log EI (n,) where the reward has posterior mean and std (n,); it does not underflow."""
    u = (mean - best) / std
    near = np.maximum(u, -1.0)
    direct = np.log(np.exp(-0.5 * near**2) / math.sqrt(2 * math.pi) + near * ndtr(near))
    # Far below, φ(u) + u Φ(u) = φ(u) (1 + u m(u)) with Mills' ratio m, and 1 + u m(u) → 1 / u².
    far = np.minimum(u, -1.0)
    ratio = -far * math.sqrt(math.pi / 2) * erfcx(-far / math.sqrt(2))
    rest = np.where(far > -1e4, np.log1p(-np.minimum(ratio, 1 - 1e-15)), -2 * np.log(-far))
    tail = -0.5 * far**2 - 0.5 * math.log(2 * math.pi) + rest
    result: FloatArray = np.log(std) + np.where(u > -1, direct, tail)
    return result


def spread_points(bounds: Widths, count: int, seed: int) -> IntArray:
    """Return lattice points (count, groups) spread evenly over log1p(z), by a scrambled Sobol sequence."""
    generator = qmc.Sobol(len(bounds), rng=np.random.default_rng(seed))
    shares = generator.random_base2(max(1, (count - 1).bit_length()))[:count]
    widths = np.rint(np.expm1(shares * np.log1p(np.array(bounds, dtype=np.float64))))
    points: IntArray = widths.astype(np.int64)
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
    """Return the highest point reached from points (n, groups), at least one, and its score."""
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

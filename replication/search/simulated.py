"""Simulated streams of tasks, to try a search on without a table of real trials.

A_t(z) = level_t + Σ_i worth_ti (1 - exp(-z_i / scale_ti)),  measured with noise

Accuracy saturates in every group. Tasks of a stream are alike: their worth and scale are those of the stream, each
times exp(0.25 ξ). A reversed task has the curves of the groups in the opposite order, so that what other tasks say
about the groups is wrong.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from bocl.search.problem import FloatArray, IntArray
from bocl.seeding import seed_for
from replication.search.replay import ReplayTask

BOUNDS = (30,) * 4
NOISE = 0.004
UNLIKENESS = 0.25


def simulated_stream(
    seed: int, *, tasks: int = 4, alpha: float = 5e-3, turned: Collection[int] = ()
) -> list[ReplayTask]:
    """Return tasks drawn by a seed; those with a number in ``turned`` are reversed."""
    generator = np.random.default_rng(seed_for(seed, "simulated"))
    groups = len(BOUNDS)
    worth, scales = generator.uniform(0.005, 0.06, groups), generator.uniform(1, 10, groups)
    costs = np.exp(generator.uniform(np.log(100), np.log(3000), groups))
    prices = alpha * costs / costs.sum()
    stream = []
    for number in range(tasks):
        unlike = np.exp(UNLIKENESS * generator.normal(size=(2, groups)))
        order = slice(None, None, -1 if number in turned else 1)
        curves = worth[order] * unlike[0], scales[order] * unlike[1]
        stream.append(_task(number, generator.uniform(0.4, 0.6), *curves, costs, prices))
    return stream


def _task(
    number: int, level: float, worth: FloatArray, scales: FloatArray, costs: FloatArray, prices: FloatArray
) -> ReplayTask:
    def accuracy(z: IntArray) -> FloatArray:
        gained: FloatArray = (worth * (1 - np.exp(-z / scales))).sum(-1)
        return level + gained

    def measure(z: IntArray, generator: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        return accuracy(z) + NOISE * generator.normal(size=len(z)), accuracy(z)

    # Groups add up, so the best width of each can be found separately.
    widths = np.arange(max(BOUNDS) + 1)[:, None]
    best = (worth * (1 - np.exp(-widths / scales)) - prices * widths)[: min(BOUNDS) + 1].max(0).sum()
    return ReplayTask(
        name=f"simulated {number + 1}",
        bounds=BOUNDS,
        candidates=None,
        parameters=lambda z: (z * costs).sum(-1).astype(np.int64),
        penalty=lambda z: (z * prices).sum(-1),
        measure=measure,
        truth=accuracy,
        best_reward=level + float(best),
        limit=0.0,
        tolerance=0.003,
    )

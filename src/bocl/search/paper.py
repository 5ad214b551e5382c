"""The paper's search: warm start, Gaussian process, expected improvement by L-BFGS-B, rounded to integers.

It follows the paper literally, with four corrections: r* is the best reward so far, the improvement divides by the
standard deviation, the rounded point is the one recorded, and no point is tried twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from bocl.records.record import Experience
from bocl.search import gaussian_process
from bocl.search.lattice import lies_in
from bocl.search.ledger import Ledger, LedgerSearch, usable_trials
from bocl.search.problem import FloatArray, Problem
from bocl.seeding import seed_for
from bocl.widths import Widths

MOST_DATA = 256  # a fit costs n³; N is about 20, so only a caller's own trials can reach this


class PaperSearch(LedgerSearch):
    """The paper's: a Gaussian process on the reward, expected improvement, warm start from earlier tasks.

    m opening points in one round, then one point at a time, each chosen by a newly fitted process. The opening points
    are the widths that the m earlier tasks nearest in |M_j - M_t| were given, filled up with random points.

    - The process only sees trials of this search that did not fail. Children trained beforehand (z = 0) are not
      among them, but they can win.
    - If asked again while points are pending, it assumes that each of them gives its posterior mean.
    - With fewer than two usable trials, or if all have the same reward, there is nothing to fit: the point is random.
    - [] while points are pending means: tell those first.
    """

    wants_difficulty: ClassVar[bool] = True  # the warm start compares it with that of earlier tasks

    def ask(self, count: int) -> list[Widths]:
        """Return the opening points left, at most count; after those one point at a time; [] at the end."""
        room = self._ledger.room(count)
        opening_left = self._ledger.settings.warm_points - self._ledger.started
        if opening_left > 0:
            return [_hand_out_opening_point(self._ledger) for _ in range(min(room, opening_left))]
        return [_hand_out_likely_point(self._ledger)] if room else []


def _hand_out_opening_point(ledger: Ledger) -> Widths:
    """Hand out the widths of the nearest earlier task that are not taken; a random point if there are none."""
    earlier = ledger.free(earlier_points(ledger.problem))
    return ledger.hand_out(earlier[0]) if earlier else ledger.hand_out_random()


def earlier_points(problem: Problem) -> list[Widths]:
    """Return the widths committed for earlier tasks, nearest difficulty first, each once.

    Equally near tasks come most recent first, tasks of unknown difficulty last. Widths outside the bounds or of another
    network are left out. If this task's difficulty is unknown, no task is near it.
    """
    if math.isnan(problem.difficulty):
        return []

    def distance(task: Experience) -> float:
        return math.inf if math.isnan(task.difficulty) else abs(task.difficulty - problem.difficulty)

    recent_first = problem.history[::-1]
    points = dict.fromkeys(task.best for task in sorted(recent_first, key=distance))
    return [point for point in points if lies_in(point, problem.bounds)]


def _hand_out_likely_point(ledger: Ledger) -> Widths:
    """Hand out the untried point of highest expected improvement, as far as L-BFGS-B and rounding find it."""
    trials = usable_trials(ledger.told, MOST_DATA)
    rewards = np.array([trial.reward for trial in trials])
    if len(set(rewards.tolist())) < 2:
        return ledger.hand_out_random()
    bounds = ledger.problem.bounds
    process = gaussian_process.fit(scale([trial.widths for trial in trials], bounds), rewards)
    best = float(rewards.max())
    if ledger.pending:
        pending = scale(ledger.pending, bounds)
        process = gaussian_process.believe(process, pending)
        best = max(best, float(gaussian_process.predict(process, pending)[0].max()))
    seed = seed_for(ledger.problem.seed, "ascent", ledger.started)
    rounded = unscale(gaussian_process.maximise_improvement(process, best, seed), bounds)
    free = ledger.free(rounded)
    if rounded[0] in free:
        return ledger.hand_out(rounded[0])
    free = free or ledger.nearest(rounded[0])
    values = gaussian_process.log_expected_improvement(process, scale(free, bounds), best)
    return ledger.hand_out(free[int(np.argmax(values))])


def scale(points: Sequence[Widths], bounds: Widths) -> FloatArray:
    """Return z / bound, (n, d); a group with bound 0 cannot vary and is left out of the d inputs."""
    growing = [group for group, bound in enumerate(bounds) if bound > 0]
    scaled: FloatArray = np.array(points, dtype=np.float64)[:, growing] / np.array(bounds)[growing]
    return scaled


def unscale(inputs: FloatArray, bounds: Widths) -> list[Widths]:
    """Return the lattice points nearest to inputs in the unit box, each once, in order; bound 0 gives 0."""
    growing = [group for group, bound in enumerate(bounds) if bound > 0]
    widths = np.zeros((len(inputs), len(bounds)), dtype=np.int64)
    widths[:, growing] = np.rint(np.clip(inputs, 0.0, 1.0) * np.array(bounds)[growing])
    return list(dict.fromkeys(tuple(row) for row in widths.tolist()))

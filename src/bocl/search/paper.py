"""The paper's search: warm start, Gaussian process, expected improvement by L-BFGS-B, rounded to integers.

Read literally, with four corrections: r* is the best reward so far, the improvement divides by the standard
deviation, the rounded point is the one recorded, and no point is tried twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from bocl.search import gaussian_process
from bocl.search.ledger import Ledger, LedgerSearch, usable_trials
from bocl.search.problem import FloatArray
from bocl.search.random_search import draw_point
from bocl.search.warm_start import earlier_points
from bocl.seeding import seed_for
from bocl.widths import Widths

MOST_DATA = 256  # a fit costs n³; N is about 20, so only a caller's own trials can reach this


class PaperSearch(LedgerSearch):
    """The paper's: a Gaussian process on the reward, expected improvement, warm start from earlier tasks.

    m opening points in one round, then one point at a time, each the best guess of a process fitted anew.

    - The process sees trials of this search that did not fail. Children trained beforehand (z = 0) are not
      among them, but they can win.
    - Asked again while points are pending, it takes each of them to be worth its posterior mean.
    - With fewer than two usable trials, or all of one reward, there is nothing to fit: the point is random.
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
    """Hand out what the nearest earlier task was given, if it is not taken; a random point where there is none."""
    earlier = ledger.free(earlier_points(ledger.problem))
    if not earlier:
        return draw_point(ledger)
    ledger.hand_out(earlier[0])
    return earlier[0]


def _hand_out_likely_point(ledger: Ledger) -> Widths:
    """Hand out the untried point of highest expected improvement, as far as L-BFGS-B and rounding find it."""
    trials = usable_trials(ledger.told, MOST_DATA)
    if len({trial.reward for trial in trials}) < 2:
        return draw_point(ledger)
    bounds = ledger.problem.bounds
    process = gaussian_process.fit(
        scale([trial.widths for trial in trials], bounds), np.array([trial.reward for trial in trials])
    )
    best = max(trial.reward for trial in trials)
    if ledger.pending:
        pending = scale(ledger.pending, bounds)
        process = gaussian_process.believe(process, pending)
        best = max(best, float(gaussian_process.predict(process, pending)[0].max()))
    seed = seed_for(ledger.problem.seed, "ascent", ledger.started)
    rounded = unscale(gaussian_process.maximise_improvement(process, best, seed), bounds)
    point = rounded[0]
    free = ledger.free(rounded)
    if point not in free:
        free = free or ledger.nearest(point)
        values = gaussian_process.log_expected_improvement(process, scale(free, bounds), best)
        point = free[int(np.argmax(values))]
    ledger.hand_out(point)
    return point


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

"""Our search: a Gaussian process on accuracy alone, expected improvement of the reward over integers.

What is unknown is A(z); how r follows from A and z (``Problem.reward``) is known and never modelled. Everything already
measured is data: the child z = 0, every trial of this task, and those of earlier tasks (``accuracy_model.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from bocl.records.record import Diagnostics, Trial
from bocl.search import accuracy_model
from bocl.search.accuracy_model import Accuracies, AccuracyModel, Hyperparameters, scale
from bocl.search.diagnostics import diagnose
from bocl.search.improvement import climb, log_reward_improvement, neighbours, spread_points
from bocl.search.lattice import lattice_size, whole_lattice
from bocl.search.ledger import Ledger, usable_trials
from bocl.search.problem import FloatArray, IntArray, Problem
from bocl.search.settings import SearchSettings
from bocl.seeding import seed_for
from bocl.widths import Widths

MOST_DATA = 256  # a fit costs n³
LEAST_TRIALS = 3  # before the expected improvement may end a search
LEANING = 9  # trials of this task, zero among them, up to which it leans on earlier tasks
WHOLE_LATTICE = 2048  # points up to which every one is tried out
SPREAD_POINTS = 512  # of a larger one that are tried out
BEST_CHILDREN = 3  # whose neighbours are tried out as well
POSTERIOR_POINTS = 256  # of which the posterior says how likely each is the best


class BayesianSearch:
    """Ours: a Gaussian process on accuracy, expected improvement over integers, all earlier trials as data.

    Without earlier tasks it opens with a round of m widths spread evenly over log1p(z). After that a round is chosen
    point by point, each taken to be worth its posterior mean by the next ones, as are points that are pending.

    - While it leans on earlier tasks, every second point is one of those spread evenly: tasks may be unlike, and
      points chosen by a wrong belief do not show that it is wrong. After that this task's own trials are enough.
    - A failed child is no data, and is never asked for again.
    - The winner is the trained child with the best posterior mean of r, not the luckiest measurement.
    - It is over when no point is expected to gain ``search.least_gain``, besides N, H and the end of the space.
    """

    def __init__(self, problem: Problem, settings: SearchSettings) -> None:
        """Prepare a search of the problem."""
        self._ledger = Ledger(problem, settings)
        self._earlier = _earlier_trials(problem) if settings.transfer else []
        self._space = _listed(problem)
        self._fitted: AccuracyModel | None = None  # on what was told so far; None: not fitted since
        self._last: Hyperparameters | None = None
        self._gains: dict[Widths, float] = {}  # expected improvement for which a point was asked

    def ask(self, count: int) -> list[Widths]:
        """Return 1 … count new widths; [] when there is nothing more to try, or to gain."""
        ledger = self._ledger
        room = ledger.room(count)
        asked: list[Widths] = []
        model = self._model() if room else None
        if model is None:
            # The opening round is no larger than m: points after it are better chosen by what it tells. Where it has
            # told too little to fit (children failed), they come one by one.
            room = min(room, max(ledger.settings.warm_points - ledger.started, 1))
        elif under_way := self._under_way():
            # What is being trained is taken to give its posterior mean, so that nothing is asked for right beside it.
            model = accuracy_model.believe(model, scale(under_way, ledger.problem.bounds))
        while len(asked) < room:
            doubts = self._doubts_earlier_tasks()
            point = self._opening_point() if model is None or doubts else self._best_point(model)
            if point is None:  # the space is used up, or nothing is to be gained: a shorter round, or the end
                break
            ledger.hand_out(point)
            asked.append(point)
            if model is not None:  # the next point of the round takes this one to be measured
                model = accuracy_model.believe(model, scale([point], ledger.problem.bounds))
        return asked

    def tell(self, trials: Sequence[Trial]) -> None:
        """Take in trained children."""
        self._ledger.take_in(trials)
        self._fitted = None

    def best(self) -> Widths:
        """Return the widths of the trained child with the best posterior mean of the reward."""
        luckiest = self._ledger.best()
        model = self._model()
        if model is None:
            return luckiest
        trained = self._trained()
        rewards = self._believed_rewards(model, np.array([trial.widths for trial in trained])).tolist()
        ranked = zip(rewards, trained, strict=True)
        return min(ranked, key=lambda pair: (-pair[0], pair[1].parameters, pair[1].widths))[1].widths

    def diagnostics(self) -> Diagnostics | None:
        """Return how far the process is to be trusted and what it believes; None while there is none."""
        model, ledger = self._model(), self._ledger
        if model is None or not self._trained():
            return None
        space = self._pool(None)
        some = space[:: -(-len(space) // POSTERIOR_POINTS)]
        points = np.concatenate([np.array([trial.widths for trial in self._trained()]), some])
        gains = [self._gains.get(trial.widths, math.nan) for trial in ledger.trained]
        seed = seed_for(ledger.problem.seed, "diagnostics")
        return diagnose(model, ledger.problem, np.unique(points, axis=0), gains, seed=seed)

    def _trained(self) -> list[Trial]:
        return [trial for trial in self._ledger.trained if not trial.failed]

    def _under_way(self) -> list[Widths]:
        """Return the widths of children that are being trained, or will be with the first round."""
        ledger = self._ledger
        told = {trial.widths for trial in ledger.given}
        return [*(widths for widths in ledger.problem.pending if widths not in told), *ledger.pending]

    def _model(self) -> AccuracyModel | None:
        """Return the process on everything told, fitted once; None while there is too little to fit."""
        ledger = self._ledger
        if not self._leans() and (len(self._trained()) < 2 or ledger.started < ledger.settings.warm_points):
            return None
        if not any(ledger.problem.bounds):
            return None
        if self._fitted is None:
            data = self._data()
            self._fitted = accuracy_model.fit(data, self._last)
            self._last = self._fitted.hyperparameters
        return self._fitted

    def _leans(self) -> bool:
        """Return whether earlier tasks are data still."""
        return bool(self._earlier) and len(self._trained()) <= LEANING

    def _doubts_earlier_tasks(self) -> bool:
        """Return whether the next point is one of those spread evenly: every second one, while earlier tasks are data.

        Counted over all rounds, so which trials these are does not depend on the size of a round.
        """
        is_second = self._ledger.started % 2 == 1
        return is_second and self._leans()

    def _data(self) -> Accuracies:
        """Return this task's trials and, as far as there is room, those of the latest earlier tasks."""
        bounds = self._ledger.problem.bounds
        own = usable_trials(self._trained(), MOST_DATA)
        room = MOST_DATA - len(own) if self._leans() else 0
        rows = [(0, trial) for trial in own] + self._earlier[:room]
        return Accuracies(
            scale([trial.widths for _, trial in rows], bounds),
            np.array([task for task, _ in rows], dtype=np.int64),
            np.array([trial.accuracy for _, trial in rows]),
        )

    def _believed_rewards(self, model: AccuracyModel, points: IntArray) -> FloatArray:
        """Return r (n,) of widths (n, groups) as accurate as their posterior mean."""
        problem = self._ledger.problem
        return problem.reward(accuracy_model.predict(model, scale(points, problem.bounds))[0], points)

    def _best_point(self, model: AccuracyModel) -> Widths | None:
        """Return the untried point of highest expected improvement; None where there is none, or nothing to gain."""
        ledger, problem = self._ledger, self._ledger.problem
        known = [trial.widths for trial in self._trained()] + self._under_way() or [(0,) * len(problem.bounds)]
        worth = self._believed_rewards(model, np.array(known))
        reference = float(worth.max())

        def gain(points: IntArray) -> FloatArray:
            mean, std = accuracy_model.predict(model, scale(points, problem.bounds))
            return log_reward_improvement(problem, points, mean, std, reference)

        promising = np.array(known)[np.argsort(-worth, kind="stable")[:BEST_CHILDREN]]
        pool = self._untried(self._pool(promising))
        if not len(pool):
            return None
        point, value = climb(pool, gain, self._untried, problem.bounds)
        least_gain = ledger.settings.least_gain
        enough = len(ledger.told) >= LEAST_TRIALS and least_gain > 0 and value < math.log(least_gain)
        if enough:
            return None
        self._gains[point] = math.exp(value)
        return point

    def _pool(self, promising: IntArray | None) -> IntArray:
        """Return points to try out: all that are listed, or some all over the box and around promising ones."""
        if self._space is not None:
            return self._space
        around = [] if promising is None else [neighbours(promising, self._ledger.problem.bounds)]
        return np.concatenate([self._spread(SPREAD_POINTS), *around])

    def _opening_point(self) -> Widths | None:
        """Return the next of points spread over the box, or the nearest untried one of a space that is listed."""
        ledger = self._ledger
        spread = self._spread(ledger.started + 1)
        if self._space is None:
            free = self._untried(spread[ledger.started :])
            free = free if len(free) else self._untried(self._spread(SPREAD_POINTS))
        else:
            free = self._untried(self._space)
            offsets = scale(free, ledger.problem.bounds) - scale(spread[-1:], ledger.problem.bounds)
            free = free[np.argsort(np.square(offsets).sum(1), kind="stable")]
        return tuple(free[0].tolist()) if len(free) else None

    def _spread(self, count: int) -> IntArray:
        """Return count points spread over the box, those over the budget drawn towards zero until they fit."""
        problem = self._ledger.problem
        points = spread_points(problem.bounds, count, seed_for(problem.seed, "spread"))
        return points if problem.budget is None else _shrunk(points, problem.parameters, problem.budget)

    def _untried(self, points: IntArray) -> IntArray:
        """Return those of points (n, groups) that may be asked for, each once, in lexicographic order."""
        free = self._ledger.free(sorted({tuple(row) for row in points.tolist()}))
        kept: IntArray = np.array(free, dtype=np.int64).reshape(-1, points.shape[1])
        return kept


def _listed(problem: Problem) -> IntArray | None:
    """Return all points (n, groups) of a restricted or small space; None of a large one."""
    if problem.candidates is not None:
        return np.array(problem.candidates, dtype=np.int64)
    return whole_lattice(problem.bounds) if lattice_size(problem.bounds) <= WHOLE_LATTICE else None


def _shrunk(points: IntArray, parameters: Callable[[IntArray], IntArray], budget: int) -> IntArray:
    """Scale points (n, groups) down, in their proportions, as little as the budget asks for."""
    least, most = np.zeros(len(points)), np.ones(len(points))
    for _ in range(points.max(initial=1).item().bit_length() + 1):
        middle = (least + most) / 2
        fits = parameters(np.floor(points * middle[:, None]).astype(np.int64)) <= budget
        least, most = np.where(fits, middle, least), np.where(fits, most, middle)
    share = np.where(parameters(points) <= budget, 1.0, least)
    shrunk: IntArray = np.floor(points * share[:, None]).astype(np.int64)
    return shrunk


def _earlier_trials(problem: Problem) -> list[tuple[int, Trial]]:
    """Return (1, 2, …, trial) of earlier tasks, the latest task first, of networks with the same groups.

    A group that cannot grow for this task has no input to tell by; trials that grew it are left out.
    """
    found = []
    for task, experience in enumerate(reversed(problem.history), start=1):
        for trial in sorted(experience.trials, key=lambda trial: trial.widths):
            fits = len(trial.widths) == len(problem.bounds)
            if (
                fits
                and not trial.failed
                and not any(width for width, bound in zip(trial.widths, problem.bounds, strict=True) if bound == 0)
            ):
                found.append((task, trial))
    return found

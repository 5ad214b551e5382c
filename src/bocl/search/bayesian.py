"""Our search: a Gaussian process on accuracy, expected improvement of the reward over integers.

Only A(z) is unknown and modelled; how r follows from A and z (``Problem.reward``) is known. All measurements are data:
the child z = 0, every trial of this task, and those of earlier tasks (``accuracy_model.py``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bocl.records.record import Diagnostics, Trial
from bocl.search import accuracy_model
from bocl.search.accuracy_model import Accuracies, AccuracyModel, Hyperparameters, scale
from bocl.search.diagnostics import diagnose
from bocl.search.improvement import (
    climb,
    log_reward_improvement,
    log_tolerance_gain,
    neighbours,
    spread_points,
)
from bocl.search.lattice import lattice_size, whole_lattice
from bocl.search.ledger import Ledger, usable_trials
from bocl.search.problem import FloatArray, IntArray, Problem
from bocl.search.settings import SearchSettings
from bocl.seeding import seed_for
from bocl.widths import Widths

MOST_DATA = 256  # a fit costs n³
LEAST_TRIALS = 3  # before the expected improvement may end a search
LEANING = 9  # number of this task's trials, z = 0 included, up to which it uses those of earlier tasks
WHOLE_LATTICE = 2048  # a space of at most so many points is scored whole
SPREAD_POINTS = 512  # points of a larger space that are scored
BEST_CHILDREN = 3  # whose neighbours are scored as well
MOST_TOLERANCES = 2  # that a standard error may count as
GAIN_SHARE = 0.2  # of the tolerance: a search goes on for a fifth of it in accuracy, or for 2 % of all parameters
POSTERIOR_POINTS = 256  # for which diagnostics say how likely each is the best


class BayesianSearch:
    """Ours: a Gaussian process on accuracy, expected improvement over integers, all earlier trials as data.

    Without earlier tasks it opens with a round of m widths spread evenly over log1p(z). After that a round is chosen
    point by point. Pending points and those chosen before are assumed to give their posterior mean.

    - While it uses trials of earlier tasks, every second point is one of those spread evenly: tasks may differ, and
      points chosen by a wrong belief do not show that it is wrong. After that this task's own trials are enough.
    - A failed child is not used as data, and is never asked for again.
    - The winner is the trained child with the best posterior mean of r, not the luckiest measurement. With a tolerance
      it is the smallest child whose posterior mean of A is within ε of the best one, where ε is the tolerance, or the
      posterior standard deviation of that best one if it is larger, but at most twice the tolerance: where samples are
      too few to tell children apart, the smallest may be much worse.
    - Of children that were stopped early, what was measured at the first rung of their rounds is data, as that of
      another task: levels differ, what widths are worth is much the same.
    - Besides N, H and the end of the space, it ends when no point is expected to gain ``search.least_gain``.
    """

    def __init__(self, problem: Problem, settings: SearchSettings) -> None:
        """Prepare a search of the problem."""
        self._ledger = Ledger(problem, settings)
        self._earlier = _earlier_trials(problem) if settings.transfer else []
        self._listed = _listed(problem)
        self._fitted: AccuracyModel | None = None  # None: something was told since the last fit
        self._last: Hyperparameters | None = None
        self._gains: dict[Widths, float] = {}  # expected improvement for which a point was asked

    def ask(self, count: int) -> list[Widths]:
        """Return 1 … count new widths; [] when there is nothing more to try, or to gain."""
        ledger = self._ledger
        room = ledger.room(count)
        asked: list[Widths] = []
        model = self._model() if room else None
        if model is None:
            # The opening round has at most m points: later ones are better chosen by its results. If too few children
            # succeeded to fit a process, the next points come one by one.
            room = min(room, max(ledger.settings.warm_points - ledger.started, 1))
        elif under_way := ledger.under_way:
            # Children in training are assumed to give their posterior mean, so that nothing next to them is asked for.
            model = accuracy_model.believe(model, self._inputs(under_way))
        while len(asked) < room:
            # While it uses earlier tasks, every second trial is one of those spread evenly. Trials are counted over all
            # rounds, so that which ones these are does not depend on the size of a round.
            doubts = self._leans() and ledger.started % 2 == 1
            point = self._opening_point() if model is None or doubts else self._best_point(model)
            if point is None:  # nothing is left to try, or to gain: a shorter round, or the end
                break
            asked.append(ledger.hand_out(point))
            if model is not None:
                model = accuracy_model.believe(model, self._inputs([point]))
        return asked

    def tell(self, trials: Sequence[Trial]) -> None:
        """Take in trained children."""
        self._ledger.take_in(trials)
        self._fitted = None

    def best(self) -> Widths:
        """Return the widths of the trained child that is best by the goal, as far as the process can tell."""
        luckiest = self._ledger.best()
        model = self._model()
        trained = self._ledger.succeeded
        if self._ledger.problem.tolerance is not None:
            return self._smallest_within(model, [trial.widths for trial in trained])[0]
        if model is None:
            return luckiest
        rewards = self._believed_rewards(model, np.array([trial.widths for trial in trained])).tolist()
        ranked = zip(rewards, trained, strict=True)
        return min(ranked, key=lambda pair: (-pair[0], pair[1].parameters, pair[1].widths))[1].widths

    def diagnostics(self) -> Diagnostics | None:
        """Return how far the process can be trusted and what it believes; None if there is no process yet."""
        model, ledger = self._model(), self._ledger
        trained = ledger.succeeded
        if model is None or not trained:
            return None
        space = self._space()
        some = space[:: -(-len(space) // POSTERIOR_POINTS)]
        points = np.concatenate([np.array([trial.widths for trial in trained]), some])
        gains = [self._gains.get(trial.widths, math.nan) for trial in ledger.trained]
        seed = seed_for(ledger.problem.seed, "diagnostics")
        return diagnose(model, ledger.problem, np.unique(points, axis=0), gains, seed=seed)

    def _leans(self) -> bool:
        """Return whether trials of earlier tasks are still used as data."""
        return bool(self._earlier) and len(self._ledger.succeeded) <= LEANING

    def _model(self) -> AccuracyModel | None:
        """Return the process on everything told, fitted once; None if there is too little to fit."""
        ledger, bounds, trained = self._ledger, self._ledger.problem.bounds, self._ledger.succeeded
        if not self._leans() and (len(trained) < 2 or ledger.started < ledger.settings.warm_points):
            return None
        if not any(bounds):
            return None
        if self._fitted is None:
            own = usable_trials(trained, MOST_DATA)
            rows = [(0, trial.widths, ledger.problem.measured(trial)) for trial in own]
            if any(trial.stopped for trial in ledger.trained):
                early = sorted((trial.widths, trial.rungs[0]) for trial in ledger.trained if trial.rungs)
                rows += [(-1, widths, rung) for widths, rung in early if math.isfinite(rung)]
            if self._leans():
                rows += self._earlier[: max(0, MOST_DATA - len(rows))]
            data = Accuracies(
                self._inputs([widths for _, widths, _ in rows]),
                np.array([task for task, _, _ in rows], dtype=np.int64),
                np.array([accuracy for _, _, accuracy in rows]),
            )
            self._fitted = accuracy_model.fit(data, self._last)
            self._last = self._fitted.hyperparameters
        return self._fitted

    def _believed_rewards(self, model: AccuracyModel, points: IntArray) -> FloatArray:
        """Return r (n,) of widths (n, groups) if they are as accurate as their posterior mean."""
        return self._ledger.problem.reward(accuracy_model.predict(model, self._inputs(points))[0], points)

    def _inputs(self, points: Sequence[Widths] | IntArray) -> FloatArray:
        problem = self._ledger.problem
        return scale(points, problem.bounds, problem.choices)

    def _smallest_within(self, model: AccuracyModel | None, points: Sequence[Widths]) -> tuple[Widths, float, float]:
        """Return the smallest of some points within the tolerance of the best, the best posterior mean, and ε.

        Without a process, accuracies as measured take the place of posterior means.
        """
        problem = self._ledger.problem
        assert problem.tolerance is not None
        rows = np.array(points, dtype=np.int64)
        if model is None:
            measured = {trial.widths: problem.measured(trial) for trial in self._ledger.succeeded}
            mean, std = np.array([measured[point] for point in points]), np.zeros(len(points))
        else:
            mean, std = accuracy_model.predict(model, self._inputs(rows))
        top = int(mean.argmax())
        within = min(max(problem.tolerance, float(std[top])), MOST_TOLERANCES * problem.tolerance)
        sizes = problem.parameters(rows)
        good = [place for place in range(len(points)) if mean[place] >= mean[top] - within]
        smallest = min(good, key=lambda place: (sizes[place], -mean[place], points[place]))
        return points[smallest], float(mean[top]), within

    def _best_point(self, model: AccuracyModel) -> Widths | None:
        """Return the untried point of highest expected improvement; None if none is left, or nothing to gain."""
        ledger, problem = self._ledger, self._ledger.problem
        known = [trial.widths for trial in ledger.succeeded] + ledger.under_way or [(0,) * len(problem.bounds)]
        worth = self._believed_rewards(model, np.array(known))
        reference, least_gain = float(worth.max()), ledger.settings.least_gain
        if problem.tolerance is not None:
            smallest, reference, within = self._smallest_within(model, known)
            share = float(problem.share(np.array([smallest]))[0])
            least_gain = GAIN_SHARE * within if least_gain else 0.0

        def gain(points: IntArray) -> FloatArray:
            mean, std = accuracy_model.predict(model, self._inputs(points))
            if problem.tolerance is not None:
                return log_tolerance_gain(share - problem.share(points), mean, std, reference, within)
            return log_reward_improvement(problem, points, mean, std, reference)

        promising = np.array(known)[np.argsort(-worth, kind="stable")[:BEST_CHILDREN]]
        pool = self._untried(np.concatenate([self._space(), neighbours(promising, problem.bounds)]))
        if not len(pool):
            return None
        point, value = climb(pool, gain, self._untried, problem.bounds)
        if len(ledger.told) >= LEAST_TRIALS and least_gain > 0 and value < math.log(least_gain):
            return None
        self._gains[point] = math.exp(value)
        return point

    def _opening_point(self) -> Widths | None:
        """Return the next of the points spread over the box, or the untried point of a listed space nearest to it."""
        ledger = self._ledger
        spread = self._spread(ledger.started + 1)
        if self._listed is None:
            free = self._untried(spread[ledger.started :])
            free = free if len(free) else self._untried(self._spread(SPREAD_POINTS))
        else:
            free = self._untried(self._listed)
            offsets = self._inputs(free) - self._inputs(spread[-1:])
            free = free[np.argsort(np.square(offsets).sum(1), kind="stable")]
        return tuple(free[0].tolist()) if len(free) else None

    def _space(self) -> IntArray:
        """Return all points (n, groups) of a listed space, or some spread over the box."""
        return self._spread(SPREAD_POINTS) if self._listed is None else self._listed

    def _spread(self, count: int) -> IntArray:
        """Return count points (n, groups) spread over the box, shrunk where they exceed the budget."""
        problem = self._ledger.problem
        seed = seed_for(problem.seed, "spread")
        return _shrunk(spread_points(problem.bounds, count, seed, choices=len(problem.choices)), problem)

    def _untried(self, points: IntArray) -> IntArray:
        """Return the points (n, groups) that may be asked for, each once, in lexicographic order."""
        free = self._ledger.free(sorted({tuple(row) for row in points.tolist()}))
        kept: IntArray = np.array(free, dtype=np.int64).reshape(-1, points.shape[1])
        return kept


def _listed(problem: Problem) -> IntArray | None:
    """Return all points (n, groups) of a restricted or small space; None for a large one."""
    if problem.candidates is not None:
        return np.array(problem.candidates, dtype=np.int64)
    if problem.choices:  # a larger space, in which a spread reaches every choice
        return None
    return whole_lattice(problem.bounds) if lattice_size(problem.bounds) <= WHOLE_LATTICE else None


def _shrunk(points: IntArray, problem: Problem) -> IntArray:
    """Scale the widths of points (n, groups) down, in their proportions, as little as the budget requires."""
    least, most = np.zeros(len(points)), np.ones(len(points))

    def smaller(share: FloatArray) -> IntArray:
        scaled: IntArray = np.floor(points * share[:, None]).astype(np.int64)
        if problem.choices:
            scaled[:, -1] = points[:, -1]
            own = np.array([kind == "own" for kind in problem.choices])[points[:, -1]]
            # A network of its own has units in every group; where one cannot have any, there is none to ask for.
            scaled[own, :-1] = np.maximum(scaled[own, :-1], np.minimum(problem.bounds[:-1], 1))
        return scaled

    for _ in range(points.max(initial=1).item().bit_length() + 1):
        middle = (least + most) / 2
        fits = problem.allowed(smaller(middle))
        least, most = np.where(fits, middle, least), np.where(fits, most, middle)
    return smaller(np.where(problem.allowed(points), 1.0, least))


def _earlier_trials(problem: Problem) -> list[tuple[int, Widths, float]]:
    """Return (1, 2, …, point, accuracy) of the trials of earlier tasks, the latest task first.

    Trials of networks with other groups are left out, trials that grew a group which cannot grow for this task, and
    those that read what this task cannot choose.
    """

    def points(trials: Sequence[Trial]) -> list[tuple[Widths, float]]:
        found = [(problem.point_of(trial), problem.measured(trial)) for trial in trials if not trial.failed]
        return sorted((point, accuracy) for point, accuracy in found if point is not None and fits(point))

    def fits(point: Widths) -> bool:
        if len(point) != len(problem.bounds):
            return False
        widths = zip(point[: problem.groups], problem.bounds, strict=False)
        return all(bound or not width for width, bound in widths)

    return [
        (task, point, accuracy)
        for task, experience in enumerate(reversed(problem.history), start=1)
        for point, accuracy in points(experience.trials)
    ]

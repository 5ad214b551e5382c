"""What a search has asked for and been told. Every problem and every trial is checked here."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bocl.errors import InputError, WorkError
from bocl.records.record import Trial
from bocl.search.lattice import lies_in, listed, nearest_of, nearest_untried, random_untried
from bocl.search.problem import BoolArray, IntArray, Problem
from bocl.search.settings import SearchSettings
from bocl.search.stopping import trials_left
from bocl.seeding import seed_for
from bocl.widths import Widths


class Ledger:
    """The state of one search.

    given       trained children that are not trials of the search: ``Problem.trained`` and, once told, ``.pending``
    told        trials of the search, in the order they were told
    pending     widths handed out and not told yet, in the order they were asked for
    taken       all widths that must not be asked for again: given, told or pending
    candidates  the only widths that may be asked for, in lexicographic order; None: all that the budget allows
    """

    def __init__(self, problem: Problem, settings: SearchSettings) -> None:
        """Open an empty ledger for a valid problem."""
        _check_problem(problem)
        self.problem = problem
        self.settings = settings
        self.given: list[Trial] = list(problem.trained)
        self.told: list[Trial] = []
        self.pending: list[Widths] = []
        self.taken: set[Widths] = {*(trial.widths for trial in problem.trained), *problem.pending}
        self.candidates: dict[Widths, None] | None = None  # a dict keeps its order and is searched quickly
        if problem.candidates is not None:
            self.candidates = dict.fromkeys(self._allowed(sorted(set(problem.candidates))))
        self._points = self._all_points() if self.candidates is None else iter(self.candidates)
        self._listed: list[Widths] = []  # as many of them as were needed to see that enough are left

    @property
    def started(self) -> int:
        """Number of trials told or pending, which is also the number of the next trial."""
        return len(self.told) + len(self.pending)

    @property
    def trained(self) -> list[Trial]:
        """Every child that was told, including failed ones."""
        return [*self.given, *self.told]

    @property
    def succeeded(self) -> list[Trial]:
        """Every child that was told and did not fail."""
        return [trial for trial in self.trained if not trial.failed]

    @property
    def under_way(self) -> list[Widths]:
        """Widths that are being trained, or will be with the first round."""
        told = {trial.widths for trial in self.given}
        return [*(widths for widths in self.problem.pending if widths not in told), *self.pending]

    def room(self, count: int) -> int:
        """Return how many of ``count`` points may be handed out now."""
        if count < 1:
            raise InputError(f"asked for {count} points; ask for 1 or more")
        count = min(count, self.settings.most_trials)
        # List only as many points as it takes to find ``count`` untried ones.
        self._listed += itertools.islice(self._points, max(0, len(self.taken) + count - len(self._listed)))
        untried = sum(point not in self.taken for point in self._listed)
        return min(count, trials_left(self.told, pending=len(self.pending), untried=untried, settings=self.settings))

    def free(self, points: Sequence[Widths]) -> list[Widths]:
        """Return the points that may be handed out: allowed and not taken."""
        if self.candidates is not None:
            points = [point for point in points if point in self.candidates]
        return [point for point in self._allowed(points) if point not in self.taken]

    def nearest(self, centre: Widths) -> list[Widths]:
        """Return the points that may be handed out at the least distance Σ |z_i - centre_i|; [] when none is left."""
        if self.candidates is not None:
            return nearest_of(self.free([*self.candidates]), centre)
        found: list[Widths] = []
        for box in _boxes(self.problem):
            taken = {point for point in map(box.inside, self.taken) if point is not None}
            found += map(box.point, nearest_untried(box.nearest(centre), box.bounds, taken, box.allowed))
        return nearest_of(found, centre)

    def hand_out(self, widths: Widths) -> Widths:
        """Record that widths are being trained, and return them."""
        self.pending.append(widths)
        self.taken.add(widths)
        return widths

    def hand_out_random(self) -> Widths:
        """Hand out a random untried point; there must be one. It depends on the seed and the number of the trial."""
        seed = seed_for(self.problem.seed, "random point", self.started)
        if self.candidates is None:
            problem = self.problem
            return self.hand_out(random_untried(problem.bounds, self.taken, seed, problem.allowed, self._all_points))
        free = self.free([*self.candidates])
        return self.hand_out(free[int(np.random.default_rng(seed).integers(len(free)))])

    def take_in(self, trials: Sequence[Trial]) -> None:
        """Record trained children, whether asked for or not. If one of them is invalid, none is recorded."""
        seen = {trial.widths for trial in self.trained}
        for trial in trials:
            _check_trial(trial, self.problem)
            if trial.widths in seen:
                raise InputError(f"widths {trial.widths} were told already; tell every child once")
            seen.add(trial.widths)
        for trial in trials:
            if trial.widths in self.pending:
                self.pending.remove(trial.widths)
            self.taken.add(trial.widths)
            (self.given if trial.widths in self.problem.pending else self.told).append(trial)

    def best(self) -> Widths:
        """Return the widths of the highest reward, given children included.

        Equal rewards are decided by fewer parameters, then by lexicographically smaller widths.
        """
        if not self.succeeded:
            reason = f"all {len(self.trained)} children failed" if self.trained else "no child was trained yet"
            raise WorkError(f"there is no best child: {reason}; tell a trial with a finite accuracy first")
        return min(self.succeeded, key=lambda trial: (-trial.reward, trial.parameters, trial.widths)).widths

    def _all_points(self) -> Iterator[Widths]:
        """Return all points that the budget allows."""
        return (box.point(inner) for box in _boxes(self.problem) for inner in listed(box.bounds, box.allowed))

    def _allowed(self, points: Sequence[Widths]) -> list[Widths]:
        """Return the points that the budget allows."""
        rows = np.array(points, dtype=np.int64).reshape(-1, len(self.problem.bounds))
        return [point for point, allowed in zip(points, self.problem.allowed(rows), strict=True) if allowed]


@dataclass(frozen=True)
class _Box:
    """The points of one choice, as a box that begins at 0 and in which every point below an allowed one is allowed.

    least   of every width: 1 in a network of the task's own
    choice  the last entry of its points; none where there is nothing to choose
    """

    problem: Problem
    least: int
    choice: Widths

    @property
    def bounds(self) -> Widths:
        return tuple(bound - self.least for bound in self.problem.bounds[: self.problem.groups])

    def point(self, inner: Widths) -> Widths:
        return (*(width + self.least for width in inner), *self.choice)

    def inside(self, point: Widths) -> Widths | None:
        """Return a point as it is in here; None if it is of another choice."""
        widths, choice = point[: self.problem.groups], point[self.problem.groups :]
        return tuple(width - self.least for width in widths) if choice == self.choice else None

    def nearest(self, point: Widths) -> Widths:
        """Return the point in here that is nearest to any point."""
        return tuple(max(width - self.least, 0) for width in point[: self.problem.groups])

    def allowed(self, inner: IntArray) -> BoolArray:
        rest = np.tile(np.array(self.choice, dtype=np.int64), (len(inner), 1))
        return self.problem.allowed(np.concatenate([inner + self.least, rest], axis=1))


def _boxes(problem: Problem) -> list[_Box]:
    """Return the boxes that a problem's points make: one for every choice."""
    if not problem.choices:
        return [_Box(problem, 0, ())]
    boxes = [_Box(problem, int(kind == "own"), (number,)) for number, kind in enumerate(problem.choices)]
    return [box for box in boxes if min(box.bounds) >= 0]


class LedgerSearch:
    """What is common to searchers that take the child of highest reward as the best."""

    def __init__(self, problem: Problem, settings: SearchSettings) -> None:
        """Prepare a search of the problem."""
        self._ledger = Ledger(problem, settings)

    def tell(self, trials: Sequence[Trial]) -> None:
        """Take in trained children."""
        self._ledger.take_in(trials)

    def best(self) -> Widths:
        """Return the widths of the trained child with the highest reward."""
        return self._ledger.best()


def usable_trials(told: Sequence[Trial], most: int) -> list[Trial]:
    """Return the trials to fit, sorted by widths, so that the order of telling changes nothing.

    If there are more than ``most``, half of that number are the best ones, and the other half the latest of the rest.
    """
    trials = [trial for trial in told if not trial.failed]
    if len(trials) > most:
        best_last = sorted(range(len(trials)), key=lambda position: trials[position].reward)
        others, top = best_last[: -most // 2], best_last[-most // 2 :]
        latest = sorted(others)[-most // 2 :]
        trials = [trials[position] for position in (*top, *latest)]
    return sorted(trials, key=lambda trial: trial.widths)


def _check_problem(problem: Problem) -> None:
    """Refuse a problem that no searcher can work on."""
    if not problem.bounds or not lies_in(problem.bounds, problem.bounds):
        raise InputError(f"bounds are {problem.bounds}; give one whole number, 0 or more, per hidden group")
    earlier = {f"history[{place}]": experience.difficulty for place, experience in enumerate(problem.history)}
    for what, difficulty in {"the task": problem.difficulty, **earlier}.items():
        if math.isinf(difficulty):
            raise InputError(f"{what} has difficulty {difficulty}; give M_t = A¹ - A², or NaN where it is unknown")
    for trial in problem.trained:
        _check_trial(trial, problem)
    for what, points in (("candidate", problem.candidates or ()), ("pending child", problem.pending)):
        for widths in points:
            _check_widths(what, widths, problem.bounds)


def _check_trial(trial: Trial, problem: Problem) -> None:
    """Refuse a child outside the bounds or the budget, or with a reward that cannot be compared."""
    _check_widths("trial", trial.widths, problem.bounds)
    if not problem.allowed(np.array([trial.widths], dtype=np.int64))[0]:
        raise InputError(f"widths {trial.widths} exceed the budget of {problem.budget:,} parameters")
    if not trial.failed and not math.isfinite(trial.reward):
        raise InputError(
            f"widths {trial.widths} have accuracy {trial.accuracy} but reward {trial.reward}; "
            "a failed child has a NaN accuracy, every other a finite reward"
        )


def _check_widths(what: str, widths: Widths, bounds: Widths) -> None:
    if not lies_in(widths, bounds):
        raise InputError(f"{what} {widths} is not one whole number per group within the bounds {bounds}")

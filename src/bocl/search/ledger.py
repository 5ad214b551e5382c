"""What a search has handed out and been told, checked at the door; the best child is read off it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from bocl.errors import InputError, WorkError
from bocl.records.record import Trial
from bocl.search.lattice import lies_in, listed, nearest_of, nearest_untried, random_untried
from bocl.search.problem import Problem
from bocl.search.settings import SearchSettings
from bocl.search.stopping import trials_left
from bocl.widths import Widths


class Ledger:
    """The state of one search.

    given       trained children that are no trials of the search: those the problem came with, pending ones once told
    told        trained children, in the order they were told
    pending     widths handed out and not told yet, in the order they were asked for
    taken       all widths that must not be asked for again: given, told or pending
    candidates  the only widths that may be asked for, in lexicographic order; None: all that the budget allows
    """

    def __init__(self, problem: Problem, settings: SearchSettings) -> None:
        """Open an empty ledger for a problem that makes sense."""
        check_problem(problem)
        self.problem = problem
        self.settings = settings
        self.given: list[Trial] = list(problem.trained)
        self.told: list[Trial] = []
        self.pending: list[Widths] = []
        self.taken: set[Widths] = {*(trial.widths for trial in problem.trained), *problem.pending}
        self.candidates = _allowed_candidates(problem)
        self._points = listed(problem.bounds, problem.allowed) if self.candidates is None else iter(self.candidates)
        self._listed: list[Widths] = []  # as many of them as were needed to see that enough are left

    @property
    def started(self) -> int:
        """Trials told or under way: the running number of the next one."""
        return len(self.told) + len(self.pending)

    @property
    def trained(self) -> list[Trial]:
        """Every child there is an answer of, failed ones too."""
        return [*self.given, *self.told]

    def room(self, count: int) -> int:
        """Return how many of ``count`` points may be handed out now."""
        if count < 1:
            raise InputError(f"asked for {count} points; ask for 1 or more")
        count = min(count, self.settings.most_trials)
        untried = self._untried(count)
        return min(count, trials_left(self.told, pending=len(self.pending), untried=untried, settings=self.settings))

    def _untried(self, wanted: int) -> int:
        """Count the points left to ask for; from ``wanted`` on the count may be too small."""
        self._listed += itertools.islice(self._points, max(0, len(self.taken) + wanted - len(self._listed)))
        return sum(point not in self.taken for point in self._listed)

    def free(self, points: Sequence[Widths]) -> list[Widths]:
        """Return those of the points that may be handed out: allowed, and not taken."""
        if self.candidates is not None:
            points = [z for z in points if z in self.candidates]
        kept = self.problem.allowed(np.array(points, dtype=np.int64).reshape(-1, len(self.problem.bounds)))
        return [z for z, allowed in zip(points, kept, strict=True) if allowed and z not in self.taken]

    def nearest(self, centre: Widths) -> list[Widths]:
        """Return the points that may be handed out at the least distance Σ |z_i - centre_i|; [] when none is left."""
        if self.candidates is None:
            return nearest_untried(centre, self.problem.bounds, self.taken, self.problem.allowed)
        return nearest_of([point for point in self.candidates if point not in self.taken], centre)

    def random(self, seed: int) -> Widths:
        """Return a random point that may be handed out; there must be one."""
        if self.candidates is None:
            return random_untried(self.problem.bounds, self.taken, seed, self.problem.allowed)
        free = [point for point in self.candidates if point not in self.taken]
        return free[int(np.random.default_rng(seed).integers(len(free)))]

    def hand_out(self, widths: Widths) -> None:
        """Note that widths are being trained."""
        self.pending.append(widths)
        self.taken.add(widths)

    def take_in(self, trials: Sequence[Trial]) -> None:
        """Note trained children, asked for or not; a bad one among them is refused and nothing is noted."""
        seen = {trial.widths for trial in self.trained}
        for trial in trials:
            check_trial(trial, self.problem)
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

        Of equal rewards the one with fewer parameters wins, then the lexicographically smaller widths.
        """
        children = self.trained
        trained = [trial for trial in children if not trial.failed]
        if not trained:
            reason = f"all {len(children)} children failed" if children else "no child was trained yet"
            raise WorkError(f"there is no best child: {reason}; tell a trial with a finite accuracy first")
        return min(trained, key=lambda trial: (-trial.reward, trial.parameters, trial.widths)).widths


class LedgerSearch:
    """What searchers have in common that keep nothing but a ledger: the child of highest reward is the best."""

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

    Of more than ``most`` the better half of that number stays, and the latest of the others.
    """
    trials = [trial for trial in told if not trial.failed]
    if len(trials) > most:
        best_last = sorted(range(len(trials)), key=lambda position: trials[position].reward)
        others, top = best_last[: -most // 2], best_last[-most // 2 :]
        latest = sorted(others)[-most // 2 :]
        trials = [trials[position] for position in (*top, *latest)]
    return sorted(trials, key=lambda trial: trial.widths)


def _allowed_candidates(problem: Problem) -> dict[Widths, None] | None:
    """Return the candidates the budget allows; a dict, which keeps its order and is searched quickly."""
    if problem.candidates is None:
        return None
    points = sorted(set(problem.candidates))
    kept = problem.allowed(np.array(points, dtype=np.int64).reshape(-1, len(problem.bounds)))
    return {point: None for point, allowed in zip(points, kept, strict=True) if allowed}


def check_problem(problem: Problem) -> None:
    """Refuse a problem that no searcher can work on."""
    if not problem.bounds or not lies_in(problem.bounds, problem.bounds):
        raise InputError(f"bounds are {problem.bounds}; give one whole number, 0 or more, per hidden group")
    if math.isinf(problem.difficulty):
        raise InputError(
            f"the task's difficulty is {problem.difficulty}; give M_t = A¹ - A², or NaN where it is unknown"
        )
    for position, experience in enumerate(problem.history):
        if math.isinf(experience.difficulty):
            raise InputError(f"history[{position}] has difficulty {experience.difficulty}; NaN says it is unknown")
    for trial in problem.trained:
        check_trial(trial, problem)
    for what, points in (("candidate", problem.candidates or ()), ("pending child", problem.pending)):
        for widths in points:
            if not lies_in(widths, problem.bounds):
                raise InputError(
                    f"{what} {widths} is not one whole number per group within the bounds {problem.bounds}"
                )


def check_trial(trial: Trial, problem: Problem) -> None:
    """Refuse a child of another shape, outside the bounds or the budget, or of a reward that cannot be compared."""
    bounds = problem.bounds
    if len(trial.widths) != len(bounds):
        raise InputError(
            f"widths {trial.widths} have {len(trial.widths)} entries; the problem has {len(bounds)} groups"
        )
    if not lies_in(trial.widths, bounds):
        raise InputError(f"widths {trial.widths} are not whole numbers between 0 and the bounds {bounds}")
    if not problem.allowed(np.array([trial.widths], dtype=np.int64))[0]:
        raise InputError(f"widths {trial.widths} exceed the budget of {problem.budget:,} parameters")
    if not trial.failed and not math.isfinite(trial.reward):
        raise InputError(
            f"widths {trial.widths} have accuracy {trial.accuracy} but reward {trial.reward}; "
            "a failed child has a NaN accuracy, every other a finite reward"
        )

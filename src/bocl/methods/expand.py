"""Growing for one more task (the paper's Algorithm 2): search asks, children are trained, the best one wins.

The only place where search and networks meet: both speak tuples of integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bocl.errors import InputError
from bocl.methods.failures import check_trained
from bocl.methods.halving import Halving, halving_for
from bocl.methods.reading import ReadingSpace
from bocl.methods.reward import RewardSettings, make_cost
from bocl.methods.rounds import RoundMaker, RoundTrainer, TrainedChild, padding
from bocl.methods.searcher_answers import as_widths, asked_widths, check_searcher
from bocl.networks.growing import GrowingNetwork, GrowingSpace
from bocl.networks.growth import Growth
from bocl.records.events import Callback, RoundStarted, TrialDone
from bocl.records.record import Diagnostics, Limit, Trial
from bocl.search.lattice import lies_in
from bocl.search.problem import Explains, Problem, Searcher
from bocl.search.searchers import SearcherFactory
from bocl.search.settings import MOST_UNITS, SearchSettings
from bocl.seeding import seed_for
from bocl.training.batches import DeviceTask
from bocl.training.trainer import Effort
from bocl.widths import Widths
from bocl.wording import counted

MOST_WIDENINGS = 3
Cost = Callable[[NDArray[np.int64]], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class Expansion:
    """How the search for one task ended."""

    growth: Growth  # of the winner
    seed: int  # of its first weights
    trials: tuple[Trial, ...] = ()  # every child, those that are always candidates first
    difficulty: float = math.nan  # where it was measured
    limit: Limit = ""  # what kept it from growing further
    bounds: Widths = ()  # of the widths, in the end
    widened: int = 0  # how often
    effort: Effort = Effort()  # noqa: RUF009 - frozen
    diagnostics: Diagnostics | None = None  # of a searcher that has any


def expand(
    candidates: Candidates,
    problem: Problem,
    search: SearchSettings,
    make_searcher: SearcherFactory,
    *,
    difficulty: bool,
) -> Expansion:
    """Search what to add for a task; the network is left as it is.

    Trains the rounds the searcher asks for. With the first of them, or before it where children are trained one by
    one, one that is always a candidate is trained: a network of the task's own in the base network's shape where that
    is a choice, else z = 0. With ``difficulty``, M_t = A¹ - A² is measured before: A¹ of a fresh base network, A² of
    z = 0; it is NaN where it is not, or where one of the two fails.

    Where ``search.bounds`` leaves the bounds open and the best child lies on some that the budget lets it pass, they
    are doubled and the search goes on, with what is left of its trials.
    """
    zero = (0,) * len(problem.bounds)
    if problem.choices == ("own",):
        zero = candidates.space.point((1,) * problem.groups, "own")  # the smallest network of its own
    own = candidates.own_network(problem)
    given = list(dict.fromkeys([zero, *own])) if difficulty else own or [zero]  # the two may be the same
    if difficulty:
        fresh = candidates.train_base("difficulty")
        reused, *_ = told = candidates.train("difficulty", given)
        problem = replace(problem, trained=tuple(told), difficulty=fresh.fit.accuracy - reused.accuracy)
    else:
        problem = replace(problem, pending=tuple(given), difficulty=math.nan)
    widened = 0
    left = search
    while True:
        searcher = make_searcher(problem, left)
        check_searcher(searcher)
        while points := _next_round(searcher, left, problem, candidates, given):
            searcher.tell(candidates.train("search", points, trials=search.most_trials))
        winner, point = candidates.winner(searcher)
        wider = candidates.wider(point) if search.bounds is None else problem.bounds
        tried = len(candidates.trials) - len(given)
        if wider == problem.bounds or tried >= search.most_trials or widened == MOST_WIDENINGS:
            break
        widened += 1
        problem = replace(problem, bounds=wider, trained=tuple(candidates.told), pending=())
        candidates.problem = problem
        left = replace(search, warm_points=0, trials=search.most_trials - tried)
    diagnostics = searcher.diagnostics() if isinstance(searcher, Explains) else None
    return Expansion(
        winner.growth,
        candidates.seed_of(list(candidates.trained).index(point)),
        tuple(candidates.trials),
        problem.difficulty,
        _limit(problem, point),
        problem.bounds[: problem.groups],
        widened,
        candidates.effort,
        diagnostics,
    )


def _next_round(
    searcher: Searcher, search: SearchSettings, problem: Problem, candidates: Candidates, given: list[Widths]
) -> list[Widths]:
    """Return the points to train next, ``given`` among the first; [] ends the search."""
    trained = candidates.trained
    if not trained and search.round_size == 1:
        return given
    asked = asked_widths(searcher.ask(search.round_size), problem, {*trained, *given})
    return asked if trained else [*given, *asked]


def _limit(problem: Problem, point: Widths) -> Limit:
    """Return what kept the best child from being larger."""
    passes = _passes(problem, point)
    if not any(passes):
        return "budget"
    bounds = problem.bounds[: problem.groups]
    if all(point[group] == bound for group, bound in enumerate(bounds) if passes[group]):
        return "bounds"
    if problem.target is not None:
        return "target"
    return "price" if problem.tolerance is None else "tolerance"


def _passes(problem: Problem, point: Widths) -> list[bool]:
    """Return for every group whether the budget allows one more unit of it."""
    more = np.repeat(np.array([point], dtype=np.int64), problem.groups, axis=0)
    more[np.arange(problem.groups), np.arange(problem.groups)] += 1
    return [bool(allowed) for allowed in problem.allowed(more)]


class Candidates:
    """The children of one task: trained in rounds, scored, and kept until one of them wins.

    trained  point → child
    trials   one for each, in the order they were trained
    told     the same, with points for widths, as a searcher is told
    effort   what all trainings took, the fresh base network's too
    """

    def __init__(
        self,
        network: GrowingNetwork,
        data: DeviceTask,
        problem: Problem,
        space: ReadingSpace,
        cost: Cost,
        rounds: RoundMaker,
        trainer: RoundTrainer,
        callback: Callback,
        *,
        halving: bool = False,
    ) -> None:
        self.trained: dict[Widths, TrainedChild] = {}
        self.trials: list[Trial] = []
        self.told: list[Trial] = []
        self.effort = Effort()
        self.problem, self.space = problem, space
        self._network, self._data, self._cost = network, data, cost
        self._rounds, self._trainer, self._callback, self._halving = rounds, trainer, callback, halving

    def own_network(self, problem: Problem) -> list[Widths]:
        """Return the point of a network of its own, in the base network's shape, where it may be asked for."""
        base = self._network.graph.widths
        if "own" not in problem.choices or not lies_in(base, problem.bounds[:-1]):
            return []
        point = self.space.point(base, "own")
        return [point] if problem.allowed(np.array([point], dtype=np.int64))[0] else []

    def wider(self, point: Widths) -> Widths:
        """Return the bounds, twice as wide where the point lies on one, the budget lets it pass and more is of use."""
        bounds, passes = self.problem.bounds, _passes(self.problem, point)
        widths = [
            min(2 * bound, MOST_UNITS) if bound and at == bound and free else bound
            for bound, at, free in zip(bounds, point, passes, strict=False)
        ]
        return (*self._network.useful(tuple(widths)), *bounds[self.problem.groups :])

    def seed_of(self, number: int) -> int:
        """Return the seed of the first weights of child ``number``."""
        return seed_for(self._rounds.seed, "child", self._rounds.task, number)

    def train_base(self, purpose: str) -> TrainedChild:
        """Train a fresh base network, which is no trial."""
        asked = self._rounds.base(self._network.graph.widths, purpose)
        self._callback(RoundStarted(purpose, asked.widths))
        (base,) = self._trainer(asked, self._network, self._data, self._callback)
        self.effort += base.fit.effort
        return base

    def train(self, purpose: str, points: Sequence[Widths], *, trials: int = 0) -> list[Trial]:
        """Train children at these points as one round and return their trials, as a searcher is told.

        trials  most that the search may make; 0 outside the search
        """
        first = len(self.trials)
        seeds = [self.seed_of(first + at) for at in range(len(points))]
        parted = [self.space.parted(point) for point in points]
        widths, reads = [widths for widths, _ in parted], [choice.reads for _, choice in parted]
        pad_to = padding(widths, self.problem.bounds[: self.problem.groups])
        halving = self._halving_of(points) if trials and self._halving else None
        asked = self._rounds.children(purpose, widths, seeds, pad_to, reads, halving)
        self._callback(RoundStarted(purpose, asked.widths, first if trials else 0, trials))
        # In a run the trainer is a RoundArchive around a LocalTrainer.
        for point, child in zip(points, self._trainer(asked, self._network, self._data, self._callback), strict=True):
            self.trained[point] = child
            self.trials.append(self._trial(point, child))
            self.told.append(replace(self.trials[-1], widths=point))
            self.effort += child.fit.effort
        if trials:
            for number, trial in enumerate(self.trials[first:], start=first):
                self._callback(TrialDone(number, trial, self.trained[self.told[number].widths].fit.loss))
        return self.told[first:]

    def winner(self, searcher: Searcher) -> tuple[TrainedChild, Widths]:
        """Return the child that the searcher takes, and its point, or say why there is none."""
        name = self._data.name
        if all(trial.failed for trial in self.trials):
            reasons = "; ".join(dict.fromkeys(child.failure for child in self.trained.values()))
            check_trained(math.nan, name, f"{reasons}, in each of {counted(len(self.trials), 'child', 'children')}")
        best = as_widths(searcher.best(), self.problem.bounds, "best()")
        if best not in self.trained:
            raise InputError(f"the searcher's best() is {best}, which was never trained; it must be one of its trials")
        winner = self.trained[best]
        check_trained(winner.fit.accuracy, name, winner.failure)
        return winner, best

    def _trial(self, point: Widths, child: TrainedChild) -> Trial:
        row = np.array([point], dtype=np.int64)
        widths, choice = self.space.parted(point)
        trial = Trial(
            widths,
            child.fit.accuracy,
            int(self.problem.parameters(row)[0]),
            math.nan,
            float(self._cost(row)[0]),
            choice.kind,
            child.rungs,
            child.fit.confidence,
        )
        return replace(trial, reward=float(self.problem.reward(np.array([self.problem.measured(trial)]), row)[0]))

    def _halving_of(self, points: Sequence[Widths]) -> Halving | None:
        """Return when children of a round are stopped; a network of the task's own in the base shape never is."""
        sizes = self.problem.parameters(np.array(points, dtype=np.int64)).tolist()
        own = self.own_network(self.problem)
        spared = [place for place, point in enumerate(points) if point in own]
        recipe = self._rounds.recipe
        epochs = recipe.epochs_of(recipe.steps(len(self._data.train)))
        return halving_for(epochs, len(points), sizes, spared, by=self.problem.measure)


def growth_cost(space: ReadingSpace, reward: RewardSettings) -> Cost:
    """What units cost, as a function of points (n, entries)."""

    def cost_of(growths: GrowingSpace) -> Cost:
        def weights(z: NDArray[np.int64]) -> NDArray[np.int64]:
            parts = growths.count(z)
            return parts["shared"] + parts["heads"] + parts["norms"]

        return make_cost(reward.weighting, space.groups, parameters=weights, by_group=growths.count_by_group)

    costs = [cost_of(growths) for growths in space.spaces]

    def cost(points: NDArray[np.int64]) -> NDArray[np.float64]:
        found = np.zeros(len(points))
        for number, rows in space.by_choice(points):
            found[rows] = costs[number](points[rows, : space.groups])
        return found

    return cost

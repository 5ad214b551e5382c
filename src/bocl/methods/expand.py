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
from bocl.methods.reward import RewardSettings, make_cost
from bocl.methods.rounds import RoundMaker, RoundTrainer, TrainedChild, padding
from bocl.methods.searcher_answers import as_widths, asked_widths, check_searcher
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.growth import Growth
from bocl.records.events import Callback, RoundStarted, TrialDone
from bocl.records.record import Diagnostics, Trial
from bocl.search.problem import Explains, Problem, Searcher
from bocl.search.searchers import SearcherFactory
from bocl.search.settings import SearchSettings
from bocl.seeding import seed_for
from bocl.training.batches import DeviceTask
from bocl.training.trainer import Effort
from bocl.widths import Widths
from bocl.wording import counted

Cost = Callable[[NDArray[np.int64]], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class Expansion:
    """How the search for one task ended."""

    growth: Growth  # of the winner
    trials: tuple[Trial, ...] = ()  # every child, z = 0 first
    difficulty: float = math.nan  # where it was measured
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
    """Search the widths to add for a task; the network is left as it is.

    Trains the rounds the searcher asks for; z = 0 is trained with the first of them, or before it where children are
    trained one by one. With ``difficulty``, M_t = A¹ - A² is measured before: A¹ of a fresh base network, A² of z = 0;
    it is NaN where it is not, or where one of the two fails.
    """
    zero = (0,) * len(problem.bounds)
    if difficulty:
        fresh = candidates.train_base("difficulty")
        (reused,) = candidates.train("difficulty", [zero])
        problem = replace(problem, trained=(reused,), difficulty=fresh.fit.accuracy - reused.accuracy)
    else:
        problem = replace(problem, pending=(zero,), difficulty=math.nan)
    searcher = make_searcher(problem, search)
    check_searcher(searcher)
    while widths := _next_round(searcher, search, problem, candidates.trained, zero):
        searcher.tell(candidates.train("search", widths, trials=search.most_trials))
    winner = candidates.winner(searcher)
    diagnostics = searcher.diagnostics() if isinstance(searcher, Explains) else None
    return Expansion(winner.growth, tuple(candidates.trials), problem.difficulty, candidates.effort, diagnostics)


def _next_round(
    searcher: Searcher, search: SearchSettings, problem: Problem, trained: dict[Widths, TrainedChild], zero: Widths
) -> list[Widths]:
    """Return the widths to train next, z = 0 among the first; [] ends the search."""
    if not trained and search.round_size == 1:
        return [zero]
    asked = asked_widths(searcher.ask(search.round_size), problem, {*trained, zero})
    return asked if trained else [zero, *asked]


class Candidates:
    """The children of one task: trained in rounds, scored, and kept until one of them wins.

    trained  widths → child
    trials   one for each, in the order they were trained
    effort   what all trainings took, the fresh base network's too
    """

    def __init__(
        self,
        network: ExpandableNetwork,
        data: DeviceTask,
        problem: Problem,
        cost: Cost,
        rounds: RoundMaker,
        trainer: RoundTrainer,
        callback: Callback,
    ) -> None:
        self.trained: dict[Widths, TrainedChild] = {}
        self.trials: list[Trial] = []
        self.effort = Effort()
        self._network, self._data, self._problem, self._cost = network, data, problem, cost
        self._rounds, self._trainer, self._callback = rounds, trainer, callback

    def train_base(self, purpose: str) -> TrainedChild:
        """Train a fresh base network, which is no trial."""
        asked = self._rounds.base(self._network.graph.widths, purpose)
        self._callback(RoundStarted(purpose, asked.widths))
        (base,) = self._trainer(asked, self._network, self._data, self._callback)
        self.effort += base.fit.effort
        return base

    def train(self, purpose: str, widths: Sequence[Widths], *, trials: int = 0) -> list[Trial]:
        """Train children with these widths as one round and return their trials.

        trials  most that the search may make; 0 outside the search
        """
        first = len(self.trials)
        seeds = [seed_for(self._rounds.seed, "child", self._rounds.task, first + at) for at in range(len(widths))]
        asked = self._rounds.children(purpose, widths, seeds, padding(widths, self._problem.bounds))
        self._callback(RoundStarted(purpose, asked.widths, first if trials else 0, trials))
        # In a run the trainer is a RoundArchive around a LocalTrainer.
        for z, child in zip(widths, self._trainer(asked, self._network, self._data, self._callback), strict=True):
            self.trained[z] = child
            self.trials.append(self._trial(z, child))
            self.effort += child.fit.effort
        if trials:
            for number, trial in enumerate(self.trials[first:], start=first):
                self._callback(TrialDone(number, trial, self.trained[trial.widths].fit.loss))
        return self.trials[first:]

    def winner(self, searcher: Searcher) -> TrainedChild:
        """Return the child that the searcher takes, or say why there is none."""
        name = self._data.name
        if all(trial.failed for trial in self.trials):
            reasons = "; ".join(dict.fromkeys(child.failure for child in self.trained.values()))
            check_trained(math.nan, name, f"{reasons}, in each of {counted(len(self.trials), 'child', 'children')}")
        best = as_widths(searcher.best(), self._problem.bounds, "best()")
        if best not in self.trained:
            raise InputError(f"the searcher's best() is {best}, which was never trained; it must be one of its trials")
        winner = self.trained[best]
        check_trained(winner.fit.accuracy, name, winner.failure)
        return winner

    def _trial(self, z: Widths, child: TrainedChild) -> Trial:
        row, accuracy = np.array([z], dtype=np.int64), np.array([child.fit.accuracy])
        return Trial(
            z,
            child.fit.accuracy,
            int(self._problem.parameters(row)[0]),
            float(self._problem.reward(accuracy, row)[0]),
            float(self._cost(row)[0]),
        )


def growth_problem(network: ExpandableNetwork, classes: int, bounds: Widths, alpha: float, cost: Cost) -> Problem:
    """Return what a searcher must know of one more task of so many classes, history and goal left out."""
    return Problem(bounds, parameters=network.space(classes).count_all, penalty=lambda z: alpha * cost(z))


def growth_cost(network: ExpandableNetwork, classes: int, reward: RewardSettings) -> Cost:
    """What units of this growth cost, as a function of z."""
    space = network.space(classes)

    def weights(z: NDArray[np.int64]) -> NDArray[np.int64]:
        parts = space.count(z)
        return parts["shared"] + parts["heads"] + parts["norms"]

    return make_cost(reward.weighting, len(network.graph.groups), parameters=weights, by_group=space.count_by_group)

"""Replays searches: no child is trained; its accuracy is drawn from a table of trials or a simulation.

A searcher goes through a stream of tasks and stops as it would in a run. Its trials are the history of the next task.
It searches the last task twice. First as in a run: the child that it keeps is judged on other samples. Then for a given
number of trials: after each it is asked for its best child, whose widths are judged by their true reward.

    regret = best true reward - true reward of the choice
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bocl.records.record import Experience, Trial
from bocl.search.problem import FloatArray, IntArray, Problem, Searcher
from bocl.search.searchers import wants_difficulty
from bocl.search.settings import SearchSettings
from bocl.seeding import seed_for
from bocl.widths import Widths

Measure = Callable[[IntArray, np.random.Generator], tuple[FloatArray, FloatArray]]
MakeSearcher = Callable[[Problem, SearchSettings], Searcher]


@dataclass(frozen=True, eq=False)
class ReplayTask:
    """A task whose children need no training.

    candidates   the only widths with measurements; None: the whole box
    measure      z (n, groups) → children, one draw each: (n,) accuracies as a search sees them, (n,) on other samples
    truth        z (n, groups) → (n,) true accuracies, by which widths are judged
    best_reward  highest true reward of all widths
    limit        regret of the choice by all measurements together: no search can be expected to do better
    tolerance    regret up to which widths count as the best
    """

    name: str
    bounds: Widths
    candidates: tuple[Widths, ...] | None
    parameters: Callable[[IntArray], IntArray]
    penalty: Callable[[IntArray], FloatArray]
    measure: Measure
    truth: Callable[[IntArray], FloatArray]
    best_reward: float
    limit: float
    tolerance: float


@dataclass(frozen=True)
class Ended:
    """How a search as in a run ended: trials, rounds, and the regret of the child that it kept."""

    trials: int
    rounds: int
    regret: float


@dataclass(frozen=True)
class Replay:
    """How the searches of the last task went.

    regrets  in accuracy after each trial of the search for a number of trials; entry 0 is the regret of z = 0
    rounds   the number of the round of each trial, from 1; entry 0 is 0
    ended    the search as in a run
    """

    regrets: tuple[float, ...]
    rounds: tuple[int, ...]
    ended: Ended
    tolerance: float
    limit: float = 0.0

    def trials_to_reach(self) -> float:
        """Return after how many trials the best child is good enough; ∞ when it never is."""
        return next((float(at) for at, regret in enumerate(self.regrets) if regret <= self.tolerance), math.inf)

    def rounds_to_reach(self) -> float:
        """Return after how many rounds it is."""
        at = self.trials_to_reach()
        return float(self.rounds[int(at)]) if math.isfinite(at) else math.inf

    def regret_after(self, trials: int) -> float:
        """Return the regret after a number of trials, or at the end of a search that made fewer."""
        return self.regrets[min(trials, len(self.regrets) - 1)]


def replay(
    stream: Sequence[ReplayTask], make_searcher: MakeSearcher, settings: SearchSettings, *, trials: int, seed: int
) -> Replay:
    """Search the tasks of a stream in turn and return how the two searches of the last one went."""
    history: list[Experience] = []
    for number, task in enumerate(stream):
        course = _Course(task, history, make_searcher, settings, seed_for(seed, "task", number))
        history.append(Experience(0.0, course.best, tuple(course.told)))
    endless = replace(settings, trials=trials - settings.warm_points, patience=trials, least_gain=0.0)
    watched = _Course(task, history[:-1], make_searcher, endless, seed_for(seed, "task", number), watch=True)
    ended = Ended(len(course.told) - 1, course.rounds[-1], task.best_reward - course.kept_reward())
    return Replay(tuple(watched.regrets), tuple(watched.rounds), ended, task.tolerance, task.limit)


class _Course:
    """One whole search; with ``watch`` it is asked for its best child after every trial."""

    def __init__(
        self,
        task: ReplayTask,
        history: Sequence[Experience],
        make_searcher: MakeSearcher,
        settings: SearchSettings,
        seed: int,
        *,
        watch: bool = False,
    ) -> None:
        self._task = task
        self._generator = np.random.default_rng(seed_for(seed, "measure"))
        self._on_other_samples: dict[Widths, float] = {}
        (zero,) = self._train([(0,) * len(task.bounds)])
        # z = 0 is trained before the search, as in a run
        first = wants_difficulty(make_searcher, settings) or settings.round_size == 1
        problem = Problem(
            task.bounds,
            task.parameters,
            task.penalty,
            trained=(zero,) if first else (),
            pending=() if first else (zero.widths,),
            history=tuple(history),
            seed=seed,
            candidates=task.candidates,
        )
        searcher = make_searcher(problem, settings)
        self.told, self.regrets, self.rounds = [zero], [_regret(task, zero.widths)], [0]
        while asked := searcher.ask(settings.round_size):
            if problem.pending and len(self.told) == 1:
                searcher.tell([zero])
            number = self.rounds[-1] + 1
            for trial in self._train(asked):
                searcher.tell([trial])
                self.told.append(trial)
                self.rounds.append(number)
                if watch:
                    self.regrets.append(_regret(task, searcher.best()))
        self.best = searcher.best()

    def kept_reward(self) -> float:
        """Return the reward of the kept child on other samples."""
        (price,) = self._task.penalty(np.array([self.best], dtype=np.int64))
        return self._on_other_samples[self.best] - float(price)

    def _train(self, widths: Sequence[Widths]) -> list[Trial]:
        trials, others = trials_of(self._task, widths, self._generator)
        self._on_other_samples.update(zip(widths, others.tolist(), strict=True))
        return trials


def trials_of(
    task: ReplayTask, widths: Sequence[Widths], generator: np.random.Generator
) -> tuple[list[Trial], FloatArray]:
    """Return a trial drawn for each of the widths, and (n,) their accuracies on other samples."""
    z = np.array(widths, dtype=np.int64)
    (seen, others), costs, prices = task.measure(z, generator), task.parameters(z), task.penalty(z)
    rows = zip(widths, seen.tolist(), costs.tolist(), prices.tolist(), strict=True)
    return [Trial(point, accuracy, cost, accuracy - price) for point, accuracy, cost, price in rows], others


def _regret(task: ReplayTask, widths: Widths) -> float:
    z = np.array([widths], dtype=np.int64)
    return task.best_reward - float(task.truth(z)[0] - task.penalty(z)[0])

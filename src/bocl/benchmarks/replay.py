"""Searchers compared by replay: no child is trained, its accuracy is drawn from a table of trials or a simulation.

A searcher goes through a stream of tasks. On all but the last it stops as it would in a run, and what it tried is
the history of the next; on the last it is given a number of trials. After every trial it is asked for its best
child, which is judged by what that child is really worth: regret = best true reward - its true reward.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bocl.records.record import Experience, Trial, Widths
from bocl.search.problem import FloatArray, IntArray, Problem, Searcher
from bocl.search.settings import SearchSettings
from bocl.seeding import seed_for

Measure = Callable[[IntArray, np.random.Generator], FloatArray]
MakeSearcher = Callable[[Problem, SearchSettings], Searcher]


@dataclass(frozen=True, eq=False)
class ReplayTask:
    """A task whose children need no training.

    candidates   the only widths there is a measurement of; None: all of the box
    measure      z (n, groups) → (n,) accuracies as a search sees them, each one draw
    truth        z (n, groups) → (n,) accuracies they are judged by
    best_reward  highest true reward of all widths
    limit        regret of what all measurements together would choose: no search can be expected to do better
    tolerance    regret that counts as having found it
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
class Replay:
    """How one search of the last task went.

    regrets  after each trial, in accuracy; entry 0 is that of z = 0 alone
    rounds   in which each trial was made, from 1; entry 0 is 0
    """

    regrets: tuple[float, ...]
    rounds: tuple[int, ...]
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
    """Search the tasks of a stream in turn; tell how the last search went, of ``trials`` trials."""
    history: list[Experience] = []
    endless = replace(settings, trials=trials - settings.warm_points, patience=trials, least_gain=0.0)
    for number, task in enumerate(stream):
        last = number == len(stream) - 1
        chosen = endless if last else settings
        own_seed = seed_for(seed, "task", number)
        generator = np.random.default_rng(seed_for(own_seed, "measure"))
        (zero,) = trials_of(task, [(0,) * len(task.bounds)], generator)
        problem = Problem(
            task.bounds,
            task.parameters,
            task.penalty,
            known=(zero,) if settings.wants_difficulty else (),
            awaited=() if settings.wants_difficulty else (zero.widths,),
            history=tuple(history),
            seed=own_seed,
            candidates=task.candidates,
        )
        searcher = make_searcher(problem, chosen)
        told, regrets, rounds = [zero], [_regret(task, zero.widths)], [0]
        while asked := searcher.ask(settings.round_size):
            if problem.awaited and len(told) == 1:
                searcher.tell([zero])
            for trial in trials_of(task, asked, generator):
                searcher.tell([trial])
                told.append(trial)
                regrets.append(_regret(task, searcher.best()) if last else math.nan)
                rounds.append(rounds[-1])
            rounds[-len(asked) :] = [rounds[-len(asked) - 1] + 1] * len(asked)
        history.append(Experience(problem.difficulty, searcher.best(), tuple(told)))
    return Replay(tuple(regrets), tuple(rounds), task.tolerance, task.limit)


def trials_of(task: ReplayTask, widths: Sequence[Widths], generator: np.random.Generator) -> list[Trial]:
    """Return what training these widths would have come to, a draw each."""
    z = np.array(widths, dtype=np.int64)
    accuracies, costs, prices = task.measure(z, generator), task.parameters(z), task.penalty(z)
    rows = zip(widths, accuracies.tolist(), costs.tolist(), prices.tolist(), strict=True)
    return [Trial(point, accuracy, cost, accuracy - price) for point, accuracy, cost, price in rows]


def _regret(task: ReplayTask, widths: Widths) -> float:
    z = np.array([widths], dtype=np.int64)
    return task.best_reward - float(task.truth(z)[0] - task.penalty(z)[0])

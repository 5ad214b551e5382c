"""Compares searchers by replay: how many trials and rounds each needs to find widths as good as the best."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from statistics import fmean, median, stdev

import numpy as np

from bocl.errors import ConfigError, did_you_mean
from bocl.search.problem import Problem
from bocl.search.searchers import make_searcher
from bocl.search.settings import SearchSettings
from bocl.seeding import seed_for
from replication.search.optuna_search import OptunaSearch
from replication.search.replay import MakeSearcher, Replay, ReplayTask, replay, trials_of
from replication.search.simulated import simulated_stream
from replication.search.trial_table import TrialTable, replay_tasks

EARLIER = 3  # tasks searched before the one that is measured
Streams = Callable[[int], list[ReplayTask]]  # the number of a replay → its tasks, the last one measured


@dataclass(frozen=True)
class Contestant:
    """A searcher to compare; if it ``learns`` it is given earlier tasks too, otherwise only the last one."""

    name: str
    settings: SearchSettings
    make: MakeSearcher = make_searcher
    learns: bool = False


@dataclass(frozen=True)
class MeanEnd:
    """Searches as in a run, means over replays; ``error`` is the standard error of the kept child's regret."""

    trials: float
    rounds: float
    regret: float
    error: float


@dataclass(frozen=True)
class Standing:
    """How a searcher did over all replays.

    trials, rounds  median number until its best child is as good as the best; ∞: never, in most replays
    regret, spread  mean and standard deviation over replays, in accuracy, after each trial; entry 0 is z = 0
    limit           mean regret of the choice by all measurements together
    ended           the search as in a run
    """

    searcher: str
    alpha: float
    replays: int
    trials: float
    rounds: float
    regret: tuple[float, ...]
    spread: tuple[float, ...]
    limit: float
    ended: MeanEnd


def streams_of(table: TrialTable | None, alpha: float) -> Streams:
    """Return the streams to replay: the tasks of a table in turn, each after those before it, or simulated ones.

    The tasks measured have EARLIER others before them; in a shorter table, it is the last one.
    """
    if table is None:
        return lambda number: simulated_stream(number, tasks=EARLIER + 1, alpha=alpha)
    tasks = replay_tasks(table, alpha)
    measured = range(min(EARLIER, len(tasks) - 1), len(tasks))

    def stream(number: int) -> list[ReplayTask]:
        last = measured[number % len(measured)]
        return tasks[max(0, last - EARLIER) : last + 1]

    return stream


def contestants(names: Sequence[str] | None = None, *, round_size: int = 8) -> list[Contestant]:
    """Return searchers by name; by default all of them, Optuna's only if it is installed."""

    def settings(**values: object) -> SearchSettings:
        return SearchSettings(round_size=round_size, **values)  # type: ignore[arg-type]

    found = [
        Contestant("ours", settings(), learns=True),
        Contestant("no transfer", settings(transfer=False)),
        Contestant("paper", settings(kind="paper"), learns=True),
        Contestant("paper cold", settings(kind="paper")),
        Contestant("random", settings(kind="random")),
        Contestant("reinforce", settings(kind="reinforce")),
    ]
    theirs = [
        Contestant("optuna TPE", settings(kind="random"), partial(OptunaSearch, sampler="tpe")),
        Contestant("optuna GP", settings(kind="random"), partial(OptunaSearch, sampler="gp")),
    ]
    if names is None:
        return [*found, *theirs] if find_spec("optuna") else found
    known = {contestant.name: contestant for contestant in (*found, *theirs)}
    for name in names:
        if name not in known:
            raise ConfigError(f"--searchers: unknown searcher '{name}'{did_you_mean(name, known)}")
    return [known[name] for name in names]


def suggestion_milliseconds(data: int = 200, count: int = 8) -> float:
    """Return the time our search takes per point of a round, after ``data`` trials."""
    task = simulated_stream(0, tasks=1)[0]
    generator = np.random.default_rng(0)
    z = np.unique(generator.integers(0, np.array(task.bounds), size=(data, len(task.bounds)), endpoint=True), axis=0)
    settings = SearchSettings(trials=2 * data, patience=2 * data, least_gain=0.0)
    problem = Problem(task.bounds, task.parameters, task.penalty)
    seconds = []
    for _ in range(3):  # the first pays for imports
        searcher = make_searcher(problem, settings)
        searcher.tell(trials_of(task, [tuple(row) for row in z.tolist()], generator)[0])
        began = time.perf_counter()
        asked = searcher.ask(count)
        seconds.append((time.perf_counter() - began) / len(asked))
    return 1000 * min(seconds)


def compare(
    streams: Streams,
    searchers: Sequence[Contestant],
    *,
    alpha: float,
    replays: int,
    trials: int,
    tell: Callable[[Standing], None],
) -> list[Standing]:
    """Replay every searcher ``replays`` times; ``tell`` is called with each standing as soon as it is known."""
    standings = []
    for searcher in searchers:
        done = []
        for number in range(replays):
            stream = streams(number) if searcher.learns else streams(number)[-1:]
            seed = seed_for(number, "replay")
            done.append(replay(stream, searcher.make, searcher.settings, trials=trials, seed=seed))
        standings.append(_standing(searcher.name, alpha, done, trials))
        tell(standings[-1])
    return standings


def _standing(name: str, alpha: float, done: Sequence[Replay], trials: int) -> Standing:
    curves = [[one.regret_after(at) for one in done] for at in range(trials + 1)]
    return Standing(
        name,
        alpha,
        len(done),
        median(one.trials_to_reach() for one in done),
        median(one.rounds_to_reach() for one in done),
        tuple(fmean(after) for after in curves),
        tuple(stdev(after) if len(done) > 1 else 0.0 for after in curves),
        fmean(one.limit for one in done),
        MeanEnd(
            fmean(one.ended.trials for one in done),
            fmean(one.ended.rounds for one in done),
            fmean(one.ended.regret for one in done),
            stdev(one.ended.regret for one in done) / math.sqrt(len(done)) if len(done) > 1 else 0.0,
        ),
    )

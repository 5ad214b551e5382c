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
from bocl.methods.checks import as_widths, asked_widths, check_searcher, check_trained
from bocl.methods.reward import RewardSettings, make_cost
from bocl.methods.rounds import TrainedChild, TrainRound, padding, train_round
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.graph import Widths
from bocl.networks.growth import Growth, count, count_all, count_by_group
from bocl.records.events import Listener, RoundStarted, TrialDone
from bocl.records.record import Diagnostics, Experience, Trial
from bocl.search.problem import Explains, Problem, Searcher
from bocl.search.settings import SearchSettings
from bocl.seeding import seed_for
from bocl.training.batches import DeviceTask
from bocl.training.recipe import Recipe
from bocl.training.steps import StepCache
from bocl.training.trainer import Effort
from bocl.wording import counted

SearcherFactory = Callable[[Problem, SearchSettings], Searcher]
Cost = Callable[[NDArray[np.int64]], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class Expansion:
    """How the search for one task ended."""

    growth: Growth  # of the winner
    trials: tuple[Trial, ...]  # every child, z = 0 first
    difficulty: float  # NaN where it was not measured
    effort: Effort
    diagnostics: Diagnostics | None  # of a searcher that has any


def expand(
    network: ExpandableNetwork,
    task: DeviceTask,
    *,
    name: str,
    classes: int,
    recipe: Recipe,
    search: SearchSettings,
    reward: RewardSettings,
    budget: int | None,
    target: float | None,
    make_searcher: SearcherFactory,
    history: Sequence[Experience],
    measure_difficulty: bool,
    seed: int,
    listen: Listener,
    train_round: TrainRound = train_round,
) -> Expansion:
    """Search the widths to add for the task called ``name``; the network is left as it is.

    Trains the rounds the searcher asks for, all with the same recipe; z = 0 is trained with the first of them, or alone
    where children are trained one by one. Where the difficulty M_t = A¹ - A² is asked for, a fresh base network (A¹)
    and z = 0 (A²) are trained before; it is NaN where it is not, or one of the two fails. ``budget`` and ``target`` are
    those of ``Problem``.
    """
    groups = len(network.graph.groups)
    zero, bounds = (0,) * groups, search.bounds_for(groups)
    before = network.widths  # the searcher may ask what it costs after the network has grown
    cost = growth_cost(network, classes, reward)
    problem = Problem(
        bounds,
        parameters=lambda z: count_all(network.graph, before, z, classes, network.settings),
        penalty=lambda z: reward.alpha * cost(z),
        budget=budget,
        target=target,
    )
    kept: dict[Widths, TrainedChild] = {}
    trials: list[Trial] = []
    cache = StepCache()

    def train_children(widths: Sequence[Widths]) -> list[Trial]:
        seeds = [seed_for(seed, "child", task.index, len(trials) + offset) for offset in range(len(widths))]
        children = train_round(
            network,
            task,
            widths,
            classes=classes,
            recipe=recipe,
            seeds=seeds,
            order_seed=seed_for(seed, "order", task.index),
            pad_to=padding(widths, bounds),
            listen=listen,
            cache=cache,
            memory_gb=search.memory_gb,
            most_at_once=search.children_at_once,
        )
        kept.update(zip(widths, children, strict=True))
        done = [_trial(problem, cost, z, child) for z, child in zip(widths, children, strict=True)]
        trials.extend(done)
        return done

    effort, difficulty = Effort(), math.nan
    problem = replace(problem, history=tuple(history), seed=seed_for(seed, "search", task.index))
    if measure_difficulty:
        listen(RoundStarted("difficulty", (network.graph.widths,)))
        base = train_base(
            network, task, classes=classes, recipe=recipe, seed=seed, listen=listen, train_round=train_round
        )
        effort = base.fit.effort
        listen(RoundStarted("difficulty", (zero,)))
        (known,) = train_children([zero])
        difficulty = base.fit.accuracy - known.accuracy
        problem = replace(problem, known=(known,))
    else:
        problem = replace(problem, awaited=(zero,))
    searcher = make_searcher(replace(problem, difficulty=difficulty), search)
    check_searcher(searcher)
    while True:
        alone = not kept and search.round_size == 1
        asked = [] if alone else asked_widths(searcher.ask(search.round_size), problem, kept)
        widths = asked if kept else [zero, *asked]
        if not widths:
            break
        listen(RoundStarted("search", tuple(widths), trial=len(trials), trials=search.most_trials))
        done = train_children(widths)
        for number, trial in enumerate(done, start=len(trials) - len(done)):
            listen(TrialDone(number, trial))
        searcher.tell(done)
    if all(trial.failed for trial in trials):
        reasons = "; ".join(dict.fromkeys(child.failure for child in kept.values()))
        check_trained(math.nan, name, f"{reasons}, in each of {counted(len(trials), 'child', 'children')}")
    best = as_widths(searcher.best(), bounds, "best()")
    if best not in kept:
        raise InputError(f"the searcher's best() is {best}, which was never trained; it must be one of its trials")
    winner = kept[best]
    check_trained(winner.fit.accuracy, name, winner.failure)
    effort = sum((child.fit.effort for child in kept.values()), start=effort)
    diagnostics = searcher.diagnostics() if isinstance(searcher, Explains) else None
    return Expansion(winner.growth, tuple(trials), difficulty, effort, diagnostics)


def train_base(
    network: ExpandableNetwork,
    task: DeviceTask,
    *,
    classes: int,
    recipe: Recipe,
    seed: int,
    listen: Listener,
    train_round: TrainRound = train_round,
) -> TrainedChild:
    """Train a fresh base network on a task, all of it, without attention."""
    fresh = ExpandableNetwork(network.graph, network.settings, network.device)
    (base,) = train_round(
        fresh,
        task,
        [network.graph.widths],
        classes=classes,
        recipe=recipe,
        seeds=[seed_for(seed, "base", task.index)],
        order_seed=seed_for(seed, "order", task.index),
        pad_to=network.graph.widths,
        listen=listen,
    )
    return base


def growth_cost(network: ExpandableNetwork, classes: int, reward: RewardSettings) -> Cost:
    """What units of this growth cost, as a function of z alone."""
    graph, before, settings = network.graph, network.widths, network.settings

    def weights(z: NDArray[np.int64]) -> NDArray[np.int64]:
        parts = count(graph, before, z, classes, settings)
        return parts["shared"] + parts["heads"] + parts["norms"]

    return make_cost(
        reward.weighting,
        len(graph.groups),
        parameters=weights,
        by_group=lambda z: count_by_group(graph, before, z, settings),
    )


def _trial(problem: Problem, cost: Cost, z: Widths, child: TrainedChild) -> Trial:
    row, accuracy = np.array([z], dtype=np.int64), np.array([child.fit.accuracy])
    return Trial(
        z,
        child.fit.accuracy,
        int(problem.parameters(row)[0]),
        float(problem.reward(accuracy, row)[0]),
        float(cost(row)[0]),
    )

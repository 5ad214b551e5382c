"""Makes a table of real trials: hundreds of widths for several tasks of a preset's stream, each with several seeds.

The training part of every task is cut in two: children are trained on one part, choices are judged on the other. A
searcher still sees the validation part. Half of the widths are spread evenly over z and half over log1p(z), so that
neither scale is favoured. After each task the widths with the best mean accuracy are trained once more and kept, so
that an unfinished table can be continued.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np
import torch

from bocl.errors import ConfigError
from bocl.experiment.build import build_network, build_stream
from bocl.experiment.config import Config, load_config
from bocl.experiment.provenance import machine, versions
from bocl.methods.expand import growth_cost
from bocl.methods.failures import check_trained
from bocl.methods.reading import Choice, ReadingSpace
from bocl.methods.round_trainer import LocalTrainer
from bocl.methods.rounds import Round, RoundMaker, TrainedChild, padding
from bocl.networks.expandable import ExpandableNetwork
from bocl.search.improvement import spread_points
from bocl.seeding import seed_for
from bocl.tasks.partition import stratified_rows
from bocl.tasks.task import Split, Task
from bocl.training.batches import DeviceTask, task_to_device, to_device
from bocl.training.device import resolve_device
from bocl.training.evaluation import accuracy
from bocl.widths import Widths
from replication.search.trial_table import TaskTable, TrialTable

JUDGED_SHARE = 0.2  # of the training part, but at least as many as there are validation samples
ROUND = 64  # children trained together, fewer if search.memory_gb requires it


def make_table(
    preset: str,
    overrides: Sequence[str] = (),
    *,
    tasks: int,
    widths: int,
    seeds: int,
    device: str = "auto",
    data: str | None = None,
    begun: TrialTable | None = None,
    tell: Callable[[TrialTable], None],
) -> TrialTable:
    """Train ``widths`` widths with ``seeds`` seeds for each of ``tasks`` tasks after the first.

    begun  a table with the first of these tasks, which are not made again
    tell   called with the table so far after each task
    """
    config = load_config(preset, [f"stream.tasks={tasks + 1}", *overrides])
    if config.reward.weighting == "added":
        raise ConfigError(
            "reward.weighting is 'added', whose prices depend on all widths; a table holds a price per unit"
        )
    stream = build_stream(config, data)
    graph = build_network(config.network)
    network = ExpandableNetwork(graph, config.growth, resolve_device(device))
    about = {
        "preset": preset,
        "overrides": list(overrides),
        "data": stream.fingerprint(),
        "widths": widths,
        "seeds": seeds,
    }
    made_with = {"versions": versions(), "machine": machine(network.device), "date": date.today().isoformat()}
    table = _begun_or_empty(begun, about, made_with)
    if len(table.tasks) >= tasks:
        return table
    for index in range(tasks + 1):
        task, judging = _cut(stream[index], seed_for(config.seed, "judging", index))
        shown = task_to_device(task, index, network.device)
        if index == 0:
            rounds = RoundMaker(index, task.classes, config.recipe, config.seed)
            (base,) = LocalTrainer()(rounds.base(graph.widths), network, shown)
            network.commit(base.growth)
            continue
        points = _points(config, network, index, widths)
        if index > len(table.tasks):
            judge = replace(shown, validation=to_device(judging, network.device))
            made = _tabulate(config, network, task, shown, judge, points, seeds=seeds)
            table = replace(table, tasks=(*table.tasks, made))
            tell(table)
        if index < tasks:
            places = [points.index(_best(table.tasks[index - 1], config.reward.alpha or 0.0))]
            (child,) = _train(config, network, shown, points, places, LocalTrainer(), seed=0)
            check_trained(child.fit.accuracy, task.name, child.failure)
            network.commit(child.growth)
    return table


def _begun_or_empty(begun: TrialTable | None, about: dict[str, Any], made_with: dict[str, Any]) -> TrialTable:
    """Return an empty table, or the one that was begun if it has the same settings."""
    if begun is None:
        return TrialTable((), {**about, **made_with})
    if any(begun.about.get(name) != value for name, value in about.items()):
        raise ConfigError(
            "the table that was begun has another preset, other data, settings, widths or seeds; ask for the same, or "
            "give another file with -o"
        )
    return replace(begun, about={**begun.about, "went_on": [*begun.about.get("went_on", []), made_with]})


def _best(made: TaskTable, alpha: float) -> Widths:
    """Return the widths of a table with the best mean of what a searcher sees, less the price."""
    paid = alpha * np.array(made.widths) @ np.array(made.price_shares)
    return made.widths[int(np.argmax(np.array(made.seen).mean(1) - paid))]


def _cut(task: Task, seed: int) -> tuple[Task, Split]:
    """Return the task with fewer training samples, and the samples taken out."""
    size = max(len(task.validation), int(JUDGED_SHARE * len(task.train)))
    kept, drawn = stratified_rows(task.train.labels.numpy(), size, seed)

    def part(rows: np.ndarray) -> Split:
        chosen = torch.as_tensor(rows)
        return replace(task.train, raw=task.train.raw[chosen], labels=task.train.labels[chosen])

    return replace(task, train=part(kept)), part(drawn)


def _points(config: Config, network: ExpandableNetwork, index: int, count: int) -> list[Widths]:
    bounds = config.search.bounds_for(network.graph.widths)
    return spread_widths(bounds, count, seed_for(config.seed, "table", index))


def _tabulate(
    config: Config,
    network: ExpandableNetwork,
    task: Task,
    shown: DeviceTask,
    judge: DeviceTask,
    points: Sequence[Widths],
    *,
    seeds: int,
) -> TaskTable:
    """Train the widths of one task and return its table."""
    bounds = config.search.bounds_for(network.graph.widths)
    space = ReadingSpace(network, task.classes, [Choice("all", network.all_tasks)])
    cost = growth_cost(space, config.reward)
    rows = np.array(points, dtype=np.int64)
    trainer = LocalTrainer()
    seen, judged = np.zeros((len(points), seeds)), np.zeros((len(points), seeds))
    for seed in range(seeds):
        for start in range(0, len(points), ROUND):
            places = range(start, min(start + ROUND, len(points)))
            children = _train(config, network, shown, points, places, trainer, seed=seed)
            for at, child in zip(places, children, strict=True):
                seen[at, seed] = child.fit.accuracy
                found = network.candidate(child.growth) if not child.failure else None
                judged[at, seed] = math.nan if found is None else accuracy(found, judge.validation)
    whole = np.flatnonzero(np.isfinite(judged).all(1))
    return TaskTable(
        task.name,
        bounds,
        tuple(cost(np.eye(len(bounds), dtype=np.int64)).tolist()),
        tuple(points[at] for at in whole.tolist()),
        tuple(network.space(task.classes).count_all(rows[whole]).tolist()),
        tuple(map(tuple, seen[whole].round(6).tolist())),
        tuple(map(tuple, judged[whole].round(6).tolist())),
    )


def _train(
    config: Config,
    network: ExpandableNetwork,
    shown: DeviceTask,
    points: Sequence[Widths],
    places: Sequence[int],
    trainer: LocalTrainer,
    *,
    seed: int,
) -> list[TrainedChild]:
    """Train the widths at some places of the table together."""
    chosen = tuple(points[at] for at in places)
    asked = Round(
        "table",
        shown.index,
        shown.classes,
        chosen,
        tuple(seed_for(config.seed, "table child", shown.index, seed, at) for at in places),
        seed_for(config.seed, "table order", shown.index, seed),
        padding(chosen, config.search.bounds_for(network.graph.widths)),
        config.recipe,
        reads=(network.all_tasks,) * len(chosen),
        memory_gb=config.search.memory_gb,
    )
    return trainer(asked, network, shown)


def spread_widths(bounds: Widths, count: int, seed: int) -> list[Widths]:
    """Return at most ``count`` widths, each once, in lexicographic order: zero, the bounds, and points between."""
    even = spread_points(bounds, count, seed)  # even over log1p(z)
    shares = np.log1p(even) / np.maximum(np.log1p(np.array(bounds)), 1e-9)
    straight = np.rint(shares * np.array(bounds)).astype(np.int64)
    mixed = np.stack([even, straight], axis=1).reshape(-1, len(bounds))
    ends = [(0,) * len(bounds), bounds]
    return sorted(list(dict.fromkeys([*ends, *map(tuple, mixed.tolist())]))[:count])

"""Making a table of real trials: hundreds of widths for several tasks of a preset's stream, each with several seeds.

The training part of every task is cut in two: children are trained on one, choices are judged on the other. The
validation part stays what a searcher sees. Widths are spread half over z, half over log1p(z), so that neither way of
looking at them is favoured. The network goes on with the widths that are best by the mean of what was seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date

import numpy as np
import torch

from bocl.benchmarks.trial_table import TaskTable, TrialTable
from bocl.errors import ConfigError
from bocl.experiment.build import build_network, build_stream
from bocl.experiment.config import Config, load_config
from bocl.experiment.store import machine, versions
from bocl.methods.expand import growth_cost, train_base
from bocl.methods.growing import score
from bocl.methods.rounds import TrainedChild, padding, train_round
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.graph import Widths
from bocl.networks.growth import count_all
from bocl.records.events import nobody
from bocl.search.improvement import spread_points
from bocl.seeding import seed_for
from bocl.tasks.partition import stratified_rows
from bocl.tasks.task import Split, Task
from bocl.training.batches import DeviceTask, task_to_device, to_device
from bocl.training.device import resolve_device
from bocl.training.steps import StepCache

JUDGED_SHARE = 0.2  # of the training part; as many as the validation samples at least
ROUND = 64  # children trained together; search.memory_gb may make them fewer


def make_table(
    preset: str,
    overrides: Sequence[str] = (),
    *,
    tasks: int,
    widths: int,
    seeds: int,
    device: str = "auto",
    data: str | None = None,
    tell: Callable[[TrialTable], None],
) -> TrialTable:
    """Train ``widths`` widths with ``seeds`` seeds for each of ``tasks`` tasks after the first.

    After each task ``tell`` hears the table so far.
    """
    config = load_config(preset, [f"stream.tasks={tasks + 1}", *overrides])
    if config.reward.weighting == "added":
        raise ConfigError(
            "reward.weighting is 'added', whose prices depend on all widths; a table holds a price per unit"
        )
    stream = build_stream(config, data)
    graph = build_network(config.network)
    network = ExpandableNetwork(graph, config.growth, resolve_device(device))
    about = {"preset": preset, "overrides": list(overrides), "data": stream.fingerprint()}
    made_with = {"versions": versions(), "machine": machine(network.device), "date": date.today().isoformat()}
    table = TrialTable((), {**about, **made_with})
    for index in range(tasks + 1):
        task, judging = _cut(stream[index], seed_for(config.seed, "judging", index))
        shown = task_to_device(task, index, network.device)
        if index == 0:
            base = train_base(
                network, shown, classes=task.classes, recipe=config.recipe, seed=config.seed, listen=nobody
            )
            network.commit(base.growth)
            continue
        judge = DeviceTask(index, shown.train, to_device(judging, network.device))
        made, winner = _tabulate(config, network, task, shown, judge, count=widths, seeds=seeds)
        network.commit(winner.growth)
        table = replace(table, tasks=(*table.tasks, made))
        tell(table)
    return table


def _cut(task: Task, seed: int) -> tuple[Task, Split]:
    """Return the task with fewer training samples, and those taken out."""
    size = max(len(task.validation), int(JUDGED_SHARE * len(task.train)))
    kept, drawn = stratified_rows(task.train.labels.numpy(), size, seed)

    def part(rows: np.ndarray) -> Split:
        chosen = torch.as_tensor(rows)
        return replace(task.train, raw=task.train.raw[chosen], labels=task.train.labels[chosen])

    return replace(task, train=part(kept)), part(drawn)


def _tabulate(
    config: Config,
    network: ExpandableNetwork,
    task: Task,
    shown: DeviceTask,
    judge: DeviceTask,
    *,
    count: int,
    seeds: int,
) -> tuple[TaskTable, TrainedChild]:
    """Train the widths of one task; return its table and the child to go on with."""
    bounds = config.search.bounds_for(len(network.graph.groups))
    points = spread_widths(bounds, count, seed_for(config.seed, "table", shown.index))
    cost = growth_cost(network, task.classes, config.reward)
    rows = np.array(points, dtype=np.int64)
    cache = StepCache()
    seen, judged = np.zeros((len(points), seeds)), np.zeros((len(points), seeds))
    first: list[TrainedChild] = []
    for seed in range(seeds):
        for start in range(0, len(points), ROUND):
            part = points[start : start + ROUND]
            children = train_round(
                network,
                shown,
                part,
                classes=task.classes,
                recipe=config.recipe,
                seeds=[seed_for(config.seed, "table child", shown.index, seed, start + at) for at in range(len(part))],
                order_seed=seed_for(config.seed, "table order", shown.index, seed),
                pad_to=padding(part, bounds),
                listen=nobody,
                cache=cache,
                memory_gb=config.search.memory_gb,
            )
            first += children if seed == 0 else []
            for at, child in enumerate(children, start):
                seen[at, seed] = child.fit.accuracy
                judged[at, seed] = math.nan if child.failure else score(network, child.growth, judge)
    whole = np.flatnonzero(np.isfinite(judged).all(1))
    rewards = seen[whole].mean(1) - config.reward.alpha * cost(rows[whole])
    table = TaskTable(
        task.name,
        bounds,
        tuple(cost(np.eye(len(bounds), dtype=np.int64)).tolist()),
        tuple(points[at] for at in whole),
        tuple(count_all(network.graph, network.widths, rows[whole], task.classes, network.settings).tolist()),
        tuple(map(tuple, seen[whole].round(6).tolist())),
        tuple(map(tuple, judged[whole].round(6).tolist())),
    )
    return table, first[whole[int(np.argmax(rewards))]]


def spread_widths(bounds: Widths, count: int, seed: int) -> list[Widths]:
    """Return at most ``count`` widths, each once, in lexicographic order: zero, the bounds, and points between."""
    even = spread_points(bounds, count, seed)  # even over log1p(z)
    shares = np.log1p(even) / np.maximum(np.log1p(np.array(bounds)), 1e-9)
    straight = np.rint(shares * np.array(bounds)).astype(np.int64)
    mixed = np.stack([even, straight], axis=1).reshape(-1, len(bounds))
    ends = [(0,) * len(bounds), bounds]
    return sorted(list(dict.fromkeys([*ends, *map(tuple, mixed.tolist())]))[:count])

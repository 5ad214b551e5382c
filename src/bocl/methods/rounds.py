"""A round: children of one network, made, trained together and taken out again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.graph import Widths
from bocl.networks.growth import Growth
from bocl.records.events import EpochDone, Listener, OutOfMemory
from bocl.training.batches import DeviceTask
from bocl.training.memory import training_bytes
from bocl.training.recipe import Recipe
from bocl.training.steps import StepCache
from bocl.training.trainer import Fit, train


@dataclass(frozen=True, eq=False)
class TrainedChild:
    """A child's new tensors, and how its training ended."""

    growth: Growth
    fit: Fit


def padding(widths: Sequence[Widths], bounds: Widths) -> Widths:
    """Return what a round is padded to: the next power of two above its widest child, at most the bounds.

    Buckets keep the number of shapes small, so that a captured step serves many rounds, and a round of small
    children does not pay for the whole box.
    """
    widest = [max(group) for group in zip(*widths, strict=True)]
    buckets = [1 << (most - 1).bit_length() if most else 0 for most in widest]
    return tuple(map(min, bounds, buckets))


def train_round(
    network: ExpandableNetwork,
    task: DeviceTask,
    widths: Sequence[Widths],
    *,
    classes: int,
    recipe: Recipe,
    seeds: Sequence[int],
    order_seed: int,
    pad_to: Widths,
    listen: Listener,
    cache: StepCache | None = None,
    memory_gb: float = math.inf,
) -> list[TrainedChild]:
    """Train one child per entry of ``widths``, in that order; the network itself stays as it is.

    A pure function of its arguments. Children of every round of a task share ``order_seed``, so that they
    see the same batches and their accuracies differ by their widths rather than by luck.

    A round that needs more than ``memory_gb`` is trained in parts; out of memory all the same, a part is halved.
    """
    at_once = len(widths)
    if at_once > 1 and math.isfinite(memory_gb):
        one = network.grow(widths[:1], classes, seeds=seeds[:1], pad_to=pad_to)
        at_once = max(1, min(at_once, int(memory_gb * 1e9 / training_bytes(one, task, recipe.batch_size))))
    trained: list[TrainedChild] = []
    while len(trained) < len(widths):
        part = slice(len(trained), len(trained) + at_once)
        try:
            children = network.grow(widths[part], classes, seeds=seeds[part], pad_to=pad_to)
            fits = train(
                children,
                [task],
                recipe,
                seed=order_seed,
                on_epoch=lambda done, total: listen(EpochDone(done, total)),
                cache=cache,
            )
        except torch.OutOfMemoryError:
            if at_once == 1:
                raise
            at_once = -(-at_once // 2)
            listen(OutOfMemory(at_once))
            continue
        trained += [TrainedChild(children.growth(index), fit) for index, fit in enumerate(fits)]
    return trained

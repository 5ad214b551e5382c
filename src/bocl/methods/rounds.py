"""A round: children of one network, made, trained together and taken out again."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from bocl.errors import BoclError
from bocl.methods.checks import NOT_FINITE, is_out_of_memory
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.graph import Widths
from bocl.networks.growth import Growth
from bocl.records.events import EpochDone, Listener, OutOfMemory
from bocl.training.batches import DeviceTask
from bocl.training.footprint import training_bytes
from bocl.training.recipe import Recipe
from bocl.training.steps import StepCache
from bocl.training.trainer import Effort, Fit, train


@dataclass(frozen=True, eq=False)
class TrainedChild:
    """A child's new tensors, and how its training ended; a child that failed has a reason and no tensors."""

    growth: Growth
    fit: Fit
    failure: str = ""


#: What trains a round: ``train_round``, or a function called as it is, that remembers, or sends it elsewhere.
TrainRound = Callable[..., list[TrainedChild]]


@runtime_checkable
class TrainsInRounds(Protocol):
    """A method whose training is rounds and nothing else; what trains them can be replaced."""

    train_round: TrainRound


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
    most_at_once: int | None = None,
) -> list[TrainedChild]:
    """Train one child per entry of ``widths``, in that order; the network itself stays as it is.

    A pure function of its arguments. Children of every round of a task share ``order_seed``, so that they
    see the same batches and their accuracies differ by their widths rather than by luck.

    A round that needs more than ``memory_gb``, or has more than ``most_at_once`` children, is trained in parts.
    Out of memory all the same, it starts again in parts of half the size, so that all its children are trained
    with one number at once. A child whose loss is not finite, or that raises, fails; the others go on.
    """
    at_once = min(len(widths), most_at_once or len(widths))
    if at_once > 1 and math.isfinite(memory_gb):
        one = network.grow(widths[:1], classes, seeds=seeds[:1], pad_to=pad_to)
        at_once = max(1, min(at_once, int(memory_gb * 1e9 / training_bytes(one, task, recipe.batch_size))))

    def train_part(part: slice) -> list[TrainedChild]:
        children = network.grow(widths[part], classes, seeds=seeds[part], pad_to=pad_to)
        fits = train(
            children,
            [task],
            recipe,
            seed=order_seed,
            on_epoch=lambda done, total: listen(EpochDone(done, total)),
            cache=cache,
        )
        return [
            _failed(z, classes, NOT_FINITE, fit) if math.isnan(fit.accuracy) else TrainedChild(children.growth(at), fit)
            for at, (z, fit) in enumerate(zip(widths[part], fits, strict=True))
        ]

    def train_or_fail(start: int, stop: int) -> list[TrainedChild]:
        try:
            return train_part(slice(start, stop))
        except Exception as error:
            if isinstance(error, BoclError) or is_out_of_memory(error) or _is_of_the_device(error):
                raise
            if stop - start > 1:  # which of them was it?
                return [child for at in range(start, stop) for child in train_or_fail(at, at + 1)]
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            return [_failed(widths[start], classes, reason, Fit(math.nan, math.nan, 0, Effort()))]

    while True:
        try:
            starts = range(0, len(widths), at_once)
            return [child for at in starts for child in train_or_fail(at, min(at + at_once, len(widths)))]
        except (MemoryError, RuntimeError) as error:
            if at_once == 1 or not is_out_of_memory(error):
                raise
            at_once = -(-at_once // 2)
            listen(OutOfMemory(at_once))


def _failed(widths: Widths, classes: int, reason: str, fit: Fit) -> TrainedChild:
    return TrainedChild(Growth(widths, classes, {}), fit, reason)


def _is_of_the_device(error: Exception) -> bool:
    """Whether an error has nothing to do with the child: a GPU that failed once fails everything after."""
    return isinstance(error, RuntimeError) and "CUDA error" in str(error)

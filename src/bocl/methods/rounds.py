"""Rounds: children of one network, trained together.

A ``Round`` says all that its result depends on besides the network and the data, as plain values: it can be written
down, compared and sent elsewhere. A ``RoundTrainer`` turns it into trained children. ``LocalTrainer`` does so in this
process; a run puts one around it that keeps every round on disk (``experiment/round_archive.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from bocl.errors import BoclError
from bocl.methods.failures import NOT_FINITE, Listener, is_out_of_memory
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.growth import Growth
from bocl.records.events import Callback, EpochDone, OutOfMemory, ignore_events
from bocl.seeding import seed_for
from bocl.training.batches import DeviceTask
from bocl.training.footprint import training_bytes
from bocl.training.recipe import Recipe
from bocl.training.steps import StepCache
from bocl.training.trainer import Effort, Fit, train
from bocl.widths import Widths


@dataclass(frozen=True)
class Round:
    """Children to be trained together, on one task.

    purpose           `base` (the first network, or growth without a search), `difficulty` (the paper's meta-feature)
                      or `search`
    task              the task's number, from 0
    classes           of the task
    widths            z of every child
    seeds             of every child's first weights
    order_seed        of the order of samples: the same for all rounds of a task, so that the accuracies of children
                      differ by their widths rather than by luck
    pad_to            the widths that all children are padded to
    recipe            how they are trained
    fresh             whether they grow from nothing instead of from the network
    memory_gb         most memory they may take together; a larger round is trained in parts; None for no limit
    children_at_once  most children trained together; None for no limit
    """

    purpose: str
    task: int
    classes: int
    widths: tuple[Widths, ...]
    seeds: tuple[int, ...]
    order_seed: int
    pad_to: Widths
    recipe: Recipe
    fresh: bool = False
    memory_gb: float | None = None
    children_at_once: int | None = None


@dataclass(frozen=True, eq=False)
class TrainedChild:
    """A child's new tensors, and how its training ended; a child that failed has a reason and no tensors."""

    growth: Growth
    fit: Fit
    failure: str = ""


def ignore(_children_at_once: int) -> None:
    """Do nothing about a round that is halved."""


class RoundTrainer(Protocol):
    """Trains rounds."""

    def __call__(
        self,
        asked: Round,
        network: ExpandableNetwork,
        data: DeviceTask,
        callback: Callback = ignore_events,
        on_halving: Callable[[int], None] = ignore,
    ) -> list[TrainedChild]:
        """Train one child per entry of ``asked.widths``, in that order; the network itself stays as it is.

        on_halving  called with the new number of children at once before a round that ran out of memory is tried again
        """
        ...


@dataclass(frozen=True)
class RoundMaker:
    """Makes the rounds of one task.

    seed  of the method: those of children, base network and order follow from it and the task's number
    """

    task: int
    classes: int
    recipe: Recipe
    seed: int
    memory_gb: float | None = None
    children_at_once: int | None = None

    def base(self, widths: Widths, purpose: str = "base") -> Round:
        """Return the round of a fresh base network, all of it, without attention."""
        return Round(
            purpose,
            self.task,
            self.classes,
            (widths,),
            (seed_for(self.seed, "base", self.task),),
            seed_for(self.seed, "order", self.task),
            widths,
            self.recipe,
            fresh=True,
        )

    def children(self, purpose: str, widths: Sequence[Widths], seeds: Sequence[int], pad_to: Widths) -> Round:
        """Return the round of children that grow from the network."""
        return Round(
            purpose,
            self.task,
            self.classes,
            tuple(widths),
            tuple(seeds),
            seed_for(self.seed, "order", self.task),
            pad_to,
            self.recipe,
            memory_gb=self.memory_gb,
            children_at_once=self.children_at_once,
        )


def padding(widths: Sequence[Widths], bounds: Widths) -> Widths:
    """Return what a round is padded to: the next power of two above its widest child, at most the bounds.

    Buckets keep the number of shapes small, so that a captured step serves many rounds, and a round of small
    children does not pay for the whole box.
    """
    widest = [max(group) for group in zip(*widths, strict=True)]
    buckets = [1 << (most - 1).bit_length() if most else 0 for most in widest]
    return tuple(map(min, bounds, buckets))


class LocalTrainer:
    """Trains the rounds of one task in this process.

    It keeps captured steps from round to round. A captured step belongs to one network and one task, so a trainer
    serves one task.
    """

    def __init__(self) -> None:
        self._cache = StepCache()

    def __call__(
        self,
        asked: Round,
        network: ExpandableNetwork,
        data: DeviceTask,
        callback: Callback = ignore_events,
        on_halving: Callable[[int], None] = ignore,
    ) -> list[TrainedChild]:
        """Train a round; see ``RoundTrainer``.

        A round that is too large is trained in parts. If it still runs out of memory, it starts again in parts of half
        the size, so that all children are trained with the same number at once. A child whose loss is not finite, or
        that raises, fails; the others continue. What the callback raises ends the round.
        """
        listener = Listener(callback)
        if asked.fresh:
            network = ExpandableNetwork(network.graph, network.settings, network.device)
        at_once = _children_that_fit(asked, network, data)
        count = len(asked.widths)
        while True:
            try:
                parts = [slice(start, min(start + at_once, count)) for start in range(0, count, at_once)]
                return [child for part in parts for child in self._train_or_fail(asked, network, data, part, listener)]
            except (MemoryError, RuntimeError) as error:
                if error is listener.raised or at_once == 1 or not is_out_of_memory(error):
                    raise
            at_once = -(-at_once // 2)
            on_halving(at_once)
            callback(OutOfMemory(at_once))

    def _train_or_fail(
        self, asked: Round, network: ExpandableNetwork, data: DeviceTask, part: slice, listener: Listener
    ) -> list[TrainedChild]:
        """Train some children of a round together. If that raises, train each by itself, to see which it was."""
        try:
            return self._train(asked, network, data, part, listener)
        except Exception as error:
            if error is listener.raised or isinstance(error, BoclError):
                raise
            if is_out_of_memory(error) or _is_of_the_device(error):
                raise
            reason = " ".join(f"{type(error).__name__}: {error}".split())
        if part.stop - part.start > 1:
            alone = [slice(at, at + 1) for at in range(part.start, part.stop)]
            return [child for one in alone for child in self._train_or_fail(asked, network, data, one, listener)]
        return [_failed(asked, part.start, reason, Fit(math.nan, math.nan, 0, Effort()))]

    def _train(
        self, asked: Round, network: ExpandableNetwork, data: DeviceTask, part: slice, callback: Callback
    ) -> list[TrainedChild]:
        children = network.grow(asked.widths[part], asked.classes, seeds=asked.seeds[part], pad_to=asked.pad_to)
        fits = train(
            children,
            [data],
            asked.recipe,
            seed=asked.order_seed,
            on_epoch=lambda *facts: callback(EpochDone(*facts)),
            cache=None if asked.fresh else self._cache,
        )
        return [
            _failed(asked, part.start + at, NOT_FINITE, fit)
            if math.isnan(fit.accuracy)
            else TrainedChild(children.growth(at), fit)
            for at, fit in enumerate(fits)
        ]


def _children_that_fit(asked: Round, network: ExpandableNetwork, data: DeviceTask) -> int:
    """Return how many children may be trained together within the round's limits; one child is never too many."""
    at_once = min(len(asked.widths), asked.children_at_once or len(asked.widths))
    if at_once == 1 or asked.memory_gb is None:
        return at_once
    one = network.grow(asked.widths[:1], asked.classes, seeds=asked.seeds[:1], pad_to=asked.pad_to)
    needed = training_bytes(one, data, asked.recipe.batch_size)
    return max(1, min(at_once, int(asked.memory_gb * 1e9 / needed)))


def _failed(asked: Round, at: int, reason: str, fit: Fit) -> TrainedChild:
    return TrainedChild(Growth(asked.widths[at], asked.classes, {}), fit, reason)


def _is_of_the_device(error: Exception) -> bool:
    """Whether an error has nothing to do with the child: a GPU that failed once fails everything after."""
    return isinstance(error, RuntimeError) and "CUDA error" in str(error)

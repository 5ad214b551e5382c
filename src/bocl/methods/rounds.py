"""Rounds: children of one network, trained together.

A ``Round`` says all that its result depends on besides the network and the data, as plain values: it can be written
down, compared and sent elsewhere. A ``RoundTrainer`` turns it into trained children. ``LocalTrainer`` does so in this
process; a run puts one around it that keeps every round on disk (``experiment/round_archive.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from bocl.errors import BoclError
from bocl.methods.failures import NOT_FINITE, Listener, is_out_of_memory
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.growth import Growth
from bocl.networks.stacked import Children
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
    reads             for every child the tasks whose units it reads; none: it grows from nothing
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
    reads: tuple[tuple[int, ...], ...]
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
            reads=((),),
        )

    def children(
        self,
        purpose: str,
        widths: Sequence[Widths],
        seeds: Sequence[int],
        pad_to: Widths,
        reads: Sequence[tuple[int, ...]],
    ) -> Round:
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
            reads=tuple(reads),
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
        at_once = _children_that_fit(asked, network, data)
        while True:
            try:
                trained: dict[int, TrainedChild] = {}
                for part in _parts(asked, network, at_once):
                    trained |= self._train_or_fail(asked, network, data, part, listener)
                return [trained[at] for at in range(len(asked.widths))]
            except (MemoryError, RuntimeError) as error:
                if error is listener.raised or at_once == 1 or not is_out_of_memory(error):
                    raise
            at_once = -(-at_once // 2)
            on_halving(at_once)
            callback(OutOfMemory(at_once))

    def _train_or_fail(
        self, asked: Round, network: ExpandableNetwork, data: DeviceTask, part: list[int], listener: Listener
    ) -> dict[int, TrainedChild]:
        """Train some children of a round together. If that raises, train each by itself, to see which it was."""
        try:
            return self._train(asked, network, data, part, listener)
        except Exception as error:
            if error is listener.raised or isinstance(error, BoclError):
                raise
            if is_out_of_memory(error) or _is_of_the_device(error):
                raise
            reason = " ".join(f"{type(error).__name__}: {error}".split())
        if len(part) > 1:
            trained: dict[int, TrainedChild] = {}
            for at in part:
                trained |= self._train_or_fail(asked, network, data, [at], listener)
            return trained
        return {part[0]: _failed(asked, part[0], reason, Fit(math.nan, math.nan, 0, Effort()))}

    def _train(
        self, asked: Round, network: ExpandableNetwork, data: DeviceTask, part: list[int], callback: Callback
    ) -> dict[int, TrainedChild]:
        children = _grow(asked, network, part)
        fits = train(
            children,
            [data],
            asked.recipe,
            seed=asked.order_seed,
            on_epoch=lambda *facts: callback(EpochDone(*facts)),
            cache=self._cache if asked.reads[part[0]] else None,
        )
        return {
            at: _failed(asked, at, NOT_FINITE, fit)
            if math.isnan(fit.accuracy)
            else TrainedChild(children.growth(place), fit)
            for place, (at, fit) in enumerate(zip(part, fits, strict=True))
        }


def _parts(asked: Round, network: ExpandableNetwork, at_once: int) -> list[list[int]]:
    """Return which children of a round are trained together: those that read the same tasks, ``at_once`` at most."""
    alike: dict[Hashable, list[int]] = {}
    unpadded = any(norm.kind == "group" for norm in network.graph.norms)  # in a network of its own
    for at, (z, reads) in enumerate(zip(asked.widths, asked.reads, strict=True)):
        alike.setdefault((reads, z if unpadded and not reads else None), []).append(at)
    return [group[start : start + at_once] for group in alike.values() for start in range(0, len(group), at_once)]


def _grow(asked: Round, network: ExpandableNetwork, part: list[int]) -> Children:
    widths, reads = [asked.widths[at] for at in part], asked.reads[part[0]]
    unequal = reads or len(set(widths)) > 1
    pad_to = asked.pad_to if unequal else widths[0]
    return network.grow(widths, asked.classes, seeds=[asked.seeds[at] for at in part], pad_to=pad_to, reads=reads)


def _children_that_fit(asked: Round, network: ExpandableNetwork, data: DeviceTask) -> int:
    """Return how many children may be trained together within the round's limits; one child is never too many."""
    at_once = min(len(asked.widths), asked.children_at_once or len(asked.widths))
    if at_once == 1 or asked.memory_gb is None:
        return at_once
    one = _grow(asked, network, [max(range(len(asked.reads)), key=lambda at: len(asked.reads[at]))])
    needed = training_bytes(one, data, asked.recipe.batch_size)
    return max(1, min(at_once, int(asked.memory_gb * 1e9 / needed)))


def _failed(asked: Round, at: int, reason: str, fit: Fit) -> TrainedChild:
    return TrainedChild(Growth(asked.widths[at], asked.classes, {}, asked.reads[at]), fit, reason)


def _is_of_the_device(error: Exception) -> bool:
    """Whether an error has nothing to do with the child: a GPU that failed once fails everything after."""
    return isinstance(error, RuntimeError) and "CUDA error" in str(error)

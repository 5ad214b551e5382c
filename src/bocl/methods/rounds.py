"""Rounds: children of one network, trained together.

A ``Round`` says all that its result depends on besides the network and the data, as plain values: it can be written
down, compared and sent elsewhere. A ``RoundTrainer`` turns it into trained children. ``LocalTrainer`` does so in this
process (``round_trainer.py``); a run puts one around it that keeps every round on disk
(``experiment/round_archive.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from bocl.methods.halving import Halving
from bocl.networks.growing import GrowingNetwork
from bocl.networks.growth import Growth
from bocl.records.events import Callback, ignore_events
from bocl.seeding import seed_for
from bocl.training.batches import DeviceTask
from bocl.training.recipe import Recipe
from bocl.training.trainer import Fit
from bocl.widths import Widths

Places = tuple[int, ...]  # of children in their round


@dataclass(frozen=True)
class Round:
    """Children to be trained together, on one task.

    purpose           `base` (the first network, or growth without a search), `difficulty` (the paper's meta-feature),
                      `search`, or `final` (what was chosen, on all samples)
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
    parts             into how many parts the round is split at least, so that so many devices can share it
    halving           when children that are behind are stopped; None: all are trained to the end
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
    parts: int = 1
    halving: Halving | None = None


@dataclass(frozen=True, eq=False)
class TrainedChild:
    """A child's new tensors, and how its training ended.

    A child that failed has a reason. One that was stopped because others were ahead has none. Neither has tensors or
    an accuracy.

    rungs  what it was compared by at every rung it reached, if its round has any
    """

    growth: Growth
    fit: Fit
    failure: str = ""
    rungs: tuple[float, ...] = ()

    @property
    def stopped(self) -> bool:
        """Whether it was stopped before the end."""
        return math.isnan(self.fit.accuracy) and not self.failure and bool(self.rungs)


def ignore(_children_at_once: int) -> None:
    """Do nothing about a round that is halved."""


class RoundTrainer(Protocol):
    """Trains rounds."""

    def __call__(
        self,
        asked: Round,
        network: GrowingNetwork,
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
    parts: int = 1

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
        halving: Halving | None = None,
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
            parts=self.parts,
            halving=halving,
        )


def padding(widths: Sequence[Widths], bounds: Widths) -> Widths:
    """Return what a round is padded to: the next power of two above its widest child, at most the bounds.

    Buckets keep the number of shapes small, so that a captured step serves many rounds, and a round of small
    children does not pay for the whole box.
    """
    widest = [max(group) for group in zip(*widths, strict=True)]
    buckets = [1 << (most - 1).bit_length() if most else 0 for most in widest]
    return tuple(map(min, bounds, buckets))

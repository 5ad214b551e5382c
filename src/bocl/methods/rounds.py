"""Rounds: children of one network, trained together.

A ``Round`` says all that its result depends on besides the network and the data, as plain values: it can be written
down, compared and sent elsewhere. A ``RoundTrainer`` turns it into trained children. ``LocalTrainer`` does so in this
process; a run puts one around it that keeps every round on disk (``experiment/round_archive.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from bocl.errors import BoclError
from bocl.methods.failures import NOT_FINITE, Listener, is_out_of_memory
from bocl.methods.halving import Halving, going_on
from bocl.networks.growing import GrowingChildren, GrowingNetwork
from bocl.networks.growth import Growth
from bocl.records.events import Callback, EpochDone, OutOfMemory, ignore_events
from bocl.seeding import seed_for
from bocl.training.batches import DeviceTask
from bocl.training.footprint import training_bytes
from bocl.training.recipe import Recipe
from bocl.training.steps import StepCache
from bocl.training.trainer import Effort, Fit, Training, train
from bocl.widths import Widths

Places = tuple[int, ...]  # of children in their round
Result = TypeVar("Result")


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
        network: GrowingNetwork,
        data: DeviceTask,
        callback: Callback = ignore_events,
        on_halving: Callable[[int], None] = ignore,
    ) -> list[TrainedChild]:
        """Train a round; see ``RoundTrainer``.

        A round that is too large is trained in parts. If it still runs out of memory, it starts again in parts of half
        the size, so that all children are trained with the same number at once. A child whose loss is not finite, or
        that raises, fails; the others continue. Children that are behind at a rung are stopped, whatever their part.
        What the callback raises ends the round, and so does a warning that the caller made an error.
        """
        listener = Listener(callback)
        at_once = _children_that_fit(asked, network, data)
        while True:
            going = _RoundInTraining(asked, network, data, self._cache if any(asked.reads) else None, listener)
            parts = _parts(asked, network, at_once)
            try:
                if asked.halving is not None:
                    for until, keep in zip(asked.halving.rungs, asked.halving.keep, strict=True):
                        parts = going.halve(parts, asked.halving, until, keep)
                going.finish(parts)
                return [going.ended[place] for place in range(len(asked.widths))]
            except (MemoryError, RuntimeError) as error:
                if error is listener.raised or at_once == 1 or not is_out_of_memory(error):
                    raise
            del going  # and with it all that is in memory
            at_once = -(-at_once // 2)
            on_halving(at_once)
            callback(OutOfMemory(at_once))


def _parts(asked: Round, network: GrowingNetwork, at_once: int) -> list[Places]:
    """Return the places of the children that are trained together: they read the same tasks, ``at_once`` at most."""
    alike: dict[Hashable, list[int]] = {}
    for place, (z, reads) in enumerate(zip(asked.widths, asked.reads, strict=True)):
        alike.setdefault((reads, z if network.own_only_alike and not reads else None), []).append(place)
    return [
        tuple(places[start : start + at_once]) for places in alike.values() for start in range(0, len(places), at_once)
    ]


class _RoundInTraining:
    """A round while it is trained, part by part.

    Where children are stopped, parts take turns: all are trained up to a rung before any goes on. A part that waits
    keeps its weights and its optimiser's moments in memory, and the best weights so far if the recipe has patience.

    ended  the children whose training is over, by place
    """

    def __init__(
        self,
        asked: Round,
        network: GrowingNetwork,
        data: DeviceTask,
        cache: StepCache | None,
        listener: Listener,
    ) -> None:
        self.ended: dict[int, TrainedChild] = {}
        self._asked, self._network, self._data, self._listener = asked, network, data, listener
        self._options: Any = {
            "seed": asked.order_seed,
            "on_epoch": lambda *facts: listener(EpochDone(*facts)),
            "cache": cache,
        }
        self._waiting: dict[Places, Training[GrowingChildren]] = {}
        self._rungs: dict[int, tuple[float, ...]] = dict.fromkeys(range(len(asked.widths)), ())

    def halve(self, parts: Sequence[Places], halving: Halving, until: int, keep: int) -> list[Places]:
        """Train up to so many epochs, stop all children but the best, and return the parts that are left."""

        def advanced(places: Places) -> list[Fit]:
            training = self._waiting.pop(places, None)  # children that go on alone start from the beginning
            if training is None:
                children = _grow(self._asked, self._network, places)
                training = Training(children, [self._data], self._asked.recipe, **self._options)
            training.advance(until)
            fits = training.fits()
            self._waiting[places] = training
            return fits

        fits: dict[int, Fit] = {}
        for part in parts:
            self._together_or_alone(part, advanced, lambda places, found: fits.update(zip(places, found, strict=True)))
        for place, fit in fits.items():
            if math.isnan(fit.accuracy):
                self._end(place, fit, NOT_FINITE)
            else:
                self._rungs[place] += (getattr(fit, halving.by),)
        scores = {place: getattr(fit, halving.by) for place, fit in fits.items() if place not in self.ended}
        chosen = going_on(scores, halving, keep)
        for place in scores.keys() - chosen:
            self._end(place, replace(fits[place], accuracy=math.nan, confidence=math.nan))
        for part, training in list(self._waiting.items()):
            del self._waiting[part]
            staying = tuple(place for place in part if place in chosen)
            if staying:
                training.keep([part.index(place) for place in staying])
                self._waiting[staying] = training
        return list(self._waiting)

    def finish(self, parts: Sequence[Places]) -> None:
        """Train the children of these parts to the end."""

        def finished(places: Places) -> tuple[GrowingChildren, list[Fit]]:
            training = self._waiting.pop(places, None)
            if training is not None:
                return training.network, training.finish()
            children = _grow(self._asked, self._network, places)
            return children, train(children, [self._data], self._asked.recipe, **self._options)

        def end(places: Places, trained: tuple[GrowingChildren, list[Fit]]) -> None:
            children, fits = trained
            for at, (place, fit) in enumerate(zip(places, fits, strict=True)):
                if math.isnan(fit.accuracy):
                    self._end(place, fit, NOT_FINITE)
                else:
                    self.ended[place] = TrainedChild(children.growth(at), fit, rungs=self._rungs[place])

        for part in parts:
            self._together_or_alone(part, finished, end)

    def _together_or_alone(
        self, part: Places, work: Callable[[Places], Result], take: Callable[[Places, Result], None]
    ) -> None:
        """Do some work for children together. If that raises, do it for each by itself, to see which it was.

        take  is called with places and what the work returned for them. A child that raises by itself has ended.
        """
        try:
            result = work(part)
        except Exception as error:
            if error is self._listener.raised or isinstance(error, BoclError | Warning):
                raise  # a warning is raised where the caller made warnings errors, and says nothing about the child
            if is_out_of_memory(error) or _is_of_the_device(error):
                raise
            reason = " ".join(f"{type(error).__name__}: {error}".split())
        else:
            take(part, result)
            return
        if len(part) > 1:
            for place in part:
                self._together_or_alone((place,), work, take)
        else:
            self._end(part[0], Fit(math.nan, math.nan, 0, Effort()), reason)

    def _end(self, place: int, fit: Fit, failure: str = "") -> None:
        """Note a child that leaves no tensors: it failed, or was stopped."""
        growth = Growth(self._asked.widths[place], self._asked.classes, {}, self._asked.reads[place])
        self.ended[place] = TrainedChild(growth, fit, failure, self._rungs[place])


def _grow(asked: Round, network: GrowingNetwork, places: Places) -> GrowingChildren:
    widths, reads = [asked.widths[place] for place in places], asked.reads[places[0]]
    seeds = [asked.seeds[place] for place in places]
    whole = network.pretrained or reads or len(set(widths)) > 1
    pad_to = asked.pad_to if whole else widths[0]
    return network.grow(widths, asked.classes, seeds=seeds, pad_to=pad_to, reads=reads)


def _children_that_fit(asked: Round, network: GrowingNetwork, data: DeviceTask) -> int:
    """Return how many children may be trained together within the round's limits; one child is never too many."""
    at_once = min(len(asked.widths), asked.children_at_once or len(asked.widths))
    if at_once == 1 or asked.memory_gb is None:
        return at_once
    one = _grow(asked, network, (max(range(len(asked.reads)), key=lambda place: len(asked.reads[place])),))
    needed = training_bytes(one, data, asked.recipe)
    return max(1, min(at_once, int(asked.memory_gb * 1e9 / needed)))


def _is_of_the_device(error: Exception) -> bool:
    """Whether an error has nothing to do with the child: a GPU that failed once fails everything after."""
    return isinstance(error, RuntimeError) and "CUDA error" in str(error)

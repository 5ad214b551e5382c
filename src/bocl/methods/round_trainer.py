"""How a round is trained: in parts, stage by stage, with as many children at once as memory holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace

from bocl.methods.failures import NOT_FINITE, Listener, is_out_of_memory
from bocl.methods.halving import Halving, going_on
from bocl.methods.parts import PartDone, PartsTrainer, PartTrainer, PartWork, grow_part
from bocl.methods.rounds import Places, Round, TrainedChild, ignore
from bocl.networks.growing import GrowingNetwork
from bocl.networks.growth import Growth
from bocl.records.events import Callback, OutOfMemory, ignore_events
from bocl.training.batches import DeviceTask
from bocl.training.footprint import training_bytes
from bocl.training.steps import StepCache
from bocl.training.trainer import Effort, Fit


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
        """Train a round; see ``RoundTrainer``."""
        listener = Listener(callback)
        begin = lambda: PartTrainer(asked, network, data, self._cache, listener)  # noqa: E731
        return train_round(asked, network, data, begin, listener, on_halving)


def train_round(
    asked: Round,
    network: GrowingNetwork,
    data: DeviceTask,
    begin: Callable[[], PartsTrainer],
    listener: Listener,
    on_halving: Callable[[int], None],
) -> list[TrainedChild]:
    """Train a round part by part, and return its children in order.

    A round that is too large for memory is trained in more parts than it asks for. If it still runs out of memory, it
    starts again in parts of half the size, so that all children are trained with the same number at once. A child whose
    loss is not finite, or that raises, fails; the others continue. Children that are behind at a rung are stopped,
    whatever their part. What the callback raises ends the round, and so does a warning that the caller made an error.

    begin  makes what trains the parts of the round, from the beginning
    """
    at_once = _children_that_fit(asked, network, data)
    while True:
        going = _RoundInTraining(asked, begin(), _parts(asked, network, at_once))
        try:
            if asked.halving is not None:
                for until, keep in zip(asked.halving.rungs, asked.halving.keep, strict=True):
                    going.halve(asked.halving, until, keep)
            return going.finish()
        except (MemoryError, RuntimeError) as error:
            if error is listener.raised or at_once == 1 or not is_out_of_memory(error):
                raise
        del going  # and with it all that is in memory
        at_once = -(-at_once // 2)
        on_halving(at_once)
        listener(OutOfMemory(at_once))


def _parts(asked: Round, network: GrowingNetwork, at_once: int) -> list[Places]:
    """Return the places of the children that are trained together: they read the same tasks, ``at_once`` at most."""
    alike: dict[Hashable, list[int]] = {}
    for place, (z, reads) in enumerate(zip(asked.widths, asked.reads, strict=True)):
        alike.setdefault((reads, z if network.own_only_alike and not reads else None), []).append(place)
    return [
        tuple(places[start : start + at_once]) for places in alike.values() for start in range(0, len(places), at_once)
    ]


class _RoundInTraining:
    """A round while it is trained. Where children are stopped, all parts come to a rung before any goes on."""

    def __init__(self, asked: Round, trainer: PartsTrainer, parts: Iterable[Places]) -> None:
        self._asked, self._trainer = asked, trainer
        self._works = [PartWork(places) for places in parts]
        self._ended: dict[int, TrainedChild] = {}
        self._rungs: dict[int, tuple[float, ...]] = dict.fromkeys(range(len(asked.widths)), ())

    def halve(self, halving: Halving, until: int, keep: int) -> None:
        """Train up to so many epochs, and stop all children but the best."""
        done = self._do(until)
        fits = {place: fit for part in done for place, fit in zip(part.work.going, part.fits, strict=True)}
        for place, fit in fits.items():
            if math.isnan(fit.accuracy):
                self._end(place, fit, NOT_FINITE)
            else:
                self._rungs[place] += (getattr(fit, halving.by),)
        scores = {place: getattr(fit, halving.by) for place, fit in fits.items() if place not in self._ended}
        chosen = going_on(scores, halving, keep)
        for place in scores.keys() - chosen:
            self._end(place, replace(fits[place], accuracy=math.nan, confidence=math.nan))
        for part in done:
            staying = tuple(place for place in part.work.going if place in chosen)
            if staying:
                rungs = (*part.work.rungs, (until, staying))
                self._works.append(PartWork(part.work.places, rungs))

    def finish(self) -> list[TrainedChild]:
        """Train to the end, and return every child of the round."""
        for part in self._do(None):
            for place, fit, growth in zip(part.work.going, part.fits, part.growths, strict=True):
                if growth is None:
                    self._end(place, fit, NOT_FINITE)
                else:
                    self._ended[place] = TrainedChild(growth, fit, rungs=self._rungs[place])
        return [self._ended[place] for place in range(len(self._asked.widths))]

    def _do(self, until: int | None) -> list[PartDone]:
        """Do the next stage of all parts; return those that did not raise."""
        works, self._works = [replace(work, until=until) for work in self._works], []
        parts = self._trainer(works) if works else []
        for part in parts:
            if part.failure:
                self._end(part.work.going[0], Fit(math.nan, math.nan, 0, Effort()), part.failure)
        return [part for part in parts if not part.failure]

    def _end(self, place: int, fit: Fit, failure: str = "") -> None:
        """Note a child that leaves no tensors: it failed, or was stopped."""
        growth = Growth(self._asked.widths[place], self._asked.classes, {}, self._asked.reads[place])
        self._ended[place] = TrainedChild(growth, fit, failure, self._rungs[place])


def _children_that_fit(asked: Round, network: GrowingNetwork, data: DeviceTask) -> int:
    """Return how many children may be trained together within the round's limits; one child is never too many."""
    count = len(asked.widths)
    at_once = min(-(-count // asked.parts), asked.children_at_once or count)
    if at_once == 1 or asked.memory_gb is None:
        return at_once
    one = grow_part(asked, network, (max(range(count), key=lambda place: len(asked.reads[place])),))
    needed = training_bytes(one, data, asked.recipe)
    return max(1, min(at_once, int(asked.memory_gb * 1e9 / needed)))

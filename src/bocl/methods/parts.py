"""Parts of a round: children that are trained together, in this process or in another.

What is to be done with a part is plain data, and with the round, the network and the samples it is all that the result
depends on. So whoever has lost a part, or never had it, can take it up where it stood: by the same steps again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bocl.errors import BoclError
from bocl.methods.failures import Listener, is_out_of_memory
from bocl.methods.rounds import Places, Round
from bocl.networks.growing import GrowingChildren, GrowingNetwork
from bocl.networks.growth import Growth
from bocl.records.events import EpochDone
from bocl.training.batches import DeviceTask
from bocl.training.steps import StepCache
from bocl.training.trainer import Fit, Training, train


@dataclass(frozen=True)
class PartWork:
    """How far a part is to be trained.

    places  of its children in the round, when it began
    rungs   (epochs, places of those that went on) for every rung behind it
    until   epochs after which it waits for the other parts; None: it is trained to the end
    """

    places: Places
    rungs: tuple[tuple[int, Places], ...] = ()
    until: int | None = None

    @property
    def going(self) -> Places:
        """The places of the children that are still trained."""
        return self.rungs[-1][1] if self.rungs else self.places


@dataclass(frozen=True, eq=False)
class PartDone:
    """A part as it is after some work.

    work     that was done; of one child alone where all together raised
    fits     of the children that are still trained, as if training ended now
    growths  theirs, at the end, but None for one whose loss was not finite; () before the end
    failure  why a child that was trained alone raised: then it has no fit
    """

    work: PartWork
    fits: tuple[Fit, ...] = ()
    growths: tuple[Growth | None, ...] = ()
    failure: str = ""


class PartsTrainer(Protocol):
    """Trains the parts of one round, stage by stage: all up to a rung before any goes on."""

    def __call__(self, works: Sequence[PartWork]) -> list[PartDone]:
        """Do this work, and return what came of it in the same order; what raised together is there child by child.

        What no child is to blame for is raised: wrong input, warnings, memory that ran out, a device that failed.
        """
        ...


class PartTrainer:
    """Trains parts in this process, one after another.

    Those that wait at a rung keep their weights and their optimiser's moments in memory, as long as they may go on.
    """

    def __init__(
        self,
        asked: Round,
        network: GrowingNetwork,
        data: DeviceTask,
        cache: StepCache,
        listener: Listener,
    ) -> None:
        self._asked, self._network, self._data, self._listener = asked, network, data, listener
        self._options: Any = {
            "seed": asked.order_seed,
            "on_epoch": lambda *facts: listener(EpochDone(*facts)),
            "cache": cache if any(asked.reads) else None,
        }
        self._waiting: dict[PartWork, Training[GrowingChildren]] = {}

    def __call__(self, works: Sequence[PartWork]) -> list[PartDone]:
        """Train parts; see ``PartsTrainer``."""
        wanted = {_before(work) for work in works if work.rungs}
        self._waiting = {work: training for work, training in self._waiting.items() if work in wanted}
        return [done for work in works for done in self._together_or_alone(work)]

    def _together_or_alone(self, work: PartWork) -> list[PartDone]:
        """Train children together. If that raises, train each by itself from the beginning, to see which it was."""
        try:
            return [self._done(work)]
        except Exception as error:
            if error is self._listener.raised or isinstance(error, BoclError | Warning):
                raise  # a warning is raised where the caller made warnings errors, and says nothing about the child
            if is_out_of_memory(error) or _is_of_the_device(error):
                raise
            reason = " ".join(f"{type(error).__name__}: {error}".split())
        if len(work.going) == 1:
            return [PartDone(work, failure=reason)]
        alone = [PartWork((place,), until=work.until) for place in work.going]
        return [done for each in alone for done in self._together_or_alone(each)]

    def _done(self, work: PartWork) -> PartDone:
        if work.until is not None:
            training = self._training(work)
            training.advance(work.until)
            self._waiting[work] = training
            return PartDone(work, tuple(training.fits()))
        if work.rungs:
            training = self._training(work)
            fits, children = training.finish(), training.network
        else:
            children = grow_part(self._asked, self._network, work.places)
            fits = train(children, [self._data], self._asked.recipe, **self._options)
        growths = (None if math.isnan(fit.accuracy) else children.growth(at) for at, fit in enumerate(fits))
        return PartDone(work, tuple(fits), tuple(growths))

    def _training(self, work: PartWork) -> Training[GrowingChildren]:
        """Return the training of a part as it left its last rung: the one that waits there, or the same steps again."""
        if not work.rungs:
            children = grow_part(self._asked, self._network, work.places)
            return Training(children, [self._data], self._asked.recipe, **self._options)
        before = _before(work)
        training = self._waiting.pop(before, None)
        if training is None:
            training = self._training(before)
            training.advance(work.rungs[-1][0])
        training.keep([before.going.index(place) for place in work.going])
        return training


def _before(work: PartWork) -> PartWork:
    """Return the work after which a part came to its last rung."""
    *earlier, (until, _) = work.rungs
    return PartWork(work.places, tuple(earlier), until)


def grow_part(asked: Round, network: GrowingNetwork, places: Places) -> GrowingChildren:
    """Make the children at these places of a round, ready to be trained together."""
    widths, reads = [asked.widths[place] for place in places], asked.reads[places[0]]
    seeds = [asked.seeds[place] for place in places]
    whole = network.pretrained or reads or len(set(widths)) > 1
    pad_to = asked.pad_to if whole else widths[0]
    return network.grow(widths, asked.classes, seeds=seeds, pad_to=pad_to, reads=reads)


def _is_of_the_device(error: Exception) -> bool:
    """Whether an error has nothing to do with the child: a GPU that failed once fails everything after."""
    return isinstance(error, RuntimeError) and "CUDA error" in str(error)

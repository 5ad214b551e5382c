"""A round whose parts are shared out over this process and others, each with a device of its own.

the process that makes the run                       another process
SpreadTrainer ─▶ PartTrainer, for its own share
    └─▶ Helper: PartProcess  ── socket ──────────▶ part_process.main ─▶ PartServer ─▶ PartTrainer
             or RayHelper    ── Ray ─────────────▶ PartActor ─────────▶ PartServer ─▶ PartTrainer
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch

from bocl.engines.part_process import PartProcess
from bocl.engines.part_server import Subject, on_device
from bocl.experiment.build import module_of
from bocl.experiment.config import Config
from bocl.methods.failures import Listener
from bocl.methods.parts import PartDone, PartsTrainer, PartTrainer, PartWork
from bocl.methods.round_trainer import train_round
from bocl.methods.rounds import Places, Round, TrainedChild, ignore
from bocl.networks.growing import GrowingNetwork
from bocl.records.events import Callback, ignore_events
from bocl.training.batches import DeviceTask
from bocl.training.steps import StepCache


class Helper(Protocol):
    """Trains parts of rounds somewhere else, while this process trains others."""

    def start(self, subject: Subject, asked: Round, works: Sequence[PartWork]) -> None:
        """Begin this work, and return at once."""
        ...

    def result(self) -> list[PartDone]:
        """Wait for what was begun, and return it, or raise what it raised. If the helper was lost, begin it again."""
        ...

    def drop(self) -> None:
        """Give up what was begun."""
        ...


class SpreadTrainer:
    """A round trainer for the tasks of one run: helpers train parts of a round while this process trains the first.

    What a child comes to is the same as in this process alone, if the round has as many parts there.
    """

    def __init__(self, helpers: Sequence[Helper]) -> None:
        self._helpers = helpers
        self._subject: Subject | None = None
        self._cache = StepCache()

    def __call__(
        self,
        asked: Round,
        network: GrowingNetwork,
        data: DeviceTask,
        callback: Callback = ignore_events,
        on_halving: Callable[[int], None] = ignore,
    ) -> list[TrainedChild]:
        """Train a round; see ``RoundTrainer``. Of epochs, those of this process are told."""
        if self._subject is None or self._subject.data is not data:
            self._subject, self._cache = Subject(network, data), StepCache()
        subject, listener = self._subject, Listener(callback)

        def begin() -> PartsTrainer:
            here = PartTrainer(asked, network, data, self._cache, listener)
            return _SpreadParts(here, self._helpers, subject, asked)

        return train_round(asked, network, data, begin, listener, on_halving)


@contextmanager
def spread_over(devices: Sequence[torch.device] | None, config: Config) -> Iterator[SpreadTrainer | None]:
    """Yield a trainer that shares out the parts of a run's rounds; None where there is nothing to share.

    This process has the first device, and a process of its own each of the others, up to as many as there are parts.
    """
    helped = (devices or [])[1 : config.search.parts]
    imports = config.network.build if helped and module_of(config.network) else None
    helpers: list[PartProcess] = []
    try:
        helpers += (PartProcess(device, imports) for device in helped)  # one by one: each is closed, whatever happens
        yield SpreadTrainer(helpers) if helpers else None
    finally:
        for helper in helpers:
            helper.close()


class _SpreadParts:
    """The parts of one round; each goes on where it began."""

    def __init__(self, here: PartTrainer, helpers: Sequence[Helper], subject: Subject, asked: Round) -> None:
        self._here, self._helpers, self._subject, self._asked = here, helpers, subject, asked
        self._homes: dict[Places, int] = {}  # of every part: 0 is here

    def __call__(self, works: Sequence[PartWork]) -> list[PartDone]:
        shares = self._shares(works)
        under_way = []
        try:
            for helper, share in zip(self._helpers, shares[1:], strict=True):
                if share:
                    under_way.append(helper)
                    helper.start(self._subject, self._asked, share)
            done = [self._here(shares[0])]
            while under_way:
                done.append(under_way[0].result())
                del under_way[0]
        except BaseException:
            for helper in under_way:
                helper.drop()
            raise
        device = self._subject.network.device
        parts = [on_device(part, device) for some in done for part in some]
        for part in parts:  # children that raised together are parts of their own now, where they are
            home = next(home for home, share in enumerate(shares) if any(part.work.going[0] in w.going for w in share))
            self._homes[part.work.places] = home
        order = {place: number for number, work in enumerate(works) for place in work.going}
        return sorted(parts, key=lambda part: order[part.work.going[0]])

    def _shares(self, works: Sequence[PartWork]) -> list[list[PartWork]]:
        """Return what each does: parts where they began; new ones, the largest first, where there is least to do."""
        shares: list[list[PartWork]] = [[] for _ in range(len(self._helpers) + 1)]
        loads = [0] * len(shares)
        for work in sorted(works, key=lambda work: (work.places not in self._homes, -len(work.going))):
            home = self._homes.get(work.places, loads.index(min(loads)))
            shares[home].append(work)
            loads[home] += len(work.going)
        return shares

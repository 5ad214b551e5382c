"""Runs as orders: plain data that says what to run and where, so that another process or machine can carry it out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bocl.experiment.build import build_base, build_stream
from bocl.experiment.config import Config
from bocl.experiment.run import run_built
from bocl.records.progress import progress_of
from bocl.settings import parse_value, to_plain
from bocl.tasks.task import TaskStream
from bocl.training.surroundings import usual_surroundings


@dataclass(frozen=True)
class RunOrder:
    """One run to make, or to resume.

    title          for people
    config         all its settings, as JSON values
    folder         of the run
    data           folder of the data files
    audit          whether earlier tasks are proved untouched after every task
    shares_device  how many runs share its device, for the record
    headline       whether it stands for its method in its study, for the record
    """

    title: str
    config: dict[str, Any]
    folder: str
    data: str | None = None
    audit: bool = True
    shares_device: int = 1
    headline: bool = False

    @classmethod
    def of(cls, title: str, config: Config, folder: Path, **options: Any) -> RunOrder:
        """Return the order of a run."""
        return cls(title, to_plain(config), str(folder), **options)

    def settings(self) -> Config:
        """Return its config."""
        config: Config = parse_value(Config, self.config, self.title)
        return config


class Engine(Protocol):
    """Makes runs somewhere.

    workers        how many at once; None: as many as there is room for
    shares_device  how many of them share a device
    most_parts     into how many parts it can split the rounds of a single run
    """

    workers: int | None
    shares_device: int
    most_parts: int

    def machine(self) -> dict[str, Any]:
        """Describe what runs are made on, for the record."""
        ...

    def __call__(self, orders: Sequence[RunOrder], ended: Callable[[RunOrder, str], None]) -> None:
        """Make all of these runs; ``ended`` is called with each and why it failed, '' if it did not.

        Whatever ends this early, the user's Ctrl-C too, stops the runs, and all they have finished is on disk. Where
        they go on by themselves, the interrupt that comes out of this says so.
        """
        ...


def make_unfinished(engine: Engine, orders: Sequence[RunOrder], ended: Callable[[RunOrder, str], None]) -> None:
    """Have an engine make the runs that have not learnt all their tasks; see ``Engine``.

    No folder may hold a run of other settings (``check_folder``): it would be taken for this one.
    """
    left = []
    for order in orders:
        found = progress_of(Path(order.folder))
        if found is not None and found.finished and found.tasks == order.settings().stream.tasks:
            ended(order, "")
        else:
            left.append(order)
    engine(left, ended)


@usual_surroundings()
def carry_out(order: RunOrder, device: str, stream: TaskStream | None = None, **options: Any) -> None:
    """Make a run in this process.

    stream   its tasks, where they are at hand; otherwise they are made from the config
    options  further ones of ``run_tasks``
    """
    config = order.settings()
    run_built(
        config,
        order.folder,
        build_base(config, order.data, device),
        build_stream(config, order.data) if stream is None else stream,
        device=device,
        audit=order.audit,
        shares_device=order.shares_device,
        headline=order.headline,
        **options,
    )

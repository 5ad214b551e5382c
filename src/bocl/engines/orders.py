"""Runs as orders: plain data that says what to run and where, so that another process or machine can carry it out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bocl.experiment.config import Config
from bocl.experiment.run import run
from bocl.records.events import Callback, ignore_events
from bocl.settings import parse_value, to_plain


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


class Engine(Protocol):
    """Makes runs somewhere.

    workers  how many at once
    """

    workers: int

    def __call__(self, orders: Sequence[RunOrder], ended: Callable[[RunOrder, str], None]) -> None:
        """Make all of these runs; ``ended`` is called with each and why it failed, '' if it did not.

        Whatever ends this early, the user's Ctrl-C too, stops the runs: all they have finished is on disk.
        """
        ...


def carry_out(order: RunOrder, device: str, callback: Callback = ignore_events, **options: Any) -> None:
    """Make a run in this process; further options are those of ``run``."""
    run(
        parse_value(Config, order.config, order.title),
        order.folder,
        device=device,
        data=order.data,
        callback=callback,
        audit=order.audit,
        shares_device=order.shares_device,
        headline=order.headline,
        **options,
    )

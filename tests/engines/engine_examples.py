"""Small runs, and what of them must not depend on where they are made."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bocl.engines.orders import Engine, RunOrder, make_unfinished
from bocl.engines.part_process import PartProcess
from bocl.experiment.config import Config, load_config
from bocl.experiment.run import run
from bocl.methods.parts import PartDone
from bocl.records.events import Callback, Event, RoundStarted
from bocl.records.journal import read
from bocl.records.run_log import JOURNAL

SMALL = (
    "stream.tasks=3",
    "recipe.epochs=4",
    "recipe.batch_size=128",
    "search.trials=4",
    "search.warm_points=4",
    "search.round_size=6",
    "search.halving=true",  # after the first epoch and the second
)
LONG = "recipe.batch_size=16"  # from its first round on a run has a second left, in which a signal can reach it


def small(*overrides: str) -> Config:
    """Return a run of three tasks, whose rounds have up to seven children and two rungs."""
    return load_config("digits", [*SMALL, *overrides])


def order(folder: Path, *overrides: str) -> RunOrder:
    """Return the order of such a run."""
    return RunOrder.of(folder.name, small(*overrides), folder)


def make(engine: Engine, orders: Sequence[RunOrder]) -> dict[str, str]:
    """Make runs, and return how each ended."""
    ended: dict[str, str] = {}
    make_unfinished(engine, orders, lambda order, error: ended.update({order.title: error}))
    return ended


def make_whole(place: Path, *overrides: str, **settings: str) -> Path:
    """Make runs in this process, by their names."""
    for name, setting in settings.items():
        run(small(*overrides, setting), place / name, device="cpu")
    return place


def tensors(folder: Path) -> dict[str, str]:
    """Return the hash of every file of tensors: children, canaries, checkpoints."""
    files = sorted(folder.rglob("*.safetensors"))
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def told(folder: Path) -> list[object]:
    """Return a journal without times and places, and without the sessions that a resumed run has more of."""
    return [_lasting(record) for record in read(folder / JOURNAL) if record["kind"] != "start"]


def _lasting(value: object) -> object:
    if isinstance(value, dict):
        return {name: _lasting(inner) for name, inner in value.items() if "seconds" not in name}
    return [_lasting(inner) for inner in value] if isinstance(value, list) else value


def settings(folder: Path) -> object:
    """Return what a run's first session says of its settings and data."""
    first = read(folder / JOURNAL)[0]
    return first["config"], first["digest"], first["data"]


def assert_same_run(one: Path, other: Path) -> None:
    """Hold two runs to the same bits, and to journals that differ in times and places only."""
    assert tensors(one) == tensors(other) != {}
    assert told(one) == told(other)
    assert settings(one) == settings(other)


def rounds(folder: Path) -> int:
    """Return how many rounds of a run are on record by now."""
    journal = folder / JOURNAL
    return sum(record["kind"] == "round" for record in read(journal)) if journal.is_file() else 0


def soon(so: Callable[[], object]) -> None:
    """Wait until something is so, for two minutes at most."""
    deadline = time.monotonic() + 120
    while not so() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert so()


def helpers_that_answer(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note the process of a helper whenever it has trained parts of a round; return the list."""
    result = PartProcess.result
    noted: list[int] = []

    def result_and_note(self: PartProcess) -> list[PartDone]:
        done = result(self)
        noted.append(self._process.pid)
        return done

    monkeypatch.setattr(PartProcess, "result", result_and_note)
    return noted


class StoppedHere(BaseException):
    """A test stops a run."""


def stop_after(rounds: int) -> Callback:
    """Return a callback that stops a run when it begins a round after these."""
    begun = []

    def callback(event: Event) -> None:
        if isinstance(event, RoundStarted):
            begun.append(event)
            if len(begun) > rounds:
                raise StoppedHere

    return callback

"""A real run, recorded as it goes, and made again on a Ray cluster with waiting in place of training.

What Ray and the driver do is the same for both. So what they cost can be measured without a core for every worker.
"""

from __future__ import annotations

import pickle
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bocl.engines.mirror import Change, FolderChanges
from bocl.engines.orders import RunOrder, carry_out
from bocl.engines.ray_engine import RayCluster
from bocl.engines.ray_workers import Ended, RunWorker
from bocl.experiment.config import Config
from replication.scaling.simulate import Steps

REPLAY = "replay"  # a file


@dataclass(frozen=True)
class Recorded:
    """One record of a run.

    seconds  from the record before, or from the beginning, until it was written
    finding  seconds to find what it changed in the folder, as a worker of a cluster does
    change   what that is
    """

    seconds: float
    finding: float
    change: Change

    @property
    def bytes(self) -> int:
        """How much there is to send."""
        return len(self.change.lines) + sum(map(len, self.change.files.values()))


def record(config: Config) -> list[Recorded]:
    """Make a run in this process, and note every record."""
    found: list[Recorded] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        changes, since = FolderChanges(folder), time.perf_counter()

        def on_record() -> None:
            nonlocal since
            written = time.perf_counter()
            change = changes()
            found.append(Recorded(written - since, time.perf_counter() - written, change))
            since = time.perf_counter()

        carry_out(RunOrder.of("run", config, folder), "cpu", on_record=on_record)
    return found


def steps(recorded: Sequence[Recorded]) -> Steps:
    """Return what the simulator needs to know of a run."""
    return tuple((one.seconds + one.finding, one.bytes) for one in recorded)


class Replaying(RunWorker):
    """An actor that waits where others train. What a run wrote, and when, is in the folder of its data."""

    def make(self, order: RunOrder, *_: Any, **__: Any) -> Iterator[Change | Ended]:
        """Yield what a recorded run wrote, each after the seconds that it took."""
        assert order.data is not None
        for seconds, change in pickle.loads((Path(order.data) / REPLAY).read_bytes()):
            time.sleep(seconds)
            yield change
        yield Ended()


class TimedCluster(RayCluster):
    """An engine that gives its workers their first runs when all of them are there, and notes times.

    asked  when runs were asked for
    began  when all workers were there
    spans  of every run: when a worker was given it, and when that was known to have ended
    """

    def __init__(self, address: str | None, workers: int) -> None:
        super().__init__(address, "cpu", workers)
        self.asked = self.began = 0.0
        self.spans: list[tuple[float, float]] = []
        self._all_there = threading.Barrier(workers, self._begin)
        self._this_thread = threading.local()  # which has one worker at a time

    def _begin(self) -> None:
        self.began = time.perf_counter()

    def __call__(self, orders: Sequence[RunOrder], ended: Callable[[RunOrder, str], None]) -> None:
        """Make runs; see ``Engine``."""
        self.asked = time.perf_counter()
        super().__call__(orders, ended)

    def _follow(self, *arguments: Any) -> str:
        if not hasattr(self._this_thread, "waited"):
            self._this_thread.waited = True
            self._all_there.wait()
        began = time.perf_counter()
        said = super()._follow(*arguments)
        self.spans.append((began, time.perf_counter()))
        return said


class ReplayingCluster(TimedCluster):
    """An engine whose workers wait where others train."""

    run_worker = Replaying


def write_replay(recorded: Sequence[Recorded], folder: Path, pace: float = 1.0) -> str:
    """Write what a replay reads; return its folder, the data of orders.

    pace  of waiting: 2.0 waits twice as long as the run took, 0.0 does not wait
    """
    waits = [(pace * (one.seconds + one.finding), one.change) for one in recorded]
    (folder / REPLAY).write_bytes(pickle.dumps(waits))
    return str(folder)

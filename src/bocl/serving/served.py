"""The learner that answers: that of a run's last finished task, taken anew when the run has learnt one more.

A run grows while it is served. What is new is loaded beside the old, checked against the run's own records, and takes
its place when it is whole. Until then, and if it is damaged, the old one goes on answering.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bocl.errors import BoclError, FolderError
from bocl.experiment.audit import audit, check_learner
from bocl.experiment.load_run import load_run
from bocl.methods.method import Learner
from bocl.records.journal import read_with_tail
from bocl.records.run_log import JOURNAL, RunLog

AGAIN = 10.0  # seconds until what could not be loaded is tried again
MANY = 64  # samples on which it is measured what each takes
FEW_SECONDS = 0.005  # what takes longer for one sample is not measured on many


@dataclass(frozen=True)
class Cost:
    """The seconds that predicting takes here: of a request, and of each of its samples besides."""

    request: float
    sample: float

    def seconds(self, samples: int) -> float:
        """Return how long so many samples take, about."""
        return self.request + samples * self.sample


@dataclass(frozen=True, eq=False)
class Served:
    """A learner that answers.

    log      what its run's journal held when it was loaded; None for a saved model
    head     the hash of the journal's last line then
    numbers  task by name, and by number from 1 where no task has that name
    costs    of every task
    """

    learner: Learner
    log: RunLog | None
    head: str
    numbers: dict[str, int]
    costs: tuple[Cost, ...]

    def describe(self) -> list[dict[str, Any]]:
        """Return what clients must know of every task."""
        tasks = []
        for number, about in enumerate(self.learner.seen):
            kind = "bytes" if about.in_bytes else "floats" if about.padding is None else "texts"
            tasks.append(
                {
                    "name": about.name,
                    "classes": about.class_labels,
                    "samples": kind,
                    "shape": about.shape,
                    "columns": about.columns,
                    "accuracy": None if self.log is None else self.log.tasks[number].row[-1],
                }
            )
        return tasks


class ServedRun:
    """The folder of a run, or of a saved model, and the learner that answers for it.

    served   that learner
    trouble  why the run's newest state is not the one that answers; '' where it is
    """

    def __init__(self, folder: str | Path, *, device: str = "auto", trust: bool = False) -> None:
        self.folder = Path(folder)
        self._options: dict[str, Any] = {"device": device, "trust": trust}
        self._one_at_a_time = threading.Lock()
        self._seen = self._size_and_time()
        self._retry = 0.0
        self.trouble = ""
        self.served = self._load()

    def look(self) -> None:
        """Take the run's newest state, if it has learnt more since."""
        with self._one_at_a_time:
            found = self._size_and_time()
            again = bool(self.trouble) and time.monotonic() > self._retry
            if self.served.log is None or (found == self._seen and not again):
                return
            self._seen = found
            try:
                if self._has_learnt():
                    self.served = self._load()
                self.trouble = ""
            except (BoclError, OSError) as error:
                self.trouble, self._retry = str(error), time.monotonic() + AGAIN

    def audit(self) -> dict[str, Any]:
        """Check the run's folder, and the learner that answers, against the run's records."""
        served = self.served
        if served.log is None:
            raise FolderError(f"{self.folder} is a saved model, which has no records to audit; serve the run itself")
        found = audit(self.folder, with_accuracy=False, **self._options)
        check_learner(self.folder, served.log, served.learner)
        return {**asdict(found), "folder": str(found.folder)}

    def _size_and_time(self) -> tuple[int, ...]:
        """Return what changes whenever the journal does."""
        try:
            about = os.stat(self.folder / JOURNAL)
        except OSError:
            return ()
        return about.st_ino, about.st_size, about.st_mtime_ns

    def _has_learnt(self) -> bool:
        """Whether the run has a task, or another child of its last one, that is not served; refuse another history."""
        served, path = self.served, self.folder / JOURNAL
        assert served.log is not None
        lines, _ = read_with_tail(path)
        known = served.log.lines
        if len(lines) < known or lines[known - 1].sha256 != served.head:
            raise FolderError(f"{path} no longer begins with what is served; start the server again to serve this one")
        log = RunLog.of([line.record for line in lines], path)
        return (len(log.tasks), log.checkpoint) != (len(served.log.tasks), served.log.checkpoint)

    def _load(self) -> Served:
        while True:
            before = self._size_and_time()
            try:
                return self._load_once()
            except BoclError:
                if self._size_and_time() == before:
                    raise  # or else the run went on between two looks

    def _load_once(self) -> Served:
        path, log, head = self.folder / JOURNAL, None, ""
        if os.path.isfile(path):
            lines, _ = read_with_tail(path)
            log, head = RunLog.of([line.record for line in lines], path), lines[-1].sha256 if lines else ""
        learner = load_run(self.folder, **self._options)
        if log is not None:
            check_learner(self.folder, log, learner)
        names = [about.name for about in learner.seen]
        numbers = {str(number + 1): number for number in range(len(names))}
        numbers |= {name: number for number, name in enumerate(names) if names.count(name) == 1}
        return Served(learner, log, head, numbers, tuple(_cost(learner, number) for number in range(len(names))))


def _cost(learner: Learner, task: int) -> Cost:
    """Measure what predicting takes; the first call, which takes longer, is not counted."""
    about = learner.seen[task]
    kind = np.uint8 if about.in_bytes else np.float32 if about.padding is None else np.int64
    filled = int(about.padding == 0)  # texts as long as they may be
    learner.predict(np.full((1, *about.shape), filled, kind), task)
    one = _seconds(learner, task, np.full((1, *about.shape), filled, kind))
    if one > FEW_SECONDS:
        return Cost(0.0, one)
    many = _seconds(learner, task, np.full((MANY, *about.shape), filled, kind))
    each = max(many - one, 0.0) / (MANY - 1)
    return Cost(one - each, each)


def _seconds(learner: Learner, task: int, samples: Any) -> float:
    """Return the better time of two."""
    times = []
    for _ in range(2):
        began = time.perf_counter()
        learner.predict(samples, task)
        times.append(time.perf_counter() - began)
    return min(times)

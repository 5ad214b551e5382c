"""The task loop: learn, score every task seen, record. Starting and resuming are the same call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bocl.errors import FolderError
from bocl.experiment.audit import check_untouched
from bocl.experiment.build import build_method, build_network, build_stream
from bocl.experiment.config import Config
from bocl.experiment.gate_openness import mean_gates
from bocl.experiment.proof import make_canaries
from bocl.experiment.provenance import machine
from bocl.experiment.round_archive import RoundArchive
from bocl.experiment.store import RunStore
from bocl.experiment.test_curve import score_bests
from bocl.method_table import METHODS
from bocl.methods.method import Learner
from bocl.methods.seen import check_task
from bocl.records.events import Callback, TaskDone, TaskStarted, ignore_events
from bocl.records.prior_trials import fingerprint
from bocl.records.record import TaskRecord
from bocl.tasks.task import Task, TaskStream
from bocl.training.batches import DeviceSplit, to_device
from bocl.training.evaluation import accuracy


def run(
    config: Config,
    folder: str | Path,
    *,
    device: str = "auto",
    data: str | None = None,
    callback: Callback = ignore_events,
    audit: bool = True,
    shares_device: int = 1,
    headline: bool = False,
    on_cost: Callable[[float], None] | None = None,
) -> list[TaskRecord]:
    """Run a config in a folder, from where the folder stands, and return the records of all its tasks.

    Everything that can be wrong with the input is found before the folder is touched.

    audit          prove after every task that the earlier ones are untouched, else stop with WorkError
    shares_device  how many runs share it, for the record: times of a run that was not alone are no one's cost
    headline       whether the run stands for its method in its study, for the record
    on_cost        called at the end with the seconds that writing and auditing took
    """
    graph = build_network(config.network)
    learner = build_method(config, graph, device)
    stream = build_stream(config, data)
    first = stream[0]
    check_task(graph, first, seen=[])
    learner.check_budget(first.classes)
    with RunStore.open(folder, config) as store:
        if len(store.finished) == len(stream):
            return store.finished
        _check_same_data(store, stream)
        prior_trials = _check_same_prior_trials(store, config)
        store.restore(learner)
        begin_session(
            store,
            config,
            learner,
            stream,
            prior_trials=prior_trials,
            shares_device=shares_device,
            headline=headline,
        )
        before = [stream[index] for index in range(len(store.finished))]
        learner.recall(before)
        scored = _Scored(learner, stream)
        for task in before:
            scored.add(task)
        for index, task in _one_ahead(stream, len(store.finished), first):
            callback(TaskStarted(index, len(stream), task.name, recalled=len(store.log.rounds.get(index, []))))
            record = _learn_one(config, store, learner, task, index, scored, callback)
            with store.timed():
                if audit:
                    check_untouched(store.folder, store.log, learner, record.row)
                canaries = make_canaries(learner, task, index)
            store.commit(record, learner, canaries)
            callback(TaskDone(record))
        if on_cost is not None:
            on_cost(store.seconds)
        return store.finished


@dataclass
class _Scored:
    """The validation and test samples of every task seen, on the device; nothing but scoring looks at the latter."""

    learner: Learner
    stream: TaskStream
    validation: list[DeviceSplit] = field(default_factory=list)
    test: list[DeviceSplit] = field(default_factory=list)

    def add(self, task: Task) -> None:
        """Bring the next task's samples to the device."""
        self.validation.append(to_device(task.validation, self.learner.device))
        self.test.append(to_device(self.stream.test_split(task.index), self.learner.device))


def _learn_one(
    config: Config,
    store: RunStore,
    learner: Learner,
    task: Task,
    index: int,
    scored: _Scored,
    callback: Callback,
) -> TaskRecord:
    """Learn one task, score every task seen, and return the record; nothing of it is written yet."""
    archive = RoundArchive(store, index)
    began = time.perf_counter()
    learned = learner.learn(task, callback, trainer=archive)
    seconds = time.perf_counter() - began + archive.recalled_seconds
    scored.add(task)
    return TaskRecord(
        index=index,
        name=task.name,
        widths=learned.widths,
        validation_row=score(learner, scored.validation),
        row=score(learner, scored.test),
        parameters=learned.parameters,
        stored=sum(learner.parameters().values()),
        trials=learned.trials,
        difficulty=learned.difficulty,
        samples=learned.effort.samples,
        seconds=seconds,
        training_seconds=learned.effort.seconds,
        extra_numbers=learner.extra_numbers(),
        units=learned.units,
        attention=mean_gates(learner, index, scored.validation[-1]),
        diagnostics=learned.diagnostics,
        bests=score_bests(store, learner, learned.trials, scored.test[-1]) if config.test_curve else (),
    )


def _check_same_data(store: RunStore, stream: TaskStream) -> None:
    """Refuse to resume a run on other data."""
    if store.log.starts and store.log.starts[0].data != stream.fingerprint():
        raise FolderError(
            f"{store.log.path} was made from other data than what is found now; give the data with --data, "
            "or another folder with --out"
        )


def _check_same_prior_trials(store: RunStore, config: Config) -> str:
    """Return the sha256 of the file that searches start from, '' without one; refuse another than at the start."""
    reads = "prior_trials" in METHODS[config.method].reads
    found = fingerprint(config.prior_trials) if config.prior_trials and reads else ""
    if store.log.prior_trials not in ("", found):
        raise FolderError(
            f"{config.prior_trials} is not the file of prior trials that {store.log.path} began with: its sha256 is "
            "another; give that file back, or another folder with --out"
        )
    return found


def _one_ahead(stream: TaskStream, start: int, first: Task) -> Iterator[tuple[int, Task]]:
    """Yield the tasks from ``start`` on with their numbers, each made while the one before it is learnt."""
    with ThreadPoolExecutor(1, thread_name_prefix="task") as maker:
        coming = maker.submit(stream.__getitem__, start) if start else None
        for index in range(start, len(stream)):
            task = coming.result() if coming else first
            coming = maker.submit(stream.__getitem__, index + 1) if index + 1 < len(stream) else None
            yield index, task


def begin_session(
    store: RunStore,
    config: Config,
    learner: Learner,
    stream: TaskStream,
    *,
    prior_trials: str,
    shares_device: int = 1,
    headline: bool | None = None,
) -> None:
    """Record what a session is going to work on, and where."""
    about = {
        "data": stream.fingerprint(),
        "prior_trials": prior_trials,
        "machine": machine(learner.device),
        "shares_device": shares_device,
        "headline": headline,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    store.start(config, [group.name for group in learner.graph.groups], about)


def score(learner: Learner, splits: Sequence[DeviceSplit]) -> tuple[float, ...]:
    """Return the accuracy on every task, one split each."""
    return tuple(accuracy(partial(learner.predict, task=task), split) for task, split in enumerate(splits))

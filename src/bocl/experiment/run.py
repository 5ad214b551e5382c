"""The task loop: learn, score every task seen, record. Starting and resuming are the same call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bocl.errors import FolderError
from bocl.experiment.audit import check_untouched
from bocl.experiment.bests import score_bests
from bocl.experiment.build import build_method, build_network, build_stream
from bocl.experiment.config import Config
from bocl.experiment.memory import RoundMemory
from bocl.experiment.proof import make_canaries
from bocl.experiment.reuse import mean_gates
from bocl.experiment.store import RunStore, machine
from bocl.methods.checks import check_task
from bocl.methods.joint import Joint
from bocl.methods.method import KeepsToBudget, Learned, Method, take_memory
from bocl.methods.rounds import TrainsInRounds
from bocl.networks.expandable import ExpandableNetwork
from bocl.records.events import Listener, TaskDone, TaskStarted, nobody
from bocl.records.experience_file import fingerprint
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
    listen: Listener = nobody,
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
    method = build_method(config, graph, device)
    stream = build_stream(config, data)
    first = stream[0]
    check_task(graph, first, seen=[])
    if isinstance(method, KeepsToBudget):
        method.check_budget(first.classes)
    with RunStore.open(folder, config) as store:
        if len(store.finished) == len(stream):
            return store.finished
        if store.log.starts and store.log.starts[0].data != stream.fingerprint():
            raise FolderError(
                f"{store.log.path} was made from other data than what is found now; give the data with --data, "
                "or another folder with --out"
            )
        started_from = fingerprint(config.memory) if config.memory and config.method == "bocl" else ""
        if store.log.memory not in ("", started_from):
            raise FolderError(
                f"{config.memory} is not the memory that {store.log.path} began with: its sha256 is another; give that "
                "file back, or another folder with --out"
            )
        store.restore(method)
        begin_session(
            store, config, method, stream, memory=started_from, shares_device=shares_device, headline=headline
        )
        before = [stream[index] for index in range(len(store.finished))]
        if isinstance(method, Joint):
            method.recall(before)
        validation = [to_device(task.validation, method.device) for task in before]
        sealed = [to_device(stream.test_split(task.index), method.device) for task in before]

        for index, task in _one_ahead(stream, len(store.finished), first):
            listen(TaskStarted(index, len(stream), task.name, recalled=len(store.log.rounds.get(index, []))))
            memory = RoundMemory(store, index)
            if isinstance(method, TrainsInRounds):
                method.train_round = memory
            began = time.perf_counter()
            learned = method.learn(task, memory.hearing(listen))
            seconds = time.perf_counter() - began + memory.recalled_seconds
            validation.append(to_device(task.validation, method.device))
            sealed.append(to_device(stream.test_split(index), method.device))
            row = score(method, sealed)
            with store.timed():
                if audit:
                    check_untouched(store.folder, store.log, method, row)
                canaries = make_canaries(method, task, index)
            record = TaskRecord(
                index=index,
                name=task.name,
                widths=learned.widths,
                validation_row=score(method, validation),
                row=row,
                parameters=learned.parameters,
                stored=sum(method.parameters().values()),
                trials=learned.trials,
                difficulty=learned.difficulty,
                samples=learned.effort.samples,
                seconds=seconds,
                training_seconds=learned.effort.seconds,
                memory=_memory(method),
                units=learned.units,
                attention=mean_gates(method, index, validation[-1]),
                diagnostics=learned.diagnostics,
                bests=_bests(store, method, learned, sealed[-1]) if config.test_curve else (),
            )
            store.commit(record, method, canaries)
            listen(TaskDone(record))
        if on_cost is not None:
            on_cost(store.seconds)
        return store.finished


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
    method: Method,
    stream: TaskStream,
    *,
    memory: str,
    shares_device: int = 1,
    headline: bool | None = None,
) -> None:
    """Record what a session is going to work on, and where."""
    about = {
        "data": stream.fingerprint(),
        "memory": memory,
        "machine": machine(method.device),
        "at_once": shares_device,
        "headline": headline,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    store.start(config, [group.name for group in method.graph.groups], about)


def score(method: Method, splits: Sequence[DeviceSplit]) -> tuple[float, ...]:
    """Return the accuracy on every task, one split each."""
    return tuple(accuracy(partial(method.predict, task=task), split) for task, split in enumerate(splits))


def _bests(store: RunStore, method: Method, learned: Learned, sealed: DeviceSplit) -> tuple[tuple[int, float], ...]:
    network = getattr(method, "network", None)
    if not learned.trials or not isinstance(network, ExpandableNetwork):
        return ()
    return score_bests(store, network, learned.trials, sealed)


def _memory(method: Method) -> int:
    """Count the numbers a method keeps beside its parameters, to learn later tasks with."""
    kept = list(take_memory(method.state().tensors)[0].values())
    if isinstance(method, Joint):  # its data is in no state: it is recalled from the stream
        kept += [tensor for task in method.tasks for tensor in (task.train.raw, task.train.labels)]
    return sum(tensor.numel() for tensor in kept)

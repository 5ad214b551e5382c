"""The task loop: learn, score every task seen, record. Starting and resuming are the same call."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bocl.experiment.build import build_method, build_network, build_stream
from bocl.experiment.config import Config
from bocl.experiment.store import RunStore, machine
from bocl.methods.checks import check_task
from bocl.methods.joint import Joint
from bocl.records.events import Event, Listener, OutOfMemory, TaskDone, TaskStarted, nobody
from bocl.records.record import TaskRecord
from bocl.training.batches import DeviceSplit, to_device
from bocl.training.evaluation import accuracy


def run(
    config: Config,
    folder: str | Path,
    *,
    device: str = "auto",
    data: str | None = None,
    listen: Listener = nobody,
    at_once: int = 1,
) -> list[TaskRecord]:
    """Run a config in a folder, from where the folder stands, and return the records of all its tasks.

    at_once  how many runs share the device, for the record: times of a run that was not alone are no one's cost

    Everything that can be wrong with the input is found before the folder is touched.
    """
    graph = build_network(config.network)
    method = build_method(config, graph, device)
    stream = build_stream(config, data)
    check_task(graph, stream[0], seen=[])
    with RunStore.open(folder, config) as store:
        if len(store.finished) == len(stream):
            return store.finished
        store.restore(method)
        store.start(
            config,
            [group.name for group in graph.groups],
            {
                "data": stream.fingerprint(),
                "machine": machine(method.device),
                "at_once": at_once,
                "time": datetime.now(UTC).isoformat(timespec="seconds"),
            },
        )
        if isinstance(method, Joint):
            method.recall([stream[index] for index in range(len(store.finished))])
        sealed: list[DeviceSplit] = [
            to_device(stream.test_split(index), method.device) for index in range(len(store.finished))
        ]

        def hear(event: Event) -> None:
            if isinstance(event, OutOfMemory):
                store.note("out-of-memory", task=len(store.finished), children_at_once=event.children_at_once)
            listen(event)

        for index in range(len(store.finished), len(stream)):
            task = stream[index]
            listen(TaskStarted(index, len(stream), task.name))
            began = time.perf_counter()
            learned = method.learn(task, hear)
            seconds = time.perf_counter() - began
            sealed.append(to_device(stream.test_split(index), method.device))
            row = tuple(accuracy(partial(method.predict, task=i), split) for i, split in enumerate(sealed))
            record = TaskRecord(
                index=index,
                name=task.name,
                widths=learned.widths,
                validation_accuracy=learned.validation_accuracy,
                row=row,
                parameters=learned.parameters,
                stored=sum(method.parameters().values()),
                trials=learned.trials,
                difficulty=learned.difficulty,
                samples=learned.effort.samples,
                seconds=seconds,
                training_seconds=learned.effort.seconds,
            )
            store.commit(record, method)
            listen(TaskDone(record))
        return store.finished

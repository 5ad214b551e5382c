"""The task loop: learn, score every task seen, record. Starting and resuming are the same call."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from bocl.errors import FolderError
from bocl.experiment.audit import check_files, check_learner, check_untouched
from bocl.experiment.build import base_of, build_base, build_method, build_stream
from bocl.experiment.config import OWN_NETWORK, OWN_STREAM, Config
from bocl.experiment.given import check_given, given_tasks
from bocl.experiment.proof import make_canaries
from bocl.experiment.round_archive import RoundArchive
from bocl.experiment.scoring import ScoredSamples, mean_gates, score, score_bests, score_guesses
from bocl.experiment.store import RunStore, do_nothing
from bocl.method_table import METHODS
from bocl.methods.method import Learner
from bocl.methods.rounds import RoundTrainer
from bocl.methods.saving import check_whole
from bocl.methods.seen import check_task
from bocl.networks.growing import Base
from bocl.records.events import Callback, TaskDone, TaskStarted, ignore_events
from bocl.records.prior_trials import fingerprint
from bocl.records.record import GivenTask, TaskRecord
from bocl.records.run_log import JOURNAL
from bocl.tasks.task import Task, TaskStream
from bocl.training.surroundings import usual_surroundings


@dataclass(frozen=True, eq=False)
class Tasks:
    """What there is to learn.

    stream      the tasks
    given       where each comes from and what it is, if they are the user's own files
    open_ended  whether tasks come one at a time, so that earlier ones need not be at hand: where the method forgets
                nothing, their accuracies are those on record, which untouched tensors and canaries stand for
    """

    stream: TaskStream
    given: Sequence[GivenTask] = ()
    open_ended: bool = False


@usual_surroundings()
def run(
    config: Config,
    folder: str | Path,
    *,
    stream: TaskStream | None = None,
    network: nn.Module | None = None,
    device: str = "auto",
    data: str | None = None,
    callback: Callback = ignore_events,
    audit: bool = True,
    shares_device: int = 1,
    headline: bool = False,
    trainer: RoundTrainer | None = None,
    on_cost: Callable[[float], None] | None = None,
) -> list[TaskRecord]:
    """Run a config in a folder, or resume it there, and return the records of all its tasks.

    Everything that can be wrong with the input is found before the folder is touched.

    stream         instead of the one that the config names
    network        instead of the one that the config names; ``network.pretrained`` says whether its weights are kept
    audit          prove after every task that the earlier ones are untouched, else stop with WorkError
    shares_device  how many runs share it, for the record: the times of a run that shared it are not its own
    headline       whether the run stands for its method in its study, for the record
    trainer        of rounds, instead of this process; see ``RoundTrainer``
    on_cost        called after every task with the seconds that writing and auditing took so far
    """
    if network is None:
        base = build_base(config, data, device)
    else:
        config = replace(config, network=replace(config.network, build=OWN_NETWORK))
        base = base_of(network, config, device)
    if stream is None:
        stream = build_stream(config, data)
    else:
        config = replace(config, stream=replace(config.stream, name=OWN_STREAM))
    return run_built(
        config,
        folder,
        base,
        stream,
        device=device,
        callback=callback,
        audit=audit,
        shares_device=shares_device,
        headline=headline,
        trainer=trainer,
        on_cost=on_cost,
    )


def run_built(
    config: Config, folder: str | Path, base: Base, stream: TaskStream, *, device: str, **options: Any
) -> list[TaskRecord]:
    """Run a config whose network and stream are built already; further options are those of ``run_tasks``."""
    given = given_tasks(stream)
    if not given:  # the number of tasks that a function or an object has is on record; files are on record by name
        config = replace(config, stream=replace(config.stream, tasks=len(stream)))
    return run_tasks(config, folder, build_method(config, base, device), Tasks(stream, given), **options)


def run_tasks(
    config: Config,
    folder: str | Path,
    learner: Learner,
    tasks: Tasks,
    *,
    callback: Callback = ignore_events,
    audit: bool = True,
    shares_device: int = 1,
    headline: bool = False,
    trainer: RoundTrainer | None = None,
    on_cost: Callable[[float], None] | None = None,
    on_record: Callable[[], None] = do_nothing,
) -> list[TaskRecord]:
    """Let a learner that is ready for its first task learn these, or resume; other options are those of ``run``.

    on_record  called whenever something was recorded, while the folder is whole
    """
    stream = tasks.stream
    first = None if os.path.isfile(Path(folder) / JOURNAL) else stream[0]
    if first is not None:
        check_task(learner.graph, first, seen=[])
        learner.check_budget(first.classes)
    with RunStore.open(folder, config, on_record) as store:
        check_given(store.log, tasks.given)
        with store.timed():
            check_files(store.folder, store.log)
        if len(store.finished) == len(stream):
            check_whole(store.folder / store.log.checkpoint)
            store.tidy()
            return store.finished
        data_hash = stream.fingerprint() if tasks.given else _check_same_data(store, stream)
        trials_hash = _check_same_prior_trials(store, config)
        store.restore(learner)  # with the pretrained weights that were saved, once a task is finished
        base_hash = _check_same_base(store, learner)
        if store.finished:
            with store.timed():  # damage is found before anything is built on it
                check_learner(store.folder, store.log, learner)
        if first is None or store.finished:
            first = stream[len(store.finished)]
            check_task(learner.graph, first, learner.seen)
        store.start(
            config,
            learner,
            data_hash,
            given=tasks.given,
            prior_trials=trials_hash,
            base=base_hash,
            shares_device=shares_device,
            headline=headline,
        )
        carried = len(store.finished) if tasks.open_ended and not learner.forgets else 0
        before = [stream[index] for index in range(carried, len(store.finished))]
        learner.recall(before)
        samples = ScoredSamples(learner, stream, before)
        for task in _one_ahead(stream, len(store.finished), first):
            recalled = len(store.log.rounds.get(task.index, []))
            callback(TaskStarted(task.index, len(stream), task.name, recalled))
            record = _learn_one(config, store, learner, task, len(stream), samples, callback, trainer)
            with store.timed():
                if audit:
                    check_untouched(store.folder, store.log, learner, record.row)
                canaries = make_canaries(learner, task)
            store.commit(record, learner, canaries)
            if on_cost is not None:
                on_cost(store.seconds)
            callback(TaskDone(record))
        return store.finished


def _learn_one(
    config: Config,
    store: RunStore,
    learner: Learner,
    task: Task,
    tasks: int,
    samples: ScoredSamples,
    callback: Callback,
    trainer: RoundTrainer | None,
) -> TaskRecord:
    """Learn one task, score it and earlier ones, and return the record; nothing of it is written yet."""
    archive = RoundArchive(store, task.index, trainer)
    began = time.perf_counter()
    learned = learner.learn(task, callback, trainer=archive)
    seconds = time.perf_counter() - began + archive.recalled_seconds
    samples.add(task)
    last = store.finished[-1] if store.finished else None
    return TaskRecord(
        index=task.index,
        name=task.name,
        widths=learned.widths,
        validation_row=score(learner, samples.validation, last.validation_row if last else ()),
        row=score(learner, samples.test, last.row if last else ()),
        parameters=learned.parameters,
        stored=sum(learner.parameters().values()),
        trials=learned.trials,
        difficulty=learned.difficulty,
        samples=learned.effort.samples,
        seconds=seconds,
        training_seconds=learned.effort.seconds,
        extra_numbers=learner.extra_numbers(),
        units=learned.units,
        attention=mean_gates(learner, task.index, samples.validation[task.index]),
        diagnostics=learned.diagnostics,
        bests=score_bests(store, learner, learned.trials, samples.test[task.index]) if config.test_curve else (),
        reads=learned.reads,
        limit=learned.limit,
        bounds=learned.bounds,
        widened=learned.widened,
        guesses=score_guesses(learner, samples, last=task.index + 1 == tasks),
    )


def _check_same_data(store: RunStore, stream: TaskStream) -> str:
    """Return the fingerprint of the data; refuse to resume a run on other data."""
    found = stream.fingerprint()
    if store.log.starts and store.log.starts[0].data != found:
        raise FolderError(
            f"{store.log.path} was made from other data than what is found now; give the data with --data, "
            "or another folder with --out"
        )
    return found


def _check_same_prior_trials(store: RunStore, config: Config) -> str:
    """Return the sha256 of the file that searches start from, '' without one; refuse to resume with another file."""
    reads = "prior_trials" in METHODS[config.method].reads
    found = fingerprint(config.prior_trials) if config.prior_trials and reads else ""
    if store.log.prior_trials not in ("", found):
        raise FolderError(
            f"{config.prior_trials} is not the file of prior trials that {store.log.path} began with: its sha256 is "
            "another; give that file back, or another folder with --out"
        )
    return found


def _check_same_base(store: RunStore, learner: Learner) -> str:
    """Return the sha256 of the pretrained weights, '' without such; refuse to resume with others."""
    found = learner.base_sha256()
    if store.log.starts and store.log.starts[0].base != found:
        raise FolderError(
            f"{store.log.path} was begun with other pretrained weights; give those back, or another folder with --out"
        )
    return found


def _one_ahead(stream: TaskStream, start: int, task: Task) -> Iterator[Task]:
    """Yield the tasks from ``start`` on, the first of which is there; each is made while the one before is learnt."""
    with ThreadPoolExecutor(1, thread_name_prefix="task") as maker:
        for index in range(start + 1, len(stream)):
            coming = maker.submit(stream.__getitem__, index)
            yield task
            task = coming.result()
        yield task

"""Runs without an end: tasks come one at a time, months apart, and each is learnt, proved and recorded.

run = bocl.open("runs/mine", bocl.mlp(4, [16]))
run.learn(bocl.from_arrays([(X, y)], names=["spring"]))
run.predict_labels(x, task="spring")
run.audit()
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from bocl.errors import ConfigError, DataError, FolderError, InputError
from bocl.experiment.audit import RunAudit
from bocl.experiment.audit import audit as audit_run
from bocl.experiment.build import base_of, build_base, build_method, module_to_load, stream_of_entries
from bocl.experiment.config import OWN_NETWORK, Config, NetworkSettings, config_with
from bocl.experiment.export_run import export_from
from bocl.experiment.given import array_fingerprint, given_tasks
from bocl.experiment.run import Tasks, run_tasks
from bocl.experiment.store import recorded_config
from bocl.methods.exporting.export import Exported
from bocl.methods.guessing import TaskGuess
from bocl.methods.method import Learner
from bocl.methods.saving import load
from bocl.methods.seen import SeenTask, task_number
from bocl.methods.task_network import TaskNetwork
from bocl.networks.graph import Graph
from bocl.networks.growing import Base
from bocl.networks.trace import trace
from bocl.progress.display import Display
from bocl.records.events import Callback, ignore_events, in_turn
from bocl.records.journal import read
from bocl.records.record import GivenTask, TaskRecord
from bocl.records.run_log import JOURNAL, RunLog
from bocl.settings import to_plain
from bocl.tasks.entries import Entry, find_entry
from bocl.tasks.entry_stream import fingerprint_of_tasks
from bocl.tasks.labels import Label
from bocl.tasks.task import Split, Task, TaskStream
from bocl.training.device import resolve_device

OWN_TASKS = "own tasks"  # the name of a stream that comes one task at a time


class OpenRun:
    """A run in a folder that learns further tasks; use ``bocl.open``.

    Answers are those of the learner in the last checkpoint; see ``Learner`` for ``predict`` and its kin.
    """

    def __init__(self, folder: Path, config: Config, network: nn.Module | Graph | None, device: str) -> None:
        self.folder = folder
        self.config = config
        self._module = network if isinstance(network, nn.Module) else None
        self._graph: Base | None = network if isinstance(network, Graph) else None
        self._device = device
        self._loaded: tuple[int, Learner] | None = None

    def learn(
        self, tasks: TaskStream, callback: Callback = ignore_events, *, verbose: bool = False
    ) -> list[TaskRecord]:
        """Learn every task of a stream that is not learnt yet, and return the records of all tasks.

        An interrupted task is resumed by the same call. A task keeps its name: other samples need another. ``callback``
        and ``verbose`` are those of ``Learner.learn``.
        """
        if isinstance(tasks, Task) or not hasattr(tasks, "test_split"):
            raise InputError(
                "learn() takes a stream, such as bocl.from_arrays([(X, y)], names=['spring']), because a run records "
                f"accuracies on test samples; got {type(tasks).__name__}"
            )
        for index in range(len(tasks)):
            task, test = tasks[index], tasks.test_split(index)
            given = (*self._given(), GivenTask(task.name, "", array_fingerprint(task, test)))
            self._learn(Tasks(_LastTask(task, test, given), given, open_ended=True), callback, verbose)
        return self.records

    def learn_file(
        self,
        path: str | Path,
        name: str | None = None,
        callback: Callback = ignore_events,
        *,
        label: str | None = None,
        verbose: bool = False,
    ) -> list[TaskRecord]:
        """Learn one more task from a file or folder (``tasks/entries.py``), named after it unless told otherwise.

        label  the column of labels, in a table or a dataset; `label` if left out
        """
        entries = [Entry(each.name, Path(each.place), each.sha256, each.label) for each in self._given()]
        stream = stream_of_entries(self.config, [*entries, find_entry(path, name, label)])
        self._learn(Tasks(stream, given_tasks(stream), open_ended=True), callback, verbose)
        return self.records

    def _learn(self, tasks: Tasks, callback: Callback, verbose: bool) -> None:
        new = tasks.given[-1]
        if not new.name.strip():
            raise DataError("the task has no name, and it is by its name that people ask for it; give it one")
        known = {each.name: each.sha256 for each in tasks.given[:-1]}
        if known.get(new.name) == new.sha256:
            return  # learnt already, from the same data: the call may be one that was killed after its last record
        if new.name in known:
            raise DataError(f"{self.folder} has learnt a task '{new.name}' already; give this one another name")
        learner = self._fresh(tasks.stream)  # which settles the network of a new run
        with ExitStack() as shown:
            if verbose:
                display = shown.enter_context(Display())
                names = self.config.method, self.config.seed, self.config.stream.name, self.folder
                callback = in_turn(shown.enter_context(display.watch(*names)), callback)
            run_tasks(self.config, self.folder, learner, tasks, callback=callback)

    def _fresh(self, stream: TaskStream) -> Learner:
        """Return a learner ready for its first task; a run restores it to where its last task left it."""
        if self._graph is None:
            self._graph = self.learner.graph if self._log().tasks else None
        if self._graph is None and self._module is not None:
            self._graph = base_of(self._module, self.config, self._device)
        if self._graph is None and self.config.network.build == OWN_NETWORK:
            raise ConfigError(f"{self.folder} has learnt no task yet, so its network is not stored; give it again")
        if self._graph is None:
            if self.config.network == NetworkSettings():
                self.config = replace(self.config, network=suitable_network(stream[len(stream) - 1]))
            self._graph = build_base(self.config, device=self._device)
        return build_method(self.config, self._graph, self._device)

    @property
    def records(self) -> list[TaskRecord]:
        """The records of all finished tasks."""
        return self._log().tasks

    @property
    def seen(self) -> list[SeenTask]:
        """What is kept of every finished task: its name, its labels, the shape and scale of its samples."""
        return self.learner.seen if self._log().tasks else []

    @property
    def learner(self) -> Learner:
        """The learner in the last checkpoint; it is a copy, and what it learns is not recorded."""
        log = self._log()
        if self._loaded is None or self._loaded[0] != log.lines:
            module = module_to_load(self.config, trust=True, given=self._module)
            learner: Learner = load(self.folder, device=self._device, network=module)
            self._loaded = (log.lines, learner)
        return self._loaded[1]

    def predict(self, x: Any, task: int | str | None = None, *, together: bool = False) -> Tensor:
        """Return logits (n, classes)."""
        return self.learner.predict(x, task, together=together)

    def predict_task(self, x: Any, *, together: bool = False) -> TaskGuess:
        """Guess which task samples are of."""
        return self.learner.predict_task(x, together=together)

    def predict_proba(self, x: Any, task: int | str | None = None, *, together: bool = False) -> Tensor:
        """Return the probability of every class, (n, classes)."""
        return self.learner.predict_proba(x, task, together=together)

    def predict_labels(self, x: Any, task: int | str | None = None, *, together: bool = False) -> list[Label]:
        """Return the most likely label of every sample."""
        return self.learner.predict_labels(x, task, together=together)

    def score(self, x: Any, y: Any, task: int | str | None = None, *, together: bool = False) -> float:
        """Return the share of samples whose label is predicted rightly."""
        return self.learner.score(x, y, task, together=together)

    def classes(self, task: int | str) -> tuple[Label, ...]:
        """Return the labels of a task, in the order of its logits."""
        return self.learner.classes(task)

    def module(self, task: int | str, *, scaling: bool = True) -> TaskNetwork:
        """Return one task as an ``nn.Module`` with parameters of its own."""
        return self.learner.module(task, scaling=scaling)

    def export(self, task: int | str | None, path: str | Path, to: str) -> Exported:
        """Write one task, or all, in a form that other systems read, checked with the samples that the run stored."""
        learner = self.learner
        number = None if task is None else task_number(task, learner.seen)
        return export_from(self.folder, learner, number, path, to, device=self._device, network=self._module)

    def audit(self, *, data: str | None = None, stream: TaskStream | None = None) -> RunAudit:
        """Prove that every task is as it was learnt; where its data is at hand, measure its accuracy again.

        data    a folder in which the files of tasks lie now
        stream  tasks that were given as arrays, any of them
        """
        return audit_run(self.folder, data=data, device=self._device, stream=stream, network=self._module)

    def __repr__(self) -> str:
        names = [record.name for record in self.records]
        return f"<OpenRun {self.folder}: {self.config.method}, learnt {', '.join(map(repr, names)) or 'nothing yet'}>"

    def _log(self) -> RunLog:
        path = self.folder / JOURNAL
        return RunLog.of(read(path) if path.is_file() else [], path)

    def _given(self) -> tuple[GivenTask, ...]:
        """Return the finished tasks; one that is not finished is given again by whoever resumes it."""
        log = self._log()
        return log.starts[-1].given[: len(log.tasks)] if log.starts else ()


def open(
    folder: str | Path,
    network: nn.Module | Graph | None = None,
    *,
    pretrained: bool = False,
    device: str = "auto",
    **settings: Any,
) -> OpenRun:
    """Open a run that learns tasks as they come, or begin one in a new folder.

    network     the base network; left out, the run's own, or for a new run one that suits its first task
    pretrained  whether its weights are kept, and every task grows from them
    settings    sections of the config for a new run: method="fixed", seed=1, recipe=Recipe(…), search=SearchSettings(…)
    """
    folder = Path(folder)
    resolve_device(device)
    recorded = _recorded(folder)
    if recorded is None:
        return _begin(folder, Config(**settings), network, device, pretrained)
    if isinstance(network, nn.Module) and not recorded.network.keeps_weights:
        network = trace(network)
    return OpenRun(folder, _same(folder, recorded, settings), network, device)


def open_from_overrides(folder: str | Path, overrides: Sequence[str], *, device: str = "auto") -> OpenRun:
    """Open or begin a run with ``a.b=c`` settings, as the command line gives them."""
    if _recorded(Path(folder)) is None:
        resolve_device(device)
        return _begin(Path(folder), config_with(overrides), None, device, pretrained=False)
    opened = open(folder, device=device)
    recorded = to_plain(opened.config)
    if config_with(overrides, recorded) != opened.config:
        others = [each for each in overrides if config_with([each], recorded) != opened.config] or overrides
        raise FolderError(f"{folder} was begun with other settings than {', '.join(others)}; leave them out")
    return opened


def _recorded(folder: Path) -> Config | None:
    """Return the settings of a run, None if nothing is recorded yet."""
    path = folder / JOURNAL
    starts = RunLog.of(read(path), path).starts if os.path.isfile(path) else []
    return recorded_config(starts[0].config, path) if starts else None


def _begin(folder: Path, config: Config, network: nn.Module | Graph | None, device: str, pretrained: bool) -> OpenRun:
    stream = replace(config.stream, name=OWN_TASKS, tasks=None)
    named = config.network if network is None else NetworkSettings(build=OWN_NETWORK, pretrained=pretrained)
    if isinstance(network, nn.Module) and not pretrained:
        network = trace(network)  # which refuses what cannot grow before anything is written
    return OpenRun(folder, replace(config, stream=stream, network=named), network, device)


def _same(folder: Path, config: Config, settings: dict[str, Any]) -> Config:
    """Return the settings of a run that was begun, or refuse others."""
    if config.stream.name != OWN_TASKS:
        raise FolderError(f"{folder} is a run of {config.stream.name}, made by bocl run; give another folder")
    for name, value in settings.items():
        found = getattr(config, name, None)
        wanted = replace(value, name=OWN_TASKS, tasks=None) if name == "stream" else value
        if found != wanted:
            raise FolderError(f"{folder} was begun with {name} = {found}, not {wanted}; leave it out")
    return config


def suitable_network(task: Task) -> NetworkSettings:
    """Return a small network for samples of this shape: convolutional for images, else a multilayer perceptron."""
    shape = task.input_shape
    if len(shape) == 3:
        return NetworkSettings("convnet", {"channels": shape[0]})
    return NetworkSettings("mlp", {"inputs": prod(shape), "hidden": [64, 32]})


class _LastTask:
    """A stream of which only the last task is at hand, given as arrays."""

    def __init__(self, task: Task, test: Split, given: Sequence[GivenTask]) -> None:
        self._task, self._test, self._given = replace(task, index=len(given) - 1), test, given

    def __len__(self) -> int:
        return len(self._given)

    def __getitem__(self, index: int) -> Task:
        self._check(index)
        return self._task

    def test_split(self, index: int) -> Split:
        self._check(index)
        return self._test

    def fingerprint(self) -> str:
        return fingerprint_of_tasks((task.name, task.sha256) for task in self._given)

    def _check(self, index: int) -> None:
        if index != len(self._given) - 1:
            raise DataError(
                f"the samples of task '{self._given[index].name}' are needed, because the method changes earlier tasks;"
                " learn from files with bocl learn, or take a method that forgets nothing"
            )

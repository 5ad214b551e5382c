"""What is measured when a task is learnt and nothing is left to choose.

A method that forgets nothing is measured on the new task, and on the earlier ones that are checked again. Of the others
the accuracies are those on record: they stand for as long as the tasks are untouched, which an audit shows of all.

The test split is looked at only here and in an audit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import torch

from bocl.experiment.proof import checked_again
from bocl.experiment.round_archive import read_child
from bocl.experiment.store import RunStore
from bocl.methods.method import Learner
from bocl.networks.expandable import ExpandableNetwork
from bocl.records.record import Trial
from bocl.tasks.task import Task, TaskStream
from bocl.training.batches import DeviceSplit, to_device
from bocl.training.evaluation import BATCH, accuracy
from bocl.training.precision import repeatable_products


class ScoredSamples:
    """The validation and test samples of every task seen, on the learner's device."""

    def __init__(self, learner: Learner, stream: TaskStream, tasks: Sequence[Task]) -> None:
        self.validation: dict[int, DeviceSplit] = {}
        self.test: dict[int, DeviceSplit] = {}
        self._device, self._stream = learner.device, stream
        for task in tasks:
            self.add(task)

    def add(self, task: Task) -> None:
        """Bring the next task's samples to the device."""
        self.validation[task.index] = to_device(task.validation, self._device)
        self.test[task.index] = to_device(self._stream.test_split(task.index), self._device)


def score(learner: Learner, splits: Mapping[int, DeviceSplit], before: Sequence[float]) -> tuple[float, ...]:
    """Return the accuracy on every task, the new one last, as far as it is measured now and its samples are at hand.

    before  those of the earlier tasks that are on record
    """
    new = len(before)
    asked = range(new) if learner.forgets else checked_again(new)
    measured = {
        task: accuracy(partial(learner.logits, task=task), splits[task]) for task in (*asked, new) if task in splits
    }
    return (*(measured.get(task, recorded) for task, recorded in enumerate(before)), measured[new])


def mean_gates(learner: Learner, task: int, validation: DeviceSplit) -> dict[str, tuple[float, ...]]:
    """Return {gated layer: mean gate on the units of every task up to this one}, over one batch of samples."""
    inputs, _ = validation.rows(slice(0, BATCH))
    with torch.no_grad(), repeatable_products("float32"):
        found = learner.gate_openness(task, inputs)
    return {layer: tuple(means.tolist()) for layer, means in found.items()}


def score_bests(
    store: RunStore, learner: Learner, trials: Sequence[Trial], test: DeviceSplit
) -> tuple[tuple[int, float], ...]:
    """Return (number, test accuracy) of each trial of the last task that had the best reward when it was trained.

    The weights are those kept in the files of the rounds.
    """
    network = learner.network
    if not trials or not isinstance(network, ExpandableNetwork):
        return ()
    classes = network.growths[-1].classes
    found, best = [], -math.inf
    for number, trial in enumerate(trials):
        if not trial.failed and trial.reward > best:
            best = trial.reward
            growth = read_child(store, network, trials, number, classes)
            found.append((number, accuracy(network.candidate(growth), test)))
    return tuple(found)

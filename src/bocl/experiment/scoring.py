"""What is measured when a task is learnt and nothing is left to choose.

The test split is looked at only here and in an audit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch

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
        self.validation: list[DeviceSplit] = []
        self.test: list[DeviceSplit] = []
        self._device, self._stream = learner.device, stream
        for task in tasks:
            self.add(task)

    def add(self, task: Task) -> None:
        """Bring the next task's samples to the device."""
        self.validation.append(to_device(task.validation, self._device))
        self.test.append(to_device(self._stream.test_split(task.index), self._device))


def score(learner: Learner, splits: Sequence[DeviceSplit], first: int = 0) -> tuple[float, ...]:
    """Return the accuracy on every task from number ``first`` on, one split each."""
    return tuple(accuracy(partial(learner.logits, task=task), split) for task, split in enumerate(splits, first))


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

"""What is measured when a task is learnt and nothing is left to choose.

A method that forgets nothing is measured on the new task, and on the earlier ones that are checked again. Of the others
the accuracies are those on record: they stand for as long as the tasks are untouched, which an audit shows of all.

Tasks are guessed anew on the samples of every task that is checked again, because any guess may change with a new task;
after the last task of a run, on those of all tasks whose samples are at hand.

The test split is looked at only here and in an audit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean

import torch

from bocl.experiment.proof import checked_again
from bocl.experiment.round_archive import read_child
from bocl.experiment.store import RunStore
from bocl.methods.method import Learner
from bocl.methods.unnamed import in_scale_of, task_densities
from bocl.networks.expandable import ExpandableNetwork
from bocl.records.record import Guesses, Trial
from bocl.tasks.task import Task, TaskStream
from bocl.training.batches import DeviceSplit, to_device
from bocl.training.evaluation import BATCH, accuracy
from bocl.training.precision import repeatable_products


class ScoredSamples:
    """The validation and test samples of every task seen, on the learner's device.

    unnamed  pairs of the same, in the scale in which tasks are guessed; nothing where they are not
    """

    def __init__(self, learner: Learner, stream: TaskStream, tasks: Sequence[Task]) -> None:
        self.validation: dict[int, DeviceSplit] = {}
        self.test: dict[int, DeviceSplit] = {}
        self.unnamed: dict[int, tuple[DeviceSplit, DeviceSplit]] = {}
        self._learner, self._stream = learner, stream
        for task in tasks:
            self.add(task)

    def add(self, task: Task) -> None:
        """Bring the next task's samples to the device."""
        splits = task.validation, self._stream.test_split(task.index)
        validation, test = (to_device(split, self._learner.device) for split in splits)
        self.validation[task.index], self.test[task.index] = validation, test
        if self._learner.discriminant is None:
            return
        first = self._learner.seen[0]
        if (task.train.mean, task.train.std) == (first.mean, first.std):
            self.unnamed[task.index] = validation, test
        else:
            scaled = [to_device(in_scale_of(first, split), self._learner.device) for split in splits]
            self.unnamed[task.index] = scaled[0], scaled[1]


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


def score_guesses(learner: Learner, samples: ScoredSamples, *, last: bool) -> Guesses | None:
    """Return how well tasks are guessed, None where they are not.

    last  whether the run has no further task
    """
    if learner.discriminant is None:
        return None
    new = len(learner.seen) - 1
    asked = range(new + 1) if last else (*checked_again(new), new)
    tasks = [task for task in asked if task in samples.unnamed]
    found = [
        [
            *_guessed_right(learner, task, samples.test[task], samples.unnamed[task][1]),
            *_guessed_right(learner, task, samples.validation[task], samples.unnamed[task][0]),
        ]
        for task in tasks
    ]
    return Guesses(len(tasks), *(fmean(shares) for shares in zip(*found, strict=True)))


def _guessed_right(learner: Learner, task: int, own: DeviceSplit, unnamed: DeviceSplit) -> tuple[float, float]:
    """Return the share of a task's samples that it is named for, and of those whose class is right, too.

    own      in the scale of the task
    unnamed  in the scale in which tasks are guessed
    """
    hits = torch.zeros(2, dtype=torch.float64)
    with torch.no_grad(), repeatable_products("float32"):
        for part in own.parts(BATCH):
            inputs, labels = own.rows(part)
            named = task_densities(learner, unnamed.rows(part)[0]).argmax(1) == task
            right = named & (learner.logits(inputs, task).argmax(1) == labels)
            hits += torch.stack([named.sum(), right.sum()]).cpu()
    named_share, right_share = (hits / len(own)).tolist()
    return named_share, right_share


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

"""Samples that come without a task: it is guessed, and then only its network computes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bocl.errors import DataError, InputError
from bocl.methods.discriminant import Discriminant, add_up
from bocl.methods.guessing import MapKind, TaskGuess, guessed, mapped
from bocl.methods.method import Learner
from bocl.methods.seen import SeenTask, check_inputs, raw_samples
from bocl.tasks.task import Split, Task
from bocl.training.batches import to_device
from bocl.training.evaluation import BATCH
from bocl.training.precision import repeatable_products


def guess_tasks(learner: Learner, x: Any, *, together: bool) -> TaskGuess:
    """Return the likeliest tasks of samples (n, *shape) as they came."""
    return _guess(learner, _samples(learner, x), together)


def predict_unnamed(learner: Learner, x: Any, *, together: bool) -> tuple[TaskGuess, Tensor]:
    """Return the likeliest tasks, and logits (n, most classes of these), -inf beyond the classes of a sample's task."""
    raw = _samples(learner, x)
    guess = _guess(learner, raw, together)
    found = guess.tasks.unique().tolist()
    most = max((learner.seen[task].classes for task in found), default=0)
    logits = torch.full((len(raw), most), -torch.inf, device=learner.device)
    for task in found:
        rows = guess.tasks == task
        logits[rows, : learner.seen[task].classes] = learner.predict(raw[rows.to(raw.device)], task)
    return guess, logits


def task_densities(learner: Learner, inputs: Tensor) -> Tensor:
    """Return log p(sample | task), (n, tasks), up to a number of each sample.

    inputs  (n, *shape) on the device, in the scale of the first task
    """
    assert learner.discriminant is not None
    kind = learner.map_kind(learner.seen[0])
    assert kind is not None
    return learner.discriminant.log_densities(_mapped(learner, inputs, kind))


def added_up(learner: Learner, task: Task, first: SeenTask, kind: MapKind) -> Discriminant:
    """Return what tasks are guessed by once the training samples of one more are added up.

    first  of all tasks, whose scale is that of all samples
    """
    split = to_device(in_scale_of(first, task.train), learner.device)
    batches = (split.rows(part) for part in split.parts(BATCH))
    sums, scatter = add_up(((_mapped(learner, x, kind), labels) for x, labels in batches), task.classes)
    return Discriminant.of(sums, scatter, learner.discriminant)


def in_scale_of(first: SeenTask, split: Split) -> Split:
    """Return samples scaled as those of the first task, so that they can be compared with those of every other."""
    return replace(split, mean=first.mean, std=first.std)


def check_guesses(learner: Learner) -> None:
    """Refuse a learner that cannot guess tasks."""
    if not learner.seen:
        raise InputError("no task has been learnt, so there is none to guess")
    if learner.discriminant is None:
        raise InputError(
            "no task is given, and nothing is kept to guess it by; give its number or its name, or make the learner "
            "with guess=GuessSettings(map='auto'), on the command line --set guess.map=auto"
        )


def _samples(learner: Learner, x: Any) -> Tensor:
    """Return samples (n, *shape) as they came; refuse them where their task cannot be guessed."""
    check_guesses(learner)
    raw = raw_samples(x, 0, learner.seen, learner.text)
    scales = {(entry.mean, entry.std) for entry in learner.seen}
    if learner.seen[0].in_bytes and raw.dtype != torch.uint8 and len(scales) > 1:
        raise DataError(
            f"x without a task: samples of type {raw.dtype}, but every task scales its bytes in its own way; give "
            "uint8, or the task"
        )
    return raw


def _guess(learner: Learner, raw: Tensor, together: bool) -> TaskGuess:
    inputs = check_inputs(raw, 0, learner.seen, learner.device, learner.text)
    densities = torch.cat([task_densities(learner, part) for part in inputs.split(BATCH)])
    return guessed(densities, [entry.name for entry in learner.seen], together=together)


def _mapped(learner: Learner, inputs: Tensor, kind: MapKind) -> Tensor:
    """Return what tasks are told apart by, (n, d)."""
    with torch.no_grad(), repeatable_products("float32"):
        if kind == "features":
            assert learner.frozen_features is not None
            inputs = learner.frozen_features(inputs)
        return mapped(kind, inputs, learner.guess, learner.seed)

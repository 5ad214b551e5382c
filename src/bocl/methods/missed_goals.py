"""What a task fell short of: a target that no child reached, or any use at all."""

from __future__ import annotations

import warnings

from bocl.errors import GoalWarning
from bocl.tasks.task import Task
from bocl.wording import percent


def warn_if_missed(task: Task, best: float, *, target: float | None, useful: bool) -> None:
    """Warn where the best accuracy on a task's validation samples is below its target.

    With a tolerance or a price of parameters as the goal there is no such number. Then the least that is expected is to
    do better than always answering the most common class. Where classes have weights, that is no measure, and nothing
    is said.

    best    accuracy of the most accurate network that was trained
    useful  whether to do better than that is expected
    """
    if target is not None and best < target:
        _warn(
            f"task '{task.name}': no network reached the target of {percent(target)}; the best has {percent(best)} on "
            "validation samples; ask for less, or try more recipe.epochs or a larger network"
        )
    elif useful and not task.class_weights:
        most = task.validation.labels.bincount().max().item() / len(task.validation)
        if best <= most < 1:
            _warn(
                f"task '{task.name}': {percent(best)} on validation samples is no better than always answering the "
                f"most common class ({percent(most)}); check its labels, or try more recipe.epochs"
            )


def _warn(message: str) -> None:
    warnings.warn(message, GoalWarning, stacklevel=5)  # whoever called `learn`

"""A run small enough for a test: two tasks of digits, a search of two trials, one epoch."""

from __future__ import annotations

from bocl.records.record import TaskRecord, Trial


class Stopped(BaseException):
    """What stops a run in these tests, as a signal would."""


SMALL = (
    "stream.tasks=2",
    "network.arguments={inputs=64, hidden=[6, 5]}",
    "recipe.epochs=1",
    "search.trials=2",
    "search.patience=2",
    "search.warm_points=2",
    "search.bounds=3",
)


def another_child(task: TaskRecord) -> Trial:
    """Return a trained child of a task that was not kept, and that its widths alone name."""
    trained = [trial for trial in task.trials if not trial.failed]
    tried = [trial.widths for trial in trained]
    return next(trial for trial in trained if trial.widths != task.widths and tried.count(trial.widths) == 1)

"""Runs for TensorBoard and MLflow, fed from their journals: whoever calls again adds only what is new.

A run knows nothing of it, so no tracker can stop one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bocl.errors import BoclError, InputError, WorkError
from bocl.records.summary import find_runs
from bocl.tracking.mlflow import feed_mlflow
from bocl.tracking.points import TrackedRun, read_points
from bocl.tracking.tensorboard import feed_tensorboard


def track(folder: str | Path, *, tensorboard: str | Path | None = None, mlflow: str | None = None) -> int:
    """Feed what a run, or every run in a folder, has recorded to trackers, and return how many values were new.

    tensorboard  folder of TensorBoard's logs; each run gets a folder in it
    mlflow       tracking URI: http://…, sqlite:///…; each run becomes one in the experiment `bocl`
    """
    trackers: dict[str, Callable[[str, TrackedRun], int]] = {}
    if tensorboard is not None:
        trackers[f"TensorBoard at {tensorboard}"] = partial(feed_tensorboard, Path(tensorboard))
    if mlflow is not None:
        trackers[f"MLflow at {mlflow}"] = partial(feed_mlflow, mlflow)
    if not trackers:
        raise InputError("no tracker is given; name the folder of TensorBoard's logs, or MLflow's tracking URI")
    return sum(
        _feed(tracker, feed, name, run) for name, run in _runs(Path(folder)) for tracker, feed in trackers.items()
    )


def _runs(folder: Path) -> Iterator[tuple[str, TrackedRun]]:
    for run in find_runs(folder):
        inside = run != folder and run.is_relative_to(folder)
        name = run.relative_to(folder).as_posix() if inside else run.resolve().name
        tracked = read_points(run)
        if tracked is not None:
            yield name, tracked


def _feed(tracker: str, feed: Callable[[str, TrackedRun], int], name: str, run: TrackedRun) -> int:
    try:
        return feed(name, run)
    except BoclError:
        raise
    except Exception as error:  # whatever a tracker raises
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise WorkError(
            f"{tracker} failed ({reason}); the run is as it was, and the next call adds the rest"
        ) from error

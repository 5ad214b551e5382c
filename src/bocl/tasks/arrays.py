"""A stream of your own data, from one pair of arrays per task."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bocl.checks import Natural, Number, checked
from bocl.errors import ConfigError, DataError
from bocl.seeding import seed_for
from bocl.tasks.images import channel_statistics, fingerprint_of
from bocl.tasks.partition import cut
from bocl.tasks.samples import (
    Samples,
    check_alike,
    check_classes,
    check_test,
    checked_samples,
    make_split,
    make_task,
)
from bocl.tasks.task import Split, Task, checked_index
from bocl.wording import counted, shown

_PAIRS = "a list with one pair (X, y) per task"


@dataclass(frozen=True, eq=False)
class ArrayStream:
    """Tasks of a user's arrays, checked and split when the stream is made."""

    tasks: tuple[Task, ...] = field(repr=False)
    test_splits: tuple[Split, ...] = field(repr=False)

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[Task]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, index: int) -> Task:
        return self.tasks[checked_index(index, len(self))]

    def test_split(self, index: int) -> Split:
        """Return the sealed samples of task ``index``."""
        return self.test_splits[checked_index(index, len(self))]

    def fingerprint(self) -> str:
        """Return a sha256 of all samples and labels, part by part."""
        digest = hashlib.sha256()
        for task, test in zip(self.tasks, self.test_splits, strict=True):
            for split in (task.train, task.validation, test):
                digest.update(fingerprint_of(split.raw.numpy(), split.labels.numpy()).encode())
        return digest.hexdigest()


def from_arrays(
    tasks: Sequence[tuple[Any, Any]],
    *,
    test: Sequence[tuple[Any, Any]] | None = None,
    validation: float = 0.1,
    test_fraction: float = 0.2,
    seed: int = 0,
    names: Sequence[str] | None = None,
) -> ArrayStream:
    """Make a stream of your own data.

    tasks          one pair (X, y) per task, numpy arrays or torch tensors: X (n, d) or (n, channels, height, width),
                   of the same shape in all tasks, and y (n,) integers 0 … C-1, where C may differ by task
    test           one pair (X, y) per task; if left out, ``test_fraction`` of each task is set aside for testing
    validation     fraction of the rest that is set aside to make choices by, and never trained on
    seed           decides which samples go where
    names          one per task, for display

    Both parts that are set aside hold every class in proportion. Bytes (uint8) stay bytes and are scaled by the mean
    and standard deviation of the task's training part (per channel of images, one value for vectors). Other numbers
    become float32 and are used as they are.
    """
    _check_fraction("validation", validation)
    _check_fraction("test_fraction", test_fraction)
    _check_list("tasks", tasks, _PAIRS, tasks)
    if len(tasks) == 0:
        raise DataError(f"tasks is empty; give {_PAIRS}")
    if names is not None:
        _check_list("names", names, "a list with one name per task", tasks)
    if test is not None:
        _check_list("test", test, _PAIRS, tasks)
    seed = checked("seed", seed, Natural)

    first: Samples | None = None
    made: list[Task] = []
    sealed: list[Split] = []
    for index, pair in enumerate(tasks):
        where = f"tasks[{index}]"
        samples = checked_samples(*_pair(pair, where), where)
        first = first or samples
        check_alike(samples, first, where, "those of tasks[0]")
        check_classes(samples.labels, where, least=3 if test is None else 2)
        if test is None:
            samples, held_out = cut(samples, _share(test_fraction, samples), seed_for(seed, "test", index), leave=2)
        else:
            held_out = checked_samples(*_pair(test[index], f"test[{index}]"), f"test[{index}]")
            check_test(held_out, samples, f"test[{index}]")
        train, chosen_by = cut(samples, _share(validation, samples), seed_for(seed, "validation", index))
        mean, std = _scale(train.inputs)
        name = str(names[index]) if names is not None else f"task {index + 1}"
        made.append(make_task(name, index, train, chosen_by, mean, std))
        sealed.append(make_split(held_out, mean, std))
    return ArrayStream(tuple(made), tuple(sealed))


def _share(fraction: float, samples: Samples) -> int:
    return round(fraction * len(samples.labels))


def _scale(inputs: NDArray[Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if inputs.dtype != np.uint8:
        return (0.0,), (1.0,)
    # A vector is one channel: a flattened image has pixels that hardly change, and divided by their own deviation they
    # would become the largest.
    return channel_statistics(inputs if inputs.ndim == 4 else inputs[:, None, None, :])


def _pair(pair: Any, where: str) -> tuple[Any, Any]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise DataError(f"{where} is {type(pair).__name__}, not a pair; give {_PAIRS}")
    return pair[0], pair[1]


def _check_list(name: str, values: Sequence[Any], wanted: str, tasks: Sequence[Any]) -> None:
    if not isinstance(values, list | tuple):
        raise DataError(f"{name} is {type(values).__name__}, not a list; give {wanted}")
    if len(values) != len(tasks):
        entries = counted(len(values), "entry", "entries")
        raise DataError(f"{name} has {entries} for {counted(len(tasks), 'task')}; give one for each task")


def _check_fraction(name: str, value: object) -> None:
    try:
        checked(name, value, Annotated[Number, Field(gt=0, lt=1)])
    except ConfigError as error:
        raise DataError(f"{name} is {shown(value)}; give a fraction between 0 and 1, such as 0.1") from error

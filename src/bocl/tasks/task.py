"""A task as a method sees it: training and validation samples, never test samples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from bocl.errors import DataError
from bocl.tasks.labels import Label
from bocl.tasks.texts import TextFormat


class Scaling:
    """Turns raw samples into what a network sees: (raw - mean)/std, and (raw/255 - mean)/std of bytes.

    mean, std  one value per feature of a vector or channel of an image, or a single value for all
    shape      of one sample
    tokens     whether samples are token ids, which stay as they are
    """

    def __init__(
        self,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        shape: tuple[int, ...],
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        *,
        tokens: bool = False,
    ) -> None:
        self._dtype, self._tokens = dtype, tokens
        self._plain = mean == (0.0,) and std == (1.0,)
        self._mean, self._std = (
            torch.tensor(values, dtype=dtype, device=device).reshape(-1, *(1,) * (len(shape) - 1))
            for values in (mean, std)
        )

    def __call__(self, raw: Tensor) -> Tensor:
        """Scale samples (n, *shape) on the device; bytes are divided by 255 first."""
        if self._tokens:
            return raw
        if raw.dtype == torch.uint8:
            return raw.to(self._dtype).div_(255).sub_(self._mean).div_(self._std)
        return raw.to(self._dtype) if self._plain else (raw.to(self._dtype) - self._mean).div_(self._std)


@dataclass(frozen=True, eq=False)
class Split:
    """Labelled samples, kept as they were published (bytes stay bytes) and scaled when asked for.

    raw     (n, *shape)  uint8 or float32; int32 if they are token ids, (n, length)
    labels  (n,)         int64, 0 … classes-1
    mean, std            of raw, or of raw / 255 if it is uint8: one value per feature of a vector or channel of an
                         image, or a single value for all
    padding              of token ids: the id that stands for no token
    """

    raw: Tensor
    labels: Tensor
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    padding: int | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def inputs(self, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> Tensor:
        """Return what a network sees, (n, *shape): (raw - mean)/std, and (raw/255 - mean)/std of bytes."""
        return self.scaling(device, dtype)(self.raw.to(device))

    def scaling(self, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> Scaling:
        """Return the function that turns raw samples on the device into what a network sees."""
        tokens = self.padding is not None
        return Scaling(self.mean, self.std, tuple(self.raw.shape[1:]), device, dtype, tokens=tokens)


@dataclass(frozen=True, eq=False)
class Task:
    """One task of a stream. It has no reference to its stream or its test split."""

    name: str  # for display: "permutation 3", "classes 20-29"
    index: int  # place in the stream, from 0
    classes: int
    train: Split
    validation: Split
    labels: tuple[Label, ...] = ()  # what people call the classes; none where they are the numbers from 0
    columns: tuple[str, ...] = ()  # what people call the features of a table
    class_weights: tuple[float, ...] = ()  # how much a sample of each class counts in the training loss; none: 1 each
    text: TextFormat | None = None  # how texts became its token ids

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self.train.raw.shape[1:])


def with_validation(task: Task) -> Task:
    """Return the task with its validation samples among those to learn from; they stay validation samples."""
    parts = task.train, task.validation
    raw, labels = torch.cat([part.raw for part in parts]), torch.cat([part.labels for part in parts])
    return replace(task, train=replace(task.train, raw=raw, labels=labels))


class TaskStream(Protocol):
    """Tasks in order, each a pure function of (seed, index)."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Task:
        """Return task ``index``; IndexError past the end, so that a stream can be iterated."""
        ...

    def test_split(self, index: int) -> Split:
        """Return the sealed samples of task ``index``, only for scoring finished tasks."""
        ...

    def fingerprint(self) -> str:
        """Return a sha256 of the data behind the stream, for the record of a run."""
        ...


class FirstTasks:
    """The first tasks of a stream."""

    def __init__(self, stream: TaskStream, tasks: int) -> None:
        self._stream, self._tasks = stream, min(tasks, len(stream))

    def __len__(self) -> int:
        return self._tasks

    def __getitem__(self, index: int) -> Task:
        return self._stream[checked_index(index, self._tasks)]

    def test_split(self, index: int) -> Split:
        """Return the sealed samples of task ``index``."""
        return self._stream.test_split(checked_index(index, self._tasks))

    def fingerprint(self) -> str:
        """Return that of the whole stream."""
        return self._stream.fingerprint()


class Rescaled:
    """A stream whose samples are scaled in a given way, as a pretrained network expects them."""

    def __init__(self, stream: TaskStream, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        self._stream, self._mean, self._std = stream, mean, std

    def __len__(self) -> int:
        return len(self._stream)

    def __getitem__(self, index: int) -> Task:
        task = self._stream[index]
        return replace(task, train=self._scaled(task.train), validation=self._scaled(task.validation))

    def test_split(self, index: int) -> Split:
        """Return the sealed samples of task ``index``."""
        return self._scaled(self._stream.test_split(index))

    def fingerprint(self) -> str:
        """Return that of the stream."""
        return self._stream.fingerprint()

    def _scaled(self, split: Split) -> Split:
        channels = split.raw.shape[1]
        if {len(self._mean), len(self._std)} - {1, channels}:
            raise DataError(f"samples have {channels} channels; give one mean and std, or as many")
        return replace(split, mean=self._mean, std=self._std)


def checked_index(index: int, tasks: int) -> int:
    """Return ``index`` if a stream of ``tasks`` tasks has it; negative numbers are refused."""
    if not 0 <= index < tasks:
        raise IndexError(f"task {index} of a stream of {tasks}: tasks are numbered 0 to {tasks - 1}")
    return index

"""One data set split by class: every task brings new classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bocl.checks import PositiveInt, checked
from bocl.errors import DataError
from bocl.seeding import seed_for
from bocl.tasks.cifar100 import load_cifar100
from bocl.tasks.images import LabelledImages
from bocl.tasks.partition import cut
from bocl.tasks.samples import Samples, make_split, make_task
from bocl.tasks.task import Split, Task, checked_index

CIFAR100_CLASSES = 100
CIFAR100_TRAINING = 500  # images of a class
CIFAR100_VALIDATION = 50  # of these


@dataclass(frozen=True, eq=False)
class SplitStream:
    """Every task holds the next classes in an order: that of their numbers, or one that the seed draws.

    A task's labels are from 0, in the order of the numbers of its classes.
    """

    images: LabelledImages
    tasks: int
    seed: int
    classes: int  # in each task
    validation: int  # images of each class that are set aside, on average
    each: int | None = None  # training images of a class; None: all
    drawn: bool = False  # whether the seed draws the order

    def __len__(self) -> int:
        return self.tasks

    def __iter__(self) -> Iterator[Task]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, index: int) -> Task:
        members = self.members(index)
        samples = _samples(self.images.train_images, self.images.train_labels, members, self.each)
        train, validation = cut(samples, self.validation * self.classes, seed_for(self.seed, "validation", index))
        numbers = ", ".join(map(str, members)) if self.drawn else f"{members[0]}-{members[-1]}"
        return make_task(f"classes {numbers}", index, train, validation, self.images.mean, self.images.std)

    def test_split(self, index: int) -> Split:
        """Return the sealed samples of task ``index``."""
        samples = _samples(self.images.test_images, self.images.test_labels, self.members(index))
        return make_split(samples, self.images.mean, self.images.std)

    def fingerprint(self) -> str:
        """Return the sha256 of the images the stream is made from."""
        return self.images.fingerprint

    def members(self, index: int) -> list[int]:
        """Return the numbers of the classes of task ``index``, in order."""
        first = checked_index(index, self.tasks) * self.classes
        order = np.arange(self.images.train_labels.max() + 1)
        if self.drawn:
            np.random.default_rng(seed_for(self.seed, "class order")).shuffle(order)
        return sorted(order[first : first + self.classes].tolist())


def _samples(
    images: NDArray[np.uint8], labels: NDArray[np.int64], members: list[int], each: int | None = None
) -> Samples:
    """Return the samples of these classes, or the first so many of each, labelled by their place among them."""
    kept = [np.flatnonzero(labels == member)[:each] for member in members]
    rows = np.sort(np.concatenate(kept))
    return Samples(images[rows], np.searchsorted(members, labels[rows]))


def split_cifar100(
    tasks: int = 10,
    seed: int = 0,
    data: Path | str | None = None,
    classes: int = 10,
    each: int | None = None,
    class_order: Literal["number", "drawn"] = "number",
) -> SplitStream:
    """CIFAR-100, ten new classes in each task; 4,500 / 500 / 1,000 images a task.

    each         training images of a class, a tenth of which are for validation; None: all 500
    class_order  tasks have classes 0-9, 10-19, … (`number`), or such as the seed draws (`drawn`)
    """
    if tasks < 1 or classes < 2 or tasks * classes > CIFAR100_CLASSES:
        raise DataError(
            f"{tasks} tasks of {classes} classes cannot be made from CIFAR-100's {CIFAR100_CLASSES} classes; "
            f"take one task or more, two classes or more, and at most {CIFAR100_CLASSES} classes in all"
        )
    each = checked("each", each, PositiveInt | None)
    if each is not None and not 2 <= each <= CIFAR100_TRAINING:
        raise DataError(
            f"each is {each}; CIFAR-100 has {CIFAR100_TRAINING} training images of a class: give 2 to as many"
        )
    order = checked("class_order", class_order, Literal["number", "drawn"])
    validation = CIFAR100_VALIDATION if each is None else max(1, each * CIFAR100_VALIDATION // CIFAR100_TRAINING)
    return SplitStream(load_cifar100(data), tasks, seed, classes, validation, each, order == "drawn")

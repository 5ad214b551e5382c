"""Every task has the same images, with the pixels shuffled in its own way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bocl.errors import DataError
from bocl.seeding import seed_for
from bocl.tasks.digits import load_digits
from bocl.tasks.images import LabelledImages
from bocl.tasks.mnist import load_mnist
from bocl.tasks.partition import cut
from bocl.tasks.samples import Samples, make_split, make_task
from bocl.tasks.task import Split, Task, checked_index

DIGITS_VALIDATION = 144  # of 1,437
MNIST_VALIDATION = 5_000  # of 60,000

Transform = Callable[[NDArray[np.uint8]], NDArray[np.uint8]]  # (n, channels, height, width) → the same shape


@dataclass(frozen=True, eq=False)
class PermutedStream:
    """Task ``index`` permutes the pixels by a permutation drawn from (seed, index)."""

    images: LabelledImages
    tasks: int
    seed: int
    validation: int  # training images that are set aside, the same ones in every task

    def __len__(self) -> int:
        return self.tasks

    def __iter__(self) -> Iterator[Task]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, index: int) -> Task:
        name, transform = self.view(checked_index(index, self.tasks))
        samples = Samples(transform(self.images.train_images), self.images.train_labels)
        train, validation = cut(samples, self.validation, seed_for(self.seed, "validation"))
        return make_task(name, index, train, validation, self.images.mean, self.images.std)

    def test_split(self, index: int) -> Split:
        """Return the sealed samples of task ``index``."""
        _, transform = self.view(checked_index(index, self.tasks))
        test = Samples(transform(self.images.test_images), self.images.test_labels)
        return make_split(test, self.images.mean, self.images.std)

    def fingerprint(self) -> str:
        """Return the sha256 of the images the stream is made from."""
        return self.images.fingerprint

    def view(self, index: int) -> tuple[str, Transform]:
        """Return the name of task ``index`` and what it does to the images."""
        return f"permutation {index + 1}", permutation(self.seed, index, self.images.train_images[0].size)


def permuted_digits(tasks: int = 5, seed: int = 0) -> PermutedStream:
    """scikit-learn's 8x8 digits, pixels shuffled differently for each task; needs no download."""
    return PermutedStream(load_digits(seed), checked_count(tasks), seed, DIGITS_VALIDATION)


def permuted_mnist(tasks: int = 10, seed: int = 0, data: Path | str | None = None) -> PermutedStream:
    """MNIST, pixels shuffled differently for each task; 55,000 / 5,000 / 10,000 images."""
    return PermutedStream(load_mnist(data), checked_count(tasks), seed, MNIST_VALIDATION)


def permutation(seed: int, index: int, pixels: int) -> Transform:
    """Return the shuffling of task ``index``."""
    order = np.random.default_rng(seed_for(seed, "permutation", index)).permutation(pixels)

    def shuffled(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return np.take(images.reshape(len(images), pixels), order, axis=1).reshape(images.shape)

    return shuffled


def checked_count(tasks: int) -> int:
    """Return ``tasks`` if a stream can have that many."""
    if tasks < 1:
        raise DataError(f"tasks is {tasks}; a stream has one task or more")
    return tasks

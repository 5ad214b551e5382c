"""Permutations and rotations in turn: tasks 1, 3, 5 … shuffle the pixels, tasks 2, 4, 6 … turn the images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bocl.seeding import seed_for
from bocl.tasks.images import LabelledImages
from bocl.tasks.mnist import load_mnist
from bocl.tasks.permuted import (
    MNIST_VALIDATION,
    Transform,
    checked_count,
    permutation,
    transformed_task,
    transformed_test,
)
from bocl.tasks.task import Split, Task, checked_index


@dataclass(frozen=True, eq=False)
class MixedStream:
    """Permutations at even indices, rotations at odd ones."""

    images: LabelledImages
    tasks: int
    seed: int
    validation: int  # images set aside of the training images, the same ones in every task

    def __len__(self) -> int:
        return self.tasks

    def __getitem__(self, index: int) -> Task:
        transform = self._transform(index)
        name = f"permutation {index + 1}"
        if index % 2:
            name = f"rotation {index + 1} ({rotation_angle(self.seed, index, self.tasks):.1f} degrees)"
        return transformed_task(self.images, transform, name, index, self.validation, self.seed)

    def test_split(self, index: int) -> Split:
        """Return the sealed samples of task ``index``."""
        return transformed_test(self.images, self._transform(index), index)

    def fingerprint(self) -> str:
        """Return the sha256 of the images the stream is made from."""
        return self.images.fingerprint

    def _transform(self, index: int) -> Transform:
        checked_index(index, self.tasks)
        if index % 2:
            height, width = self.images.train_images.shape[2:]
            return rotation(rotation_angle(self.seed, index, self.tasks), height, width)
        return permutation(self.seed, index, self.images.train_images[0].size)


def mixed_mnist(tasks: int = 10, seed: int = 0, data: Path | str | None = None) -> MixedStream:
    """MNIST, pixels shuffled and images rotated in turn; 55,000 / 5,000 / 10,000 images."""
    return MixedStream(load_mnist(data), checked_count(tasks), seed, MNIST_VALIDATION)


def rotation_angle(seed: int, index: int, tasks: int) -> float:
    """Return the angle of task ``index`` in degrees: 0 … 180 is cut into one bin per rotation of the stream.

    The seed decides which bin a rotation gets, and the place of the angle within it. Ten tasks have five bins
    of 36 degrees.
    """
    bins = tasks // 2
    bin_of = np.random.default_rng(seed_for(seed, "rotation bins", bins)).permutation(bins)
    offset = np.random.default_rng(seed_for(seed, "rotation", index)).random()
    return float((bin_of[index // 2] + offset) * 180 / bins)


def rotation(angle: float, height: int, width: int) -> Transform:
    """Return the rotation by ``angle`` degrees about the centre, bilinear, dark where nothing was.

    It is linear in the pixels, so the unit images are rotated once and all others are sums of them: a sparse
    matrix with four entries a row, many times faster than one call per image.
    """
    from scipy import ndimage, sparse

    pixels = height * width
    units = np.eye(pixels).reshape(pixels, height, width)
    turned = ndimage.rotate(units, angle, axes=(2, 1), reshape=False, order=1)
    matrix = sparse.csr_array(turned.reshape(pixels, pixels).T)  # (pixel out, pixel in)

    def rotated(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
        planes = images.reshape(-1, pixels)
        result = np.empty_like(planes)
        for start in range(0, len(planes), 256):  # in pieces that stay in the processor cache: five times faster
            piece = planes[start : start + 256]
            result[start : start + 256] = np.rint(matrix @ piece.T.astype(np.float64)).T
        return result.reshape(images.shape)

    return rotated

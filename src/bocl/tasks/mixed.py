"""Permutations and rotations in turn: tasks 1, 3, 5 … shuffle the pixels, tasks 2, 4, 6 … rotate the images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bocl.seeding import seed_for
from bocl.tasks.mnist import load_mnist
from bocl.tasks.permuted import MNIST_VALIDATION, PermutedStream, Transform, checked_count


class MixedStream(PermutedStream):
    """Permutations at even indices, rotations at odd ones."""

    def view(self, index: int) -> tuple[str, Transform]:
        """Return the name of task ``index`` and what it does to the images."""
        if index % 2 == 0:
            return super().view(index)
        angle = rotation_angle(self.seed, index, self.tasks)
        height, width = self.images.train_images.shape[2:]
        return f"rotation {index + 1} ({angle:.1f} degrees)", rotation(angle, height, width)


def mixed_mnist(tasks: int = 10, seed: int = 0, data: Path | str | None = None) -> MixedStream:
    """MNIST, pixels shuffled and images rotated in turn; 55,000 / 5,000 / 10,000 images."""
    return MixedStream(load_mnist(data), checked_count(tasks), seed, MNIST_VALIDATION)


def rotation_angle(seed: int, index: int, tasks: int) -> float:
    """Return the angle of task ``index`` in degrees: 0 … 180 is divided into one bin per rotation of the stream.

    The seed decides which bin a rotation gets, and the angle within it. Ten tasks have five bins of 36 degrees.
    """
    bins = tasks // 2
    bin_of = np.random.default_rng(seed_for(seed, "rotation bins", bins)).permutation(bins)
    offset = np.random.default_rng(seed_for(seed, "rotation", index)).random()
    return float((bin_of[index // 2] + offset) * 180 / bins)


def rotation(angle: float, height: int, width: int) -> Transform:
    """Return the rotation by ``angle`` degrees about the centre, bilinear, with black corners.

    It is linear in the pixels, so it is a sparse matrix with four entries per row: the rotated unit images. That is
    many times faster than one call per image.
    """
    from scipy import ndimage, sparse

    pixels = height * width
    units = np.eye(pixels).reshape(pixels, height, width)
    turned = ndimage.rotate(units, angle, axes=(2, 1), reshape=False, order=1)
    matrix = sparse.csr_array(turned.reshape(pixels, pixels).T)  # (pixel out, pixel in)

    def rotated(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
        planes = images.reshape(-1, pixels)
        result = np.empty_like(planes)
        for start in range(0, len(planes), 256):  # pieces that fit in the processor cache: five times faster
            piece = planes[start : start + 256]
            result[start : start + 256] = np.rint(matrix @ piece.T.astype(np.float64)).T
        return result.reshape(images.shape)

    return rotated

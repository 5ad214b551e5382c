"""An image data set in memory, shared by the streams made from it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Images as published, in bytes. They are read-only, because several streams share them.

    train_images  (n, channels, height, width)  uint8      train_labels  (n,)  int64
    test_images   (m, channels, height, width)  uint8      test_labels   (m,)  int64
    mean, std     of training images / 255, per channel
    fingerprint   sha256 of the data, whichever files it was read from
    """

    name: str
    train_images: NDArray[np.uint8] = field(repr=False)
    train_labels: NDArray[np.int64] = field(repr=False)
    test_images: NDArray[np.uint8] = field(repr=False)
    test_labels: NDArray[np.int64] = field(repr=False)
    mean: tuple[float, ...]
    std: tuple[float, ...]
    fingerprint: str


def labelled_images(
    name: str,
    train: tuple[NDArray[np.uint8], NDArray[np.int64]],
    test: tuple[NDArray[np.uint8], NDArray[np.int64]],
    fingerprint: str | None = None,
) -> LabelledImages:
    """Make the arrays read-only and compute the statistics of the training images."""
    arrays = (*train, *test)
    for array in arrays:
        array.flags.writeable = False
    mean, std = channel_statistics(train[0])
    return LabelledImages(name, *arrays, mean, std, fingerprint or fingerprint_of(*arrays))


def channel_statistics(images: NDArray[np.uint8]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation per channel of images / 255, (n, channels, height, width).

    Sums are exact integers, so every machine gets the same bits. A constant channel gets standard deviation 1.
    """
    total = np.zeros(images.shape[1], dtype=np.int64)
    total_of_squares = np.zeros(images.shape[1], dtype=np.int64)
    for start in range(0, len(images), 1000):  # in pieces: a wider copy of the whole data set would be large
        piece = images[start : start + 1000].astype(np.uint16)
        total += piece.sum(axis=(0, 2, 3), dtype=np.int64)
        total_of_squares += np.square(piece).sum(axis=(0, 2, 3), dtype=np.int64)  # 255² fits 16 bits
    count = images.size // images.shape[1]
    mean = total / count
    std = np.sqrt(np.maximum(total_of_squares / count - mean**2, 0.0))
    constant = total_of_squares * count == total**2
    std = np.where(constant, 255.0, std)
    return tuple((mean / 255).tolist()), tuple((std / 255).tolist())


def fingerprint_of(*arrays: NDArray[Any]) -> str:
    """Return the sha256 of the arrays' types, shapes and values, in order."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()

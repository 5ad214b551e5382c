"""Bytes of published data files → arrays. Nothing here opens a file."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bocl.errors import DataError

CIFAR_RECORD = 2 + 3 * 32 * 32  # coarse label, fine label, red plane, green plane, blue plane
MOST_DIMENSIONS = 3  # of an idx file: images, rows, columns


def idx_array(data: bytes, where: str) -> NDArray[np.uint8]:
    """Read the MNIST format: two zero bytes, type 8 (bytes), number of dimensions, each size, the values."""
    if len(data) < 4 or data[:3] != b"\x00\x00\x08" or data[3] > MOST_DIMENSIONS or len(data) < 4 + 4 * data[3]:
        raise DataError(f"{where} is not an idx file of bytes (it starts with {data[:4]!r}); get it again")
    shape = tuple(int(size) for size in np.frombuffer(data, ">u4", count=data[3], offset=4))
    values = np.frombuffer(data, np.uint8, offset=4 + 4 * data[3])
    wanted = 1
    for size in shape:  # python integers: sizes from a file must not overflow
        wanted *= size
    if len(values) != wanted:
        raise DataError(f"{where} declares shape {shape} but holds {len(values)} values; get it again")
    return values.reshape(shape)


def cifar_records(data: bytes, where: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read a CIFAR-100 binary file into images (n, 3, 32, 32) and fine labels (n,)."""
    if not data or len(data) % CIFAR_RECORD:
        raise DataError(f"{where} holds {len(data)} bytes, not records of {CIFAR_RECORD}; get it again")
    records = np.frombuffer(data, np.uint8).reshape(-1, CIFAR_RECORD)
    return records[:, 2:].reshape(-1, 3, 32, 32).copy(), records[:, 1].astype(np.int64)


def cifar_pickle(data: bytes, where: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read a CIFAR-100 file of the Python edition into images (n, 3, 32, 32) and fine labels (n,)."""
    try:
        content = _ArraysOnly(io.BytesIO(data), encoding="bytes").load()
        images = np.asarray(content[b"data"])
        labels = np.asarray(content[b"fine_labels"])
    except DataError as error:
        raise DataError(f"{where}: {error}") from error
    except Exception as error:  # damaged pickles raise nearly anything
        raise DataError(f"{where} is not a CIFAR-100 pickle ({type(error).__name__}); get it again") from error
    if images.dtype != np.uint8 or images.shape != (len(labels), 3 * 32 * 32) or labels.dtype.kind != "i":
        raise DataError(
            f"{where} holds {images.dtype} {images.shape}, not rows of 3072 bytes with labels; get it again"
        )
    return images.reshape(-1, 3, 32, 32), labels.astype(np.int64)


class _ArraysOnly(pickle.Unpickler):
    """Builds numpy arrays out of numbers and bytes, and refuses every other name a pickle may call."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("numpy", "ndarray"):
            return np.ndarray
        if (module, name) == ("numpy", "dtype"):
            return np.dtype
        if (module, name) == ("numpy.core.multiarray", "_reconstruct"):
            return _empty_array
        raise DataError(f"the pickle asks for {module}.{name}, which a data file has no need of; do not trust it")


def _empty_array(kind: type, shape: tuple[int, ...], code: bytes) -> NDArray[Any]:
    """Stand in for numpy's helper, whose module moved between versions: pickle fills the array afterwards."""
    if kind is not np.ndarray or shape != (0,):
        raise DataError("the pickle builds an array in a way numpy does not; do not trust it")
    return np.ndarray(shape, np.dtype(code.decode("ascii")))

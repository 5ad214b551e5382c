"""Bytes of published data files → arrays. Nothing here opens a file, unpacks to disk or trusts a declared size."""

from __future__ import annotations

import gzip
import io
import math
import pickle
import tarfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bocl.errors import DataError

CIFAR_RECORD = 2 + 3 * 32 * 32  # coarse label, fine label, red plane, green plane, blue plane
MOST_DIMENSIONS = 3  # of an idx file: images, rows, columns
TAR_SLACK = 1 << 20  # bytes of headers, padding and other members


def gunzip(data: bytes, limit: int, where: str) -> bytes:
    """Return the content of a gzip file of at most ``limit`` bytes once decompressed."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            content = stream.read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{where} cannot be decompressed ({error}); get it again") from error
    if len(content) > limit:
        raise DataError(f"{where} decompresses to more than the {limit} bytes expected; do not trust it")
    return content


def tar_members(data: bytes, limits: Mapping[str, int], where: str) -> dict[str, bytes]:
    """Return the plain files named in ``limits`` (name → most bytes) of a .tar.gz file; all others are ignored."""
    content = gunzip(data, TAR_SLACK + sum(limits.values()), where)
    members: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for member in archive:
                is_wanted = member.isreg() and member.size <= limits.get(member.name, -1)
                stream = archive.extractfile(member) if is_wanted else None
                if stream is not None:
                    members[member.name] = stream.read()
    except Exception as error:  # damaged headers raise nearly anything
        raise DataError(f"{where} cannot be read as a .tar.gz file ({error}); get it again") from error
    if missing := [name for name in limits if name not in members]:
        raise DataError(f"{where} has no file {', '.join(missing)} of the size expected; get it again")
    return members


def idx_array(data: bytes, where: str) -> NDArray[np.uint8]:
    """Read the MNIST format: two zero bytes, type 8 (bytes), number of dimensions, each size, the values."""
    if len(data) < 4 or data[:3] != b"\x00\x00\x08" or data[3] > MOST_DIMENSIONS or len(data) < 4 + 4 * data[3]:
        raise DataError(f"{where} is not an idx file of bytes (it starts with {data[:4]!r}); get it again")
    shape = tuple(np.frombuffer(data, ">u4", count=data[3], offset=4).tolist())
    values = np.frombuffer(data, np.uint8, offset=4 + 4 * data[3])
    if len(values) != math.prod(shape):
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
    """Builds numpy arrays from numbers and bytes, and refuses every other name that a pickle may call."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise DataError(f"the pickle asks for {module}.{name}, which a data file does not need; do not trust it")
        return _ALLOWED[module, name]


def _empty_array(kind: type, shape: tuple[int, ...], code: bytes) -> NDArray[Any]:
    """Replace numpy's helper, whose module differs between versions; pickle fills the array afterwards."""
    if kind is not np.ndarray or shape != (0,):
        raise DataError("the pickle builds an array in a way numpy does not; do not trust it")
    return np.ndarray(shape, np.dtype(code.decode("ascii")))


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
}

"""The samples of a request, from its bytes: JSON, or an array as numpy saves it. Nothing in them is run."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json

from bocl.errors import DataError
from bocl.methods.seen import SeenTask
from bocl.wording import counted, shown

NPY = b"\x93NUMPY"  # how such a file begins, and no JSON does
_WANTED = 'give {"samples": […]}, or the bytes of an .npy file'
_OF_BYTES = "the task was learnt from bytes; give whole numbers from 0 to 255"
_OF_TEXTS = "the task was learnt from texts; give a list of strings, or rows of token ids"


def read_samples(body: bytes, about: SeenTask, most: int) -> Any:
    """Return the samples in a body as ``predict`` takes them: an array (n, *shape), or texts."""
    samples = _from_npy(body) if body.startswith(NPY) else _from_json(body, about)
    if len(samples) > most:
        raise DataError(f"the request holds {counted(len(samples), 'sample')}; send at most {most} at once")
    return samples


def _from_json(body: bytes, about: SeenTask) -> Any:
    try:
        found = from_json(body, allow_inf_nan=False)
    except (ValueError, RecursionError) as error:
        raise DataError(f"the body is not JSON: {error}; {_WANTED}") from error
    if not isinstance(found, dict) or not isinstance(found.get("samples"), list):
        raise DataError(f"the JSON has no list 'samples'; {_WANTED}")
    if len(found) > 1:
        others = ", ".join(shown(name) for name in found if name != "samples")
        raise DataError(f"the JSON holds {others} besides 'samples'; {_WANTED}")
    samples: list[Any] = found["samples"]
    if not samples or (about.padding is not None and isinstance(samples[0], str)):
        return samples
    # With its type said, an array takes no more memory than its numbers do; numpy would widen all of them to a string.
    if body.count(b'"') > 2:
        of_numbers = "samples hold something in quotes, but the task was learnt from numbers; give numbers"
        raise DataError(of_numbers if about.padding is None else _OF_TEXTS)
    try:
        values = np.array(samples, dtype=np.float64)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"samples are not an array ({reason}); give numbers, in rows of equal length") from error
    if about.in_bytes:
        return _whole(values, 255, _OF_BYTES).astype(np.uint8)
    if about.padding is not None:
        return _whole(values, 2**31 - 1, _OF_TEXTS).astype(np.int64)
    return values


def _whole(values: NDArray[Any], most: int, wanted: str) -> NDArray[Any]:
    if not ((values >= 0) & (values <= most) & (values == np.floor(values))).all():
        raise DataError(wanted)
    return values


def _from_npy(body: bytes) -> NDArray[Any]:
    stream = io.BytesIO(body)
    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, by_columns, dtype = read(stream)
    except Exception as error:  # numpy's parser of headers has many ways to fail
        raise DataError(f"the .npy header cannot be read: {' '.join(str(error).split())}; {_WANTED}") from error
    if dtype.kind not in "fiub":  # Python objects among them, which are pickled
        raise DataError(f"the .npy file holds {shown(dtype.str)}, not numbers; convert them to float32 or uint8")
    start, wanted = stream.tell(), math.prod(shape) * dtype.itemsize
    if not shape:
        raise DataError("the .npy file holds a single number; give an array (n, …) of samples")
    if min(shape) < 0 or len(body) - start != wanted:
        raise DataError(
            f"the .npy file says that it holds an array of shape {shape} in {wanted} bytes, and has {len(body) - start}"
        )
    return np.frombuffer(body, dtype, offset=start).reshape(shape, order="F" if by_columns else "C")

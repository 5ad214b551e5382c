"""Values for other machines, such as the tasks of a run, whose large arrays are sent apart from the rest.

Runs of many seeds have tasks that are made of the same samples. Sent apart, an array is sent to a machine once.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LARGE = 1 << 16  # bytes


@dataclass(frozen=True)
class Packed:
    """A value in two parts.

    rest   the value, pickled, without its large arrays
    large  references to these
    """

    rest: bytes
    large: list[Any]


class ArrayStore:
    """Puts large arrays where other machines can get them, each of them once.

    put  takes an array, and returns a reference to it
    """

    def __init__(self, put: Callable[[NDArray[Any]], Any], pickler: type[Any] = pickle.Pickler) -> None:
        self._put, self._pickler = put, pickler
        self._kept: dict[tuple[object, ...], tuple[Any, Any]] = {}  # where it is → it, so that it stays there

    def pack(self, value: Any) -> Packed:
        """Return a value, whose arrays and tensors nobody changes any more, in two parts."""
        large: list[Any] = []

        def place_of(found: Any) -> tuple[int, str] | None:
            array = found.numpy() if _is_host_tensor(found) else found
            if type(array) is not np.ndarray or array.dtype.hasobject or array.nbytes < LARGE:
                return None
            large.append(self._reference(array))
            return len(large) - 1, "tensor" if array is not found else "copy" if array.flags.writeable else "shared"

        file = io.BytesIO()
        pickler = self._pickler(file)
        pickler.persistent_id = place_of
        pickler.dump(value)
        return Packed(file.getvalue(), large)

    def _reference(self, array: NDArray[Any]) -> Any:
        key = (array.__array_interface__["data"][0], array.dtype, array.shape, array.strides)
        if key not in self._kept:
            self._kept[key] = array, self._put(array)
        return self._kept[key][1]


def unpack(packed: Packed, get: Callable[[list[Any]], Sequence[NDArray[Any]]]) -> Any:
    """Return a value. What could be written to before is a copy of what all on this machine share.

    get  takes references, and returns their arrays
    """
    arrays = get(packed.large)

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, pid: Any) -> Any:
            place, kind = pid
            if kind == "tensor":
                return torch.tensor(arrays[place])
            return arrays[place] if kind == "shared" else arrays[place].copy()

    return Unpickler(io.BytesIO(packed.rest)).load()


def _is_host_tensor(found: Any) -> bool:
    return (
        type(found) is Tensor
        and found.device.type == "cpu"
        and found.layout == torch.strided
        and found.dtype != torch.bfloat16
        and not found.requires_grad
    )

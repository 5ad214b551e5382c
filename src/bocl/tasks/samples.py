"""Labelled samples on their way into tasks, and every check on samples and labels that a user gives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bocl.checks import exceeds_memory
from bocl.errors import DataError
from bocl.tasks.task import Split, Task
from bocl.wording import counted, shown

# The types that numpy has, and bfloat16, which is turned into float32.
_TENSOR_TYPES = {
    torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64,
    torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.complex64, torch.complex128,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Samples:
    """Valid labelled samples.

    inputs  (n, *shape)  uint8 or finite float32; shape is (d,) or (channels, height, width)
    labels  (n,)         int64, none negative
    """

    inputs: NDArray[Any]
    labels: NDArray[np.int64]


def checked_samples(inputs: Any, labels: Any, where: str) -> Samples:
    """Turn a user's arrays or tensors into Samples; ``where`` is their name in messages: ``tasks[2]``."""
    checked_inputs = _checked_inputs(inputs, where)
    return Samples(checked_inputs, _checked_labels(labels, len(checked_inputs), where))


def check_classes(labels: NDArray[np.int64], where: str, least: int) -> None:
    """Refuse labels other than 0 … C-1 with each at least ``least`` times."""
    largest = int(labels.max())
    if largest >= len(labels):  # counting up to it could be costly
        raise DataError(
            f"{where}: label {largest} with only {counted(len(labels), 'sample')}, so there is an empty class; number "
            "the classes 0, 1, 2 … without gaps, for instance with numpy.unique(y, return_inverse=True)"
        )
    sizes = np.bincount(labels)
    if len(sizes) < 2:
        raise DataError(f"{where}: all labels are 0; a task needs two classes or more, labelled 0 and 1")
    missing = np.flatnonzero(sizes == 0)
    if len(missing):
        raise DataError(
            f"{where}: empty class {_listed(missing)}: the largest label is {largest}, but these labels "
            "have no training sample; number the classes 0, 1, 2 … without gaps"
        )
    rare = int(sizes.argmin())
    if sizes[rare] < least:
        raise DataError(
            f"{where}: class {rare} has {counted(int(sizes[rare]), 'sample')}, too few to split: it needs {least}, one "
            "for each part; add samples, merge or leave out the class, or bring your own test set"
        )


def make_task(
    name: str, index: int, train: Samples, validation: Samples, mean: tuple[float, ...], std: tuple[float, ...]
) -> Task:
    """Build a Task on its own copies of the samples; every class must be in the training part."""
    classes = int(train.labels.max()) + 1
    return Task(name, index, classes, make_split(train, mean, std), make_split(validation, mean, std))


def make_split(samples: Samples, mean: tuple[float, ...], std: tuple[float, ...]) -> Split:
    """Build a Split on its own copy of the samples."""
    raw, labels = (torch.from_numpy(np.array(array, order="C")) for array in (samples.inputs, samples.labels))
    return Split(raw, labels, mean, std)


def check_test(samples: Samples, train: Samples, where: str) -> None:
    """Refuse test samples on which a network trained on ``train`` cannot be scored."""
    check_alike(samples, train, where, "the training samples")
    largest, known = int(samples.labels.max()), int(train.labels.max())
    if largest > known:
        raise DataError(
            f"{where}: label {largest}, but the training labels end at {known}; remove these samples "
            "or add the class to the training samples"
        )


def check_alike(samples: Samples, others: Samples, where: str, named: str) -> None:
    """Refuse samples whose shape or type differs from that of ``others``, which messages call ``named``."""
    if samples.inputs.shape[1:] != others.inputs.shape[1:]:
        raise DataError(
            f"{where}: samples of shape {samples.inputs.shape[1:]}, but {named} have {others.inputs.shape[1:]}; "
            "bring them to the same shape, because one network learns them all"
        )
    if samples.inputs.dtype != others.inputs.dtype:
        raise DataError(
            f"{where}: {samples.inputs.dtype} samples, but {named} are {others.inputs.dtype}; "
            "bring them to the same type, because bytes are scaled and floats are not"
        )


def as_array(values: Any, where: str) -> NDArray[Any]:
    """Turn a user's values into an array of any type; ``where`` is their name in messages: ``tasks[2]: samples``."""
    if isinstance(values, Tensor):
        check_tensor(values, where)
        values = values.detach().cpu()
        # numpy has no bfloat16
        return np.asarray((values.float() if values.dtype == torch.bfloat16 else values).numpy())
    if isinstance(values, np.ma.MaskedArray):
        raise DataError(f"{where} are a masked array; fill in what is masked first, for instance with X.filled(0)")
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{where} are not an array ({reason}); give rows of equal length") from error


def check_size(shape: tuple[int, ...], where: str) -> None:
    """Refuse samples whose copy in float32 exceeds the memory; a view of that shape may itself be small."""
    if excess := exceeds_memory(4 * math.prod(shape)):
        raise DataError(f"{where} of shape {tuple(shape)} take {excess}; give fewer of them")


def check_tensor(tensor: Tensor, where: str) -> None:
    """Refuse tensors without plain values: sparse ones, those on the meta device, those of unusual types."""
    if tensor.layout != torch.strided or tensor.is_nested:
        raise DataError(f"{where} are a sparse or nested tensor ({tensor.layout}); give X.to_dense()")
    if tensor.device.type == "meta":
        raise DataError(f"{where} are a tensor on the meta device, which holds no values; give one on the cpu")
    if tensor.dtype not in _TENSOR_TYPES:
        raise DataError(f"{where} are a tensor of type {tensor.dtype}; convert it with X.float()")


def _checked_inputs(inputs: Any, where: str) -> NDArray[Any]:
    array = as_array(inputs, f"{where}: samples")
    if array.dtype.kind not in "fiub":
        raise DataError(f"{where}: samples of type {array.dtype} are not numbers; convert them to float32 or uint8")
    if array.ndim not in (2, 4):
        hint = "; n images of height x width without channels become such with X[:, None]" if array.ndim == 3 else ""
        raise DataError(
            f"{where}: samples of shape {array.shape} have {array.ndim} dimensions; give vectors (n, d) or "
            f"images (n, channels, height, width){hint}"
        )
    if array.size == 0:
        raise DataError(f"{where}: no samples (shape {array.shape}); leave the task out or give it samples")
    check_size(array.shape, f"{where}: samples")
    if array.dtype == np.uint8:
        return array
    with np.errstate(over="ignore"):  # what overflows becomes inf, which the next check reports
        floats = array.astype(np.float32)
    finite = np.isfinite(floats)
    if not finite.all():
        row = int(np.argwhere(~finite)[0, 0])
        value = array[row][~finite[row]].flat[0]
        count = int((~finite).sum())
        raise DataError(
            f"{where}: sample {row} holds {value}, not a finite float32 number ({count} such values in all); "
            "remove these samples or fill in the values"
        )
    return floats


def _checked_labels(labels: Any, samples: int, where: str) -> NDArray[np.int64]:
    array = as_array(labels, f"{where}: labels")
    if array.ndim != 1:
        raise DataError(f"{where}: labels of shape {array.shape}; give one integer per sample, shape (n,)")
    if array.size == 0:
        raise DataError(f"{where}: no labels; give one integer per sample")
    if len(array) != samples:
        raise DataError(
            f"{where}: {samples} samples but {len(array)} labels; give one label for each sample, in the same order"
        )
    if array.dtype.kind not in "iu":
        raise DataError(
            f"{where}: labels of type {array.dtype} (the first is {shown(array[0])}) are not integers; number the "
            "classes 0, 1, 2 … and convert with y.astype('int64')"
        )
    smallest, largest = int(array.min()), int(array.max())
    if smallest < 0:
        raise DataError(f"{where}: label {smallest} is negative; number the classes 0, 1, 2 …")
    if largest >= 2**31:
        raise DataError(f"{where}: label {largest} is too large for a class; number the classes 0, 1, 2 …")
    return array.astype(np.int64)


def _listed(labels: NDArray[np.int64]) -> str:
    shown = ", ".join(str(label) for label in labels[:5])
    return shown if len(labels) <= 5 else f"{shown} and {len(labels) - 5} more"

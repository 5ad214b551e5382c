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
from bocl.tasks.labels import Label, kinds_of, labels_of, numbered
from bocl.tasks.task import Split, Task
from bocl.tasks.texts import Tokens
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

    inputs   (n, *shape)  uint8 or finite float32; shape is (d,), or channels and one to three dimensions
    labels   (n,)         int64, none negative
    padding               of token ids, which are int32: the id that stands for no token
    """

    inputs: NDArray[Any]
    labels: NDArray[np.int64]
    padding: int | None = None


def checked_samples(
    inputs: Any, labels: Any, where: str, kinds: tuple[Label, ...] = ()
) -> tuple[Samples, tuple[Label, ...]]:
    """Turn a user's arrays or tensors into Samples, and return what its classes are called.

    where  their name in messages: ``tasks[2]``
    kinds  what the classes of the training samples are called; if left out, these are training samples
    """
    tokens = isinstance(inputs, Tokens)
    checked_inputs = inputs.ids if tokens else _checked_inputs(inputs, where)
    if len(checked_inputs) == 0:
        raise DataError(f"{where}: no texts; leave the task out or give it texts")
    names = checked_labels(labels, len(checked_inputs), where)
    kinds = kinds or kinds_of(names)
    return Samples(checked_inputs, numbered(names, kinds, where), inputs.padding if tokens else None), kinds


def check_classes(samples: Samples, kinds: tuple[Label, ...], where: str, least: int) -> None:
    """Refuse training samples of fewer than two classes, or with fewer than ``least`` of one class."""
    if len(kinds) < 2:
        raise DataError(f"{where}: all labels are {shown(kinds[0])}; a task needs two classes or more")
    sizes = np.bincount(samples.labels)
    rare = int(sizes.argmin())
    if sizes[rare] < least:
        many = " (are the labels numbers to predict? bocl tells classes apart)" if 2 * len(kinds) > sizes.sum() else ""
        way_out = "add samples, merge or leave out the class, or bring your own test set"
        raise DataError(
            f"{where}: class {shown(kinds[rare])} has {counted(int(sizes[rare]), 'sample')}, too few to split: it "
            f"needs {least}, one for each part{many}; {way_out}"
        )


def make_task(
    name: str,
    index: int,
    train: Samples,
    validation: Samples,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    labels: tuple[Label, ...] = (),
    class_weights: tuple[float, ...] = (),
) -> Task:
    """Build a Task on its own copies of the samples; every class must be in the training part."""
    classes = int(train.labels.max()) + 1
    shown, held_out = (make_split(samples, mean, std) for samples in (train, validation))
    return Task(name, index, classes, shown, held_out, labels, class_weights=class_weights)


def make_split(samples: Samples, mean: tuple[float, ...], std: tuple[float, ...]) -> Split:
    """Build a Split on its own copy of the samples."""
    raw, labels = (torch.from_numpy(np.array(array, order="C")) for array in (samples.inputs, samples.labels))
    return Split(raw, labels, mean, std, samples.padding)


def check_alike(inputs: NDArray[Any], others: NDArray[Any], where: str, named: str) -> None:
    """Refuse samples whose shape or type differs from that of ``others``, which messages call ``named``."""
    if inputs.shape[1:] != others.shape[1:]:
        raise DataError(
            f"{where}: samples of shape {inputs.shape[1:]}, but {named} have {others.shape[1:]}; "
            "bring them to the same shape, because one network learns them all"
        )
    if inputs.dtype != others.dtype:
        raise DataError(
            f"{where}: {inputs.dtype} samples, but {named} are {others.dtype}; "
            "bring them to the same type, because bytes are scaled and floats are not"
        )


def as_array(values: Any, where: str) -> NDArray[Any]:
    """Turn a user's values into an array of any type; ``where`` is their name in messages: ``tasks[2]: samples``."""
    if isinstance(values, Tensor):
        check_tensor(values, where)
        values = values.detach().cpu()
        # numpy has no bfloat16
        return np.asarray((values.float() if values.dtype == torch.bfloat16 else values).numpy())
    if hasattr(values, "toarray"):  # of scipy; numpy would take the whole matrix for one object
        raise DataError(f"{where} are a sparse matrix; give X.toarray()")
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
    if not 2 <= array.ndim <= 5:
        raise DataError(
            f"{where}: samples of shape {array.shape} have {counted(array.ndim, 'dimension')}; give vectors (n, d), "
            "series (n, channels, time), images (n, channels, height, width) or volumes (n, channels, depth, height, "
            "width)"
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


def checked_labels(labels: Any, samples: int, where: str) -> list[Label]:
    """Turn a user's labels, one for each of so many samples, into Python objects."""
    if isinstance(labels, list) and any(isinstance(label, tuple | str) for label in labels):
        # numpy would make two dimensions of a list of tuples, and strings of numbers next to strings.
        array = np.empty(len(labels), dtype=object)
        array[:] = labels
    else:
        array = as_array(labels, f"{where}: labels")
    if array.ndim != 1:
        raise DataError(f"{where}: labels of shape {array.shape}; give one label per sample, shape (n,)")
    if len(array) != samples:
        raise DataError(
            f"{where}: {samples} samples but {len(array)} labels; give one label for each sample, in the same order"
        )
    return labels_of(array, where)

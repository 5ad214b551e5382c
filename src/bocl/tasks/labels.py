"""What people call their classes: any labels → numbers 0 … C-1, and back.

A label is a string, a number, a truth value, or a tuple of these; in JSON a tuple is a list.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bocl.errors import DataError
from bocl.wording import shown

Label = str | int | float | bool | tuple["Label", ...]


def labels_of(array: NDArray[Any], where: str) -> list[Label]:
    """Return an array of labels as Python objects; ``where`` is their name in messages: ``tasks[2]``."""
    found = [label.item() if isinstance(label, np.generic) else label for label in array.tolist()]
    for row, label in enumerate(found):
        if not _is_label(label):
            raise DataError(
                f"{where}: the label of sample {row} is {shown(label)}; a label is a string, a number or a tuple of "
                "these: fill it in, leave the sample out, or convert it with str()"
            )
    return found


def _is_label(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_label, value))
    return isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))


def kinds_of(labels: Sequence[Label]) -> tuple[Label, ...]:
    """Return the different labels in order: numbers by value, then strings, then tuples."""
    return tuple(sorted(set(labels), key=_order))


def _order(label: Label) -> tuple[Any, ...]:
    if isinstance(label, str):
        return (1, label)
    return (2, tuple(map(_order, label))) if isinstance(label, tuple) else (0, label)


def numbered(labels: Sequence[Label], kinds: Sequence[Label], where: str) -> NDArray[np.int64]:
    """Return the number of every label among ``kinds``; refuse one that is not there."""
    numbers = {kind: number for number, kind in enumerate(kinds)}
    for label in labels:
        if label not in numbers:
            raise DataError(
                f"{where}: no training sample has the label {shown(label)}; remove these samples, or add the class to "
                "the training samples"
            )
    return np.array([numbers[label] for label in labels], dtype=np.int64)


def label_from_json(value: Any) -> Label:
    """Return a label that was stored as JSON, or raise ValueError."""
    label = tuple(map(label_from_json, value)) if isinstance(value, list | tuple) else value
    if not _is_label(label):
        raise ValueError(f"{shown(value)} is not a label")
    return label

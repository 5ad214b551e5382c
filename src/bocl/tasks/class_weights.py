"""How much the samples of each class count in the training loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bocl.checks import NonNegative, checked
from bocl.errors import ConfigError, DataError
from bocl.tasks.labels import Label
from bocl.wording import shown

ClassWeight = str | Mapping[Any, float] | None  # "balanced", or {label: weight}


def class_weights_of(
    given: ClassWeight, labels: NDArray[np.int64], kinds: tuple[Label, ...], where: str
) -> tuple[float, ...]:
    """Return a weight for each class of the training samples, of mean 1 over them; none where all count the same.

    w_c ∝ 1 / n_c for "balanced". Their mean is 1 so that they do not change what a learning rate means.
    """
    if given is None:
        return ()
    counts = np.bincount(labels, minlength=len(kinds))
    weights = 1 / counts if isinstance(given, str) and given == "balanced" else _chosen(given, kinds, where)
    total = float(weights @ counts)
    if total == 0:
        raise DataError(f"{where}: class_weight is 0 for every class; give one of them a weight above 0")
    return tuple((weights * (len(labels) / total)).tolist())


def _chosen(given: object, kinds: tuple[Label, ...], where: str) -> NDArray[np.float64]:
    if not isinstance(given, Mapping):
        raise DataError(f'{where}: class_weight is {shown(given)}; give "balanced" or a weight for each label')
    left_out = [kind for kind in kinds if kind not in given]
    unknown = [label for label in given if label not in kinds]
    if left_out and unknown:  # a label of another task is no mistake, but a misspelt one leaves out what it stands for
        raise DataError(
            f"{where}: class_weight has no weight for {shown(left_out[0])}, and one for {shown(unknown[0])}, which no "
            "sample has; give one for each label"
        )
    try:
        return np.array([checked("weight", given.get(kind, 1.0), NonNegative) for kind in kinds], dtype=np.float64)
    except ConfigError as error:
        raise DataError(f"{where}: class_weight: {error}") from error

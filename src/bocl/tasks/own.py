"""One task of a user's own samples: checked, cut into parts and scaled."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bocl.checks import Number
from bocl.errors import DataWarning
from bocl.seeding import seed_for
from bocl.tasks.class_weights import ClassWeight, class_weights_of
from bocl.tasks.images import channel_statistics
from bocl.tasks.partition import cut
from bocl.tasks.samples import Samples, check_alike, check_classes, checked_samples, make_split, make_task
from bocl.tasks.task import Split, Task

Pair = tuple[Any, Any]
PARTS = ("train", "validation", "test")
PartFraction = Annotated[Number, Field(gt=0, lt=1)]
WIDE = 100.0  # how far features may be from 0 ± 1 before a network learns badly from them


@dataclass(frozen=True, eq=False)
class Parts:
    """What a user gives for one task, each a pair (X, y); a part that is left out is cut from the training samples."""

    train: Pair
    validation: Pair | None = None
    test: Pair | None = None


@dataclass(frozen=True)
class Cuts:
    """How the samples of a task are cut into parts and scaled.

    validation    fraction of what is left without the test part that is set aside to make choices by
    test          fraction that is set aside for testing; 0 for no test part
    standardise   whether floats are scaled by their mean and standard deviation in the training part, as bytes are
    seed          decides which samples go where
    class_weight  how much samples count in training: "balanced" for classes that count the same, {label: weight}, or
                  None for samples that do
    """

    validation: float = 0.1
    test: float = 0.2
    standardise: bool = False
    seed: int = 0
    class_weight: ClassWeight = None


def make_own_task(name: str, index: int, parts: Parts, cuts: Cuts, where: Callable[[str], str]) -> tuple[Task, Split]:
    """Return a task and its sealed test samples; ``where`` names a part in messages: train → ``tasks[2]``."""
    samples, kinds = checked_samples(*parts.train, where("train"))
    least = 1 + (parts.validation is None)
    check_classes(samples, kinds, where("train"), least=least + (parts.test is None and cuts.test > 0))
    if parts.test is not None:
        test = _other_part(parts.test, samples, kinds, where("test"))
    elif cuts.test > 0:
        samples, test = cut(samples, _share(cuts.test, samples), seed_for(cuts.seed, "test", index), leave=least)
    else:
        test = replace(samples, inputs=samples.inputs[:0], labels=samples.labels[:0])
    if parts.validation is None:
        seed = seed_for(cuts.seed, "validation", index)
        train, validation = cut(samples, _share(cuts.validation, samples), seed)
    else:
        train, validation = samples, _other_part(parts.validation, samples, kinds, where("validation"))
    mean, std = scale_of(train.inputs, standardise=cuts.standardise)
    if train.inputs.dtype == np.float32 and not cuts.standardise:
        _warn_of_bad_scale(train.inputs, where("train"))
    weights = class_weights_of(cuts.class_weight, train.labels, kinds, where("train"))
    return make_task(name, index, train, validation, mean, std, kinds, weights), make_split(test, mean, std)


def _other_part(pair: Pair, train: Samples, kinds: tuple[Any, ...], where: str) -> Samples:
    samples, _ = checked_samples(*pair, where, kinds)
    check_alike(samples.inputs, train.inputs, where, "the training samples")
    return samples


def _share(fraction: float, samples: Samples) -> int:
    return round(fraction * len(samples.labels))


def scale_of(inputs: NDArray[Any], *, standardise: bool) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of training samples: per channel, and per feature of float vectors."""
    if inputs.dtype == np.uint8:
        # A vector of bytes is one channel: a flattened image has pixels that hardly change, and divided by their own
        # deviation they would become the largest.
        channels = 1 if inputs.ndim == 2 else inputs.shape[1]
        return channel_statistics(inputs.reshape(len(inputs), channels, 1, -1))
    if not standardise or inputs.dtype == np.int32:  # token ids are no quantities
        return (0.0,), (1.0,)
    mean, std = _statistics(inputs)
    return tuple(mean.tolist()), tuple(np.where(std > 0, std, 1.0).tolist())


def _statistics(inputs: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and standard deviation of float samples, per feature of vectors or channel of anything else."""
    axes = (0, *range(2, inputs.ndim))
    return inputs.mean(axis=axes, dtype=np.float64), inputs.std(axis=axes, dtype=np.float64)


def _warn_of_bad_scale(inputs: NDArray[Any], where: str) -> None:
    mean, std = _statistics(inputs)
    size = np.hypot(mean, std)
    if size.max() > WIDE or (size.max() > 0 and size.max() < 1 / WIDE):
        worst = int(size.argmax())
        which = "feature" if inputs.ndim == 2 else "channel"
        warnings.warn(
            f"{where}: {which} {worst} is {mean[worst]:.3g} ± {std[worst]:.2g}, and networks learn best from numbers "
            "about 0 ± 1; pass standardise=True (stream.standardise, --standardise), or scale the samples yourself",
            DataWarning,
            stacklevel=4,
        )

"""Naming the task of samples that come without one: the settings, the answer, and what is kept and saved for it.

What is kept is a ``Discriminant`` over a map of the samples that never changes. Every sample is mapped in the scale of
the first task: means of different tasks are only comparable in one scale, and a scale of each task's own would hide
what tells them apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isqrt, prod
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from bocl.checks import PositiveInt, section
from bocl.errors import ConfigError, NetworkError
from bocl.methods.discriminant import ClassSums, Discriminant
from bocl.methods.fixed_map import filtered, filters_and_places, projected
from bocl.methods.seen import SeenTask
from bocl.networks.by_task import part_tensors

GUESS = "guess/"  # begins the saved names of what tasks are guessed by
SCATTER = "scatter"
OFF = "none"
MapKind = Literal["inputs", "filters", "features"]


@section("guess")
@dataclass(frozen=True)
class GuessSettings:
    """How a learner guesses the task of samples that come without one.

    map   what of a sample the task is guessed from: its `inputs`; the answers of fixed random `filters` to an image,
          series or volume; the `features` that a frozen pretrained network makes of it. `auto`: features where there is
          such a network, inputs of vectors and where there are no more than ``size``, else filters. `none`: tasks are
          not guessed, and nothing is kept for it
    size  most numbers that a sample is turned into. So many filters are drawn, and of more inputs or features so many
          fixed random sums are taken. For each class as many numbers are kept, and once half their square
    """

    map: Literal["none", "auto", "inputs", "filters", "features"] = "none"
    size: Annotated[PositiveInt, Field(le=4096)] = 576


@dataclass(frozen=True, eq=False)
class TaskGuess:
    """The tasks that samples seem to be of.

    tasks          (n,) numbers, from 0
    names          (n,) what these tasks are called
    probabilities  (n, tasks) of every task learnt. They rank tasks; they are surer of themselves than they are right
    """

    tasks: Tensor
    names: tuple[str, ...]
    probabilities: Tensor


def map_kind(settings: GuessSettings, first: SeenTask, *, features: bool, method: str) -> MapKind:
    """Return the map of a learner's samples; refuse one that they, or the learner, cannot have.

    features  whether the learner keeps a frozen pretrained network
    """
    wanted = settings.map
    in_space = 2 <= len(first.shape) <= 4
    if wanted == "auto" and features:
        wanted = "features"
    elif wanted == "auto" and first.padding is None:
        wanted = "filters" if in_space and prod(first.shape) > settings.size else "inputs"
    if wanted == "features" and not features:
        raise ConfigError(
            f"guess.map is 'features', and method {method} keeps no frozen pretrained network here; take a pretrained "
            "network that grows, or guess.map = 'auto'"
        )
    if wanted != "features" and first.padding is not None:
        raise ConfigError(
            f"guess.map is '{settings.map}', but tasks of texts are told apart by the features of a frozen pretrained "
            f"network, and method {method} keeps none here; take another method, or guess.map = 'none'"
        )
    if wanted == "filters" and not in_space:
        raise ConfigError(
            f"guess.map is 'filters', and samples of shape {first.shape} are no images, series or volumes; take "
            "guess.map = 'inputs'"
        )
    return wanted  # type: ignore[return-value]


def mapped(kind: MapKind, x: Tensor, settings: GuessSettings, seed: int) -> Tensor:
    """Return (n, d) of inputs x (n, *shape), or of the features (n, C) that a frozen network made of them."""
    return (filtered if kind == "filters" else projected)(x, settings.size, seed)


def guessed(log_densities: Tensor, names: Sequence[str], *, together: bool) -> TaskGuess:
    """Return the likeliest tasks of samples, given log p(sample | task) (n, tasks).

    together  whether all samples are of one task: log p(all | task) is the sum over them
    """
    if together:
        log_densities = log_densities.sum(0, keepdim=True).expand_as(log_densities)
    tasks = log_densities.argmax(1)
    return TaskGuess(tasks, tuple(names[task] for task in tasks.tolist()), log_densities.softmax(1))


def stored(discriminant: Discriminant | None, first: int = 0) -> dict[str, Tensor]:
    """Return what is saved: the sums of the tasks from number ``first`` on, and the scatter of all."""
    if discriminant is None:
        return {}
    kept = {SCATTER: discriminant.scatter}
    for number, task in enumerate(discriminant.tasks[first:], first):
        kept |= {f"{number}/{name}": tensor for name, tensor in of_task(task).items()}
    return kept


def of_task(task: ClassSums) -> dict[str, Tensor]:
    """Return what is kept of one task by name."""
    return {"sums": task.sums, "counts": task.counts}


def restored(tensors: Mapping[str, Tensor], tasks: int, device: torch.device) -> Discriminant | None:
    """Undo ``stored``."""
    if not tasks or not tensors:
        return None
    by_task = {name: tensor.to(device) for name, tensor in tensors.items() if name != SCATTER}
    sums = tuple(ClassSums(part["sums"], part["counts"]) for part in part_tensors(by_task, tasks))
    return Discriminant(sums, tensors[SCATTER].to(device))


def check_stored(tensors: Mapping[str, Tensor], seen: Sequence[SeenTask], kind: MapKind | None, size: int) -> None:
    """Refuse saved tensors that are not what is kept after these tasks; None of a map: nothing is kept."""
    parts = [f"{task}/{name}" for task in range(len(seen)) for name in ("sums", "counts")]
    wanted = {*parts, SCATTER} if kind is not None and seen else set()
    for name in sorted(wanted ^ tensors.keys()):
        raise NetworkError(f"tensor '{GUESS}{name}' {'is missing' if name in wanted else 'belongs to nothing'}")
    if not wanted:
        return
    d = (isqrt(8 * tensors[SCATTER].numel() + 1) - 1) // 2
    shapes: dict[str, tuple[int, ...]] = {SCATTER: (d * (d + 1) // 2,)}
    for task, entry in enumerate(seen):
        shapes |= {f"{task}/sums": (entry.classes, d), f"{task}/counts": (entry.classes,)}
    expected = map_size(kind, seen[0].shape, size)
    for name, tensor in tensors.items():
        sound = tensor.shape == shapes[name] and tensor.dtype == torch.float64 and bool(tensor.isfinite().all())
        sound = sound and not (name.endswith("counts") and bool((tensor < 1).any()))
        sound = sound and not (name == SCATTER and bool((tensor[_diagonal(d)] < 0).any()))
        if not sound or expected not in (None, d):
            raise NetworkError(f"tensor '{GUESS}{name}' holds what cannot have been added up over these tasks")


def map_size(kind: MapKind | None, shape: tuple[int, ...], size: int) -> int | None:
    """Return into how many numbers a map turns samples of this shape; None where a network decides."""
    if kind == "filters":
        return prod(filters_and_places(shape, size))
    return min(prod(shape), size) if kind == "inputs" else None


def _diagonal(d: int) -> Tensor:
    """Return the places of the diagonal in a lower triangle: row r ends at r (r + 3) / 2."""
    row = torch.arange(d)
    return row * (row + 3) // 2

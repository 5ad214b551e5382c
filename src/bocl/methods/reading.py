"""What a task may read of earlier ones: all, the first, the one whose features serve it best, or nothing.

To read nothing is to have a network of its own, or to grow from the pretrained base alone where there is one.

A linear probe finds that one: ridge regression from the features before a task's head to the labels, one column per
class. It is the task with the least error on validation samples,

    ‖F W - Y‖²,  W = (F'F + λ n I)⁻¹ F'Y        F (n, C) standardised, Y (n, classes) of ones and zeros, centred
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bocl.networks.compact import CompactNetwork
from bocl.networks.growing import GrowingNetwork
from bocl.networks.low_rank.network import TaskModule
from bocl.records.record import ReadsKind
from bocl.search.problem import IntArray
from bocl.seeding import seed_for
from bocl.training.batches import DeviceSplit, DeviceTask
from bocl.training.precision import repeatable_products
from bocl.widths import Widths

MOST_PROBED = 32  # tasks: the first and the latest, so that a late task takes no longer than an early one
PROBE_SAMPLES = 512  # of either split
RIDGE = 1e-2  # λ
MOST_TO_READ = 0.5  # of a network of its own: a choice whose head and gates alone take more leaves no room to grow


@dataclass(frozen=True)
class Choice:
    """One way to read earlier tasks: its kind, and their numbers."""

    kind: ReadsKind
    reads: tuple[int, ...]


def reads_of(network: GrowingNetwork) -> tuple[int, ...]:
    """Return the tasks that the next one reads where nothing is chosen: all, or of a pretrained network none."""
    found: dict[str, tuple[int, ...]] = {"own": (), "first": network.all_tasks[:1], "all": network.all_tasks}
    return found.get(network.settings.reads, () if network.pretrained else network.all_tasks)


def reading_choices(network: GrowingNetwork, data: DeviceTask) -> tuple[Choice, ...]:
    """Return what the next task may read; one way where the settings name it.

    A network of its own comes last, or the pretrained base alone first.
    """
    nothing: ReadsKind = "base" if network.pretrained else "own"
    settled, everything = network.settings.reads, network.all_tasks
    if settled == "own" or not everything:
        return (Choice(nothing, ()),)
    if settled != "choose":
        return (Choice(settled, reads_of(network)),)
    found = [Choice("base", ())] if network.pretrained else [Choice("first", everything[:1])]
    room = MOST_TO_READ * network.own_parameters(data.classes)

    def affordable(reads: tuple[int, ...]) -> bool:
        return int(network.space(data.classes, reads).count_all(network.graph.no_units)) <= room

    always = everything[: 0 if network.pretrained else 1]  # the first task can be read in another way
    lineages = {task: network.lineage(task) for task in everything[len(always) :]}
    useful = [task for task, reads in lineages.items() if any(network.widths(reads)) and affordable(reads)]
    if near := useful[len(always) - MOST_PROBED :]:
        best = nearest(network, data, [*always, *near])
        if best not in always:
            found.append(Choice("near", lineages[best]))
    if everything not in [choice.reads for choice in found] and any(network.widths()) and affordable(everything):
        found.append(Choice("all", everything))
    return tuple(found) if network.pretrained else (*found, Choice("own", ()))


def nearest(network: GrowingNetwork, data: DeviceTask, tasks: Sequence[int]) -> int:
    """Return which of some tasks has the features that serve this one best."""
    with torch.no_grad(), repeatable_products("float32"):
        train, validation = (_some(split, data.index) for split in (data.train, data.validation))
        errors = [_probe_error(network.tasks[task], train, validation, data.classes) for task in tasks]
    return tasks[int(np.argmin(errors))]


def _some(split: DeviceSplit, task: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed_for(task, "probe"))
    chosen = torch.randperm(len(split), generator=generator)[:PROBE_SAMPLES]
    return split.rows(chosen.sort().values.to(split.labels.device if split.feed is None else "cpu"))


def _probe_error(
    network: CompactNetwork | TaskModule, train: tuple[Tensor, Tensor], validation: tuple[Tensor, Tensor], classes: int
) -> float:
    """Return the mean squared error of a linear probe on the validation samples."""
    (features, labels), (others, true) = ((network.features(x).double().cpu(), y.cpu()) for x, y in (train, validation))
    centre, spread = features.mean(0), features.std(0, correction=0) + 1e-6
    features, others = (features - centre) / spread, (others - centre) / spread
    targets, wanted = (F.one_hot(y, classes).double() for y in (labels, true))
    level = targets.mean(0)
    gram = features.T @ features + RIDGE * len(features) * torch.eye(features.shape[1], dtype=torch.float64)
    weights = torch.linalg.solve(gram, features.T @ (targets - level))
    return float((others @ weights + level - wanted).square().mean())


class ReadingSpace:
    """The points that a search of one task may ask for: widths, and where there are several choices, one of them.

    Counts are exact for every choice.
    """

    def __init__(self, network: GrowingNetwork, classes: int, choices: Sequence[Choice]) -> None:
        self.choices = tuple(choices)
        self.spaces = [network.space(classes, choice.reads) for choice in choices]
        self.groups = len(network.graph.groups)
        #: as a ``Problem`` names them; the paper's own way, to read all, is no choice
        self.kinds: tuple[ReadsKind, ...] = tuple(choice.kind for choice in choices)
        if self.kinds == ("all",):
            self.kinds = ()

    def bounds(self, widths: Widths) -> Widths:
        """Return the bounds of points whose widths have these bounds."""
        return (*widths, len(self.kinds) - 1) if self.kinds else widths

    def point(self, widths: Widths, kind: ReadsKind) -> Widths:
        """Return a point."""
        return (*widths, self.kinds.index(kind)) if self.kinds else widths

    def parted(self, point: Widths) -> tuple[Widths, Choice]:
        """Return the widths and the choice of a point."""
        return (point[:-1], self.choices[point[-1]]) if self.kinds else (point, self.choices[0])

    def parameters(self, points: IntArray) -> IntArray:
        """Return (n,): what points (n, entries) would add."""
        counted = np.zeros(len(points), dtype=np.int64)
        for number, rows in self.by_choice(points):
            counted[rows] = self.spaces[number].count_all(points[rows, : self.groups])
        return counted

    def by_choice(self, points: IntArray) -> list[tuple[int, IntArray]]:
        """Return for every choice its number and the places (k,) of its points (n, entries)."""
        if not self.kinds:
            return [(0, np.arange(len(points)))]
        return [(number, np.flatnonzero(points[:, -1] == number)) for number in range(len(self.choices))]

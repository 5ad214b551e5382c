"""The network that grows: a list of growths, and one compact network per task.

Old tasks are never touched: a task's compact network is a copy made when it was committed, and growing
only appends to the list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bocl.errors import NetworkError
from bocl.networks.by_task import join_tensors, part_tensors
from bocl.networks.check import check_growths
from bocl.networks.compact import CompactNetwork, assemble
from bocl.networks.graph import Graph
from bocl.networks.growth import Growth, GrowthSettings, GrowthSpace, Shapes, count_tensors, initialise
from bocl.networks.stacked import Children
from bocl.settings import parse_value
from bocl.widths import Widths


class ExpandableNetwork:
    """A graph with the growths of the tasks learnt so far."""

    def __init__(
        self, graph: Graph, settings: GrowthSettings | None = None, device: torch.device | str = "cpu"
    ) -> None:
        self.graph = graph
        self.settings = settings or GrowthSettings()
        self.device = torch.device(device)
        self.growths: list[Growth] = []
        self.tasks: list[CompactNetwork] = []

    @property
    def frozen(self) -> CompactNetwork | None:
        """The network as the last task left it."""
        return self.tasks[-1] if self.tasks else None

    @property
    def widths(self) -> Widths:
        """Width of every group now."""
        return self.graph.total(growth.widths for growth in self.growths)

    def space(self, classes: int) -> GrowthSpace:
        """Return the growths that a next task of so many classes may choose from."""
        return GrowthSpace(self.graph, self.widths, classes, self.settings)

    def grow(
        self,
        widths: Sequence[Widths],
        classes: int,
        *,
        seeds: Sequence[int],
        pad_to: Widths | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Children:
        """Make one child per entry of ``widths``, ready to be trained together; the network stays as it is."""
        space, last = self.space(classes), self.growths[-1].tensors if self.growths else None
        growths = [
            initialise(space, z, last=last, seed=seed, dtype=dtype) for z, seed in zip(widths, seeds, strict=True)
        ]
        return Children(self.graph, self.frozen, growths, pad_to=pad_to, settings=self.settings, device=self.device)

    def candidate(self, growth: Growth) -> CompactNetwork:
        """Return the compact network that committing this growth would give."""
        return assemble(self.graph, self.frozen, growth)

    def commit(self, growth: Growth) -> None:
        """Make a trained growth part of the network, as its next task."""
        tensors = {name: tensor.detach().to(self.device, copy=True) for name, tensor in growth.tensors.items()}
        growth = Growth(growth.widths, growth.classes, tensors)
        self.tasks.append(self.candidate(growth))
        self.growths.append(growth)

    def drop_last(self) -> None:
        """Forget the last task."""
        del self.growths[-1], self.tasks[-1]

    def stored(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return what is saved: the widths and classes of every growth, and every tensor, ``TASK/NAME``."""
        growths = [{"widths": list(growth.widths), "classes": growth.classes} for growth in self.growths]
        return {"growths": growths}, join_tensors(growth.tensors for growth in self.growths)

    def stored_shapes(self, facts: Mapping[str, Any], classes: Sequence[int]) -> Shapes:
        """Return the shape of every saved tensor; refuse growths that do not fit the network."""
        entries = _growths(facts)
        if [entry.classes for entry in entries] != list(classes):
            raise NetworkError(
                f"facts.growths has {len(entries)} entries that are not those of the {len(classes)} tasks"
            )
        check_growths(self.graph, {f"facts.growths[{task}].widths": entry.widths for task, entry in enumerate(entries)})
        before, by_task = self.graph.no_units, []
        for entry in entries:
            by_task.append(GrowthSpace(self.graph, before, entry.classes, self.settings).shapes(entry.widths))
            before = self.graph.total([before, entry.widths])
        return join_tensors(by_task)

    def restore(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor], _classes: Sequence[int]) -> None:
        """Take back saved growths: each is committed again, in order."""
        entries = _growths(facts)
        self.growths, self.tasks = [], []
        for entry, part in zip(entries, part_tensors(tensors, len(entries)), strict=True):
            self.commit(Growth(entry.widths, entry.classes, part))

    def predict(self, x: Tensor, task: int) -> Tensor:
        """Return logits (n, classes of the task)."""
        with torch.no_grad():
            return self.tasks[task](x)

    def parameters(self) -> dict[str, int]:
        """Count what is stored, by part."""
        return count_tensors(*(growth.tensors for growth in self.growths))

    def parameters_by_task(self) -> list[dict[str, int]]:
        """Count what each task stored, by part: shared, heads, attention, norms."""
        return [count_tensors(growth.tensors) for growth in self.growths]


@dataclass(frozen=True)
class _SavedGrowth:
    """A growth without its tensors."""

    widths: Widths
    classes: int


def _growths(facts: Mapping[str, Any]) -> tuple[_SavedGrowth, ...]:
    entries: tuple[_SavedGrowth, ...] = parse_value(tuple[_SavedGrowth, ...], facts["growths"], "facts.growths")
    return entries

"""The network that grows: a list of growths, and one compact network per task.

Old tasks are never touched: a task's compact network is a copy made when it was committed, and growing
only appends to the list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bocl.errors import NetworkError
from bocl.networks.blocks import frozen_network, latest_norms
from bocl.networks.by_task import join_tensors, part_tensors
from bocl.networks.check import check_growths, check_reads
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
        self._joined: dict[tuple[int, ...], CompactNetwork] = {}  # frozen networks that are no task's own

    @property
    def all_tasks(self) -> tuple[int, ...]:
        """The numbers of all tasks."""
        return tuple(range(len(self.growths)))

    def frozen(self, reads: tuple[int, ...] | None = None) -> CompactNetwork | None:
        """Return the network that a next task grows from if it reads these tasks; all of them unless told."""
        reads = self.all_tasks if reads is None else reads
        if not reads:
            return None
        if self._is_one_task(reads):
            return self.tasks[reads[-1]]
        if reads not in self._joined:
            self._joined[reads] = frozen_network(self.graph, self.growths, reads)
        return self._joined[reads]

    def _is_one_task(self, reads: tuple[int, ...]) -> bool:
        """Whether tasks are just the last of them and what it reads."""
        return reads[:-1] == self.growths[reads[-1]].reads

    def widths(self, reads: tuple[int, ...] | None = None) -> Widths:
        """Return the width of every group over these tasks; over all of them unless told."""
        return self.graph.total(self.growths[task].widths for task in (self.all_tasks if reads is None else reads))

    def space(self, classes: int, reads: tuple[int, ...] | None = None) -> GrowthSpace:
        """Return the growths that a next task of so many classes may choose from if it reads these tasks."""
        return GrowthSpace(self.graph, self.widths(reads), classes, self.settings)

    def grow(
        self,
        widths: Sequence[Widths],
        classes: int,
        *,
        seeds: Sequence[int],
        pad_to: Widths | None = None,
        dtype: torch.dtype = torch.float32,
        reads: tuple[int, ...] | None = None,
    ) -> Children:
        """Make one child per entry of ``widths``, ready to be trained together; the network stays as it is.

        reads  the tasks whose units all of them read; all tasks unless told
        """
        reads = self.all_tasks if reads is None else reads
        space, last = self.space(classes, reads), self._norms(reads)
        growths = [
            initialise(space, z, last=last, reads=reads, seed=seed, dtype=dtype)
            for z, seed in zip(widths, seeds, strict=True)
        ]
        frozen = self.frozen(reads)
        return Children(self.graph, frozen, growths, pad_to=pad_to, settings=self.settings, device=self.device)

    def _norms(self, reads: tuple[int, ...]) -> Mapping[str, Tensor] | None:
        if not reads:
            return None
        if self._is_one_task(reads):
            return self.growths[reads[-1]].tensors
        return latest_norms(self.graph, self.growths, reads)

    def candidate(self, growth: Growth) -> CompactNetwork:
        """Return the compact network that committing this growth would give."""
        return assemble(self.graph, self.frozen(growth.reads), growth)

    def commit(self, growth: Growth) -> None:
        """Make a trained growth part of the network, as its next task."""
        tensors = {name: tensor.detach().to(self.device, copy=True) for name, tensor in growth.tensors.items()}
        growth = replace(growth, tensors=tensors)
        self.tasks.append(self.candidate(growth))
        self.growths.append(growth)
        self._joined = {}  # made for the children of one task

    def drop_last(self) -> None:
        """Forget the last task."""
        del self.growths[-1], self.tasks[-1]
        self._joined = {}

    def stored(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return what is saved: the widths, classes and reads of every growth, and every tensor, ``TASK/NAME``.

        A growth that reads all earlier tasks has no ``reads``, as in early files.
        """
        growths = [
            {"widths": list(growth.widths), "classes": growth.classes}
            | ({} if growth.reads == tuple(range(task)) else {"reads": list(growth.reads)})
            for task, growth in enumerate(self.growths)
        ]
        return {"growths": growths}, join_tensors(growth.tensors for growth in self.growths)

    def stored_shapes(self, facts: Mapping[str, Any], classes: Sequence[int]) -> Shapes:
        """Return the shape of every saved tensor; refuse growths that do not fit the network."""
        entries = _growths(facts)
        if [entry.classes for entry in entries] != list(classes):
            raise NetworkError(
                f"facts.growths has {len(entries)} entries that are not those of the {len(classes)} tasks"
            )
        check_growths(self.graph, {f"facts.growths[{task}].widths": entry.widths for task, entry in enumerate(entries)})
        check_reads([entry.reads for entry in entries])
        by_task = []
        for entry in entries:
            before = self.graph.total(entries[task].widths for task in entry.reads)
            by_task.append(GrowthSpace(self.graph, before, entry.classes, self.settings).shapes(entry.widths))
        return join_tensors(by_task)

    def restore(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor], _classes: Sequence[int]) -> None:
        """Take back saved growths: each is committed again, in order."""
        entries = _growths(facts)
        self.growths, self.tasks = [], []
        for entry, part in zip(entries, part_tensors(tensors, len(entries)), strict=True):
            self.commit(Growth(entry.widths, entry.classes, part, entry.reads))

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
    reads: tuple[int, ...]


def _growths(facts: Mapping[str, Any]) -> tuple[_SavedGrowth, ...]:
    listed = parse_value(list[dict[str, Any]], facts["growths"], "facts.growths")
    entries = [{"reads": list(range(task)), **entry} for task, entry in enumerate(listed)]
    found: tuple[_SavedGrowth, ...] = parse_value(tuple[_SavedGrowth, ...], entries, "facts.growths")
    return found

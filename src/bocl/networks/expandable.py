"""The network that grows: a list of growths, and one compact network per task.

Old tasks are never touched: a task's compact network is a copy made when it was committed, and growing
only appends to the list.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bocl.networks.compact import CompactNetwork, assemble
from bocl.networks.graph import Graph, Widths
from bocl.networks.growth import Growth, GrowthSettings, GrowthSpace, count_tensors, initialise
from bocl.networks.stacked import Children


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
        """Return what the next task, of so many classes, may choose from; it keeps the widths of now."""
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

    def clear(self) -> None:
        """Forget every task."""
        self.growths, self.tasks = [], []

    def predict(self, x: Tensor, task: int) -> Tensor:
        """Return logits (n, classes of the task)."""
        with torch.no_grad():
            return self.tasks[task](x)

    def parameters_by_task(self) -> list[dict[str, int]]:
        """Count what each task stored, by part: shared, heads, attention, norms."""
        return [count_tensors(growth.tensors) for growth in self.growths]

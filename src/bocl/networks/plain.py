"""One network of fixed size for every task, trained whole: a shared body, and a head per task or one for all."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bocl.errors import DataError, NetworkError
from bocl.networks.by_task import join_tensors, part_tensors
from bocl.networks.compact import CompactNetwork, assemble
from bocl.networks.graph import Graph
from bocl.networks.growth import Growth, GrowthSpace, Shapes, count_tensors, initialise, is_parameter
from bocl.networks.single_task import SingleTask
from bocl.networks.stacked import Children


class PlainNetwork:
    """The base network, a growth from nothing, with the heads ``head0``, ``head1``, …."""

    def __init__(self, graph: Graph, *, shared_head: bool = False, device: torch.device | str = "cpu") -> None:
        self.graph = graph
        self.shared_head = shared_head
        self.device = torch.device(device)
        self.tensors: dict[str, Tensor] = {}
        self.classes: list[int] = []  # of each task
        self._compact: CompactNetwork | None = None

    def head_of(self, task: int) -> str:
        """Return the name of the head a task uses."""
        return "head0" if self.shared_head else f"head{task}"

    def _name(self, name: str, task: int) -> str:
        """Return what a tensor of a task's growth is called here."""
        return re.sub("^head/", f"{self.head_of(task)}/", name)

    def is_shared(self, name: str) -> bool:
        """Whether a tensor is a parameter of every task: of the body, or of a shared head."""
        return is_parameter(name) and (self.shared_head or not name.startswith("head"))

    def add_task(self, classes: int, *, seed: int) -> None:
        """Make a head for one more task; the first task makes the body too."""
        if self.shared_head and self.classes and classes != self.classes[0]:
            raise DataError(
                f"task {len(self.classes) + 1} has {classes} classes but the shared head has {self.classes[0]}; "
                "give every task its own head"
            )
        fresh = initialise(GrowthSpace.first(self.graph, classes), self.graph.widths, seed=seed).tensors
        for name, tensor in fresh.items():
            self.tensors.setdefault(self._name(name, len(self.classes)), tensor.to(self.device))
        self.classes.append(classes)
        self._compact = None

    def trainable(self) -> Children:
        """Return the network as a stack of one, to be trained."""
        growth = Growth(self.graph.widths, self.classes[-1], self.tensors)
        return Children(self.graph, None, [growth], head_of=self.head_of, device=self.device)

    def take(self, trained: Children) -> None:
        """Keep the trained weights."""
        self.tensors = trained.growth(0).tensors
        self._compact = None

    def copy(self) -> PlainNetwork:
        """Return a network with copies of the weights."""
        other = PlainNetwork(self.graph, shared_head=self.shared_head, device=self.device)
        other.restore({}, {name: tensor.clone() for name, tensor in self.tensors.items()}, self.classes)
        return other

    def stored(self, _first: int = 0, _last: int | None = None, /) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return what is saved: no facts, and every tensor, which belong to all tasks."""
        return {}, dict(self.tensors)

    def stored_shapes(self, _facts: Mapping[str, Any], classes: Sequence[int]) -> Shapes:
        """Return the shape of every saved tensor after tasks of these numbers of classes."""
        if self.shared_head and len(set(classes)) > 1:
            raise NetworkError(f"tasks of {', '.join(map(str, classes))} classes cannot share one head")
        return {
            self._name(name, task): shape
            for task, count in enumerate(classes)
            for name, shape in GrowthSpace.first(self.graph, count).shapes(self.graph.widths).items()
        }

    def parameters(self) -> dict[str, int]:
        """Count what is stored, by part."""
        return count_tensors(self.tensors)

    def restore(self, _facts: Mapping[str, Any], tensors: Mapping[str, Tensor], classes: Sequence[int]) -> None:
        """Take back saved weights, and the number of classes of every task."""
        self.tensors = {name: tensor.to(self.device) for name, tensor in tensors.items()}
        self.classes = list(classes)
        self._compact = None

    def predict(self, x: Tensor, task: int) -> Tensor:
        """Return logits (n, classes of the task)."""
        with torch.no_grad():
            return self._assembled()(x, self.head_of(task))

    def values(self, x: Tensor, task: int) -> list[Tensor]:
        """Return the inputs (n, *shape) and what every step of the graph makes of them, as a task predicts."""
        with torch.no_grad():
            return self._assembled().values(x, self.head_of(task))

    def single_task(self, task: int) -> SingleTask:
        """Return what a task computes with, apart from the others."""
        return self._assembled().single_task(self.head_of(task))

    def _assembled(self) -> CompactNetwork:
        if self._compact is None:
            self._compact = assemble(self.graph, None, Growth(self.graph.widths, 0, self.tensors))
        return self._compact


class SeparateNetworks:
    """One plain network for each task."""

    def __init__(self, graph: Graph, device: torch.device | str = "cpu") -> None:
        self.graph = graph
        self.device = torch.device(device)
        self.networks: list[PlainNetwork] = []

    def fresh(self) -> PlainNetwork:
        """Return a network for one more task, to be trained and appended."""
        return PlainNetwork(self.graph, shared_head=True, device=self.device)

    def stored(self, first: int = 0, last: int | None = None, /) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return what is saved: no facts, and every tensor, ``TASK/NAME``."""
        return {}, join_tensors((network.tensors for network in self.networks[first:last]), first)

    def stored_shapes(self, _facts: Mapping[str, Any], classes: Sequence[int]) -> Shapes:
        """Return the shape of every saved tensor after tasks of these numbers of classes."""
        return join_tensors(self.fresh().stored_shapes({}, [count]) for count in classes)

    def parameters(self) -> dict[str, int]:
        """Count what is stored, by part."""
        return count_tensors(*(network.tensors for network in self.networks))

    def restore(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor], classes: Sequence[int]) -> None:
        """Take back saved weights."""
        self.networks = []
        for count, own in zip(classes, part_tensors(tensors, len(classes)), strict=True):
            self.networks.append(self.fresh())
            self.networks[-1].restore(facts, own, [count])

    def predict(self, x: Tensor, task: int) -> Tensor:
        """Return logits (n, classes) of the task's own network."""
        return self.networks[task].predict(x, 0)

    def single_task(self, task: int) -> SingleTask:
        """Return what a task computes with, apart from the others."""
        return self.networks[task].single_task(0)


def plain_logits(graph: Graph, tensors: Mapping[str, Tensor], x: Tensor, head: str) -> Tensor:
    """Return logits (n, classes) as a function of a plain network's tensors, for ``torch.func`` to differentiate.

    As in ``predict``, norms use their running statistics and nothing is dropped out.
    """
    weights = {re.sub("/rows$", "/weight", name): tensor for name, tensor in tensors.items()}
    separate = [f"layer/{layer.name}/weight" for layer in graph.layers if layer.separate]
    weights |= {f"{name}.0": weights.pop(name) for name in separate}
    return CompactNetwork(graph, weights, (graph.widths,))(x, head)

"""A network of fixed size in which every task has a gate for every unit: HAT's.

A gate is a number from 0, closed, to 1, open. Whatever reads a unit reads it times its gate, so a task computes with
the shared network, every weight W_ij multiplied by the gate of the unit j that it reads:

    layer/NAME/rows (out, in, *kernel), layer/NAME/bias (out,)      shared
    head/weight (classes, in), head/bias (classes,)                 one per task
    norm/NAME/weight, bias, mean, var (C,)                          one per task
    gate/GROUP/mask (C,)                                            one per task

What stands between a unit and its readers may do to it what it likes, as long as it keeps units apart: functions, batch
norms, residual additions, products, depthwise convolutions.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn

from bocl.errors import NetworkError
from bocl.networks.by_task import join_tensors, part_tensors
from bocl.networks.compact import CompactNetwork, assemble
from bocl.networks.graph import Graph, Layer
from bocl.networks.growth import Growth, GrowthSpace, Shapes, count_tensors, initialise, tensor_names
from bocl.networks.single_task import SingleTask
from bocl.networks.stacked import Children
from bocl.seeding import seed_for

Gates = Mapping[str, Tensor]  # by the name of the group, (…, C)


class GatedNetwork:
    """Shared layers, and every task's own head, norms and gates.

    layers  the shared tensors layer/… as they are now
    own     for each task its head/…, norm/… and gate/…
    """

    def __init__(self, graph: Graph, device: torch.device | str = "cpu") -> None:
        self.graph = graph
        self.device = torch.device(device)
        self.layers: dict[str, Tensor] = {}
        self.own: list[dict[str, Tensor]] = []
        self._views: dict[int, CompactNetwork] = {}

    def gates(self, task: int) -> dict[str, Tensor]:
        """Return a task's gates."""
        return {group.name: self.own[task][f"gate/{group.name}/mask"] for group in self.graph.groups}

    def taken(self) -> dict[str, Tensor]:
        """Return how far any task has every unit open: the largest of its gates, 0 before the first task."""
        closed = {group.name: torch.zeros(group.width, device=self.device) for group in self.graph.groups}
        for task in range(len(self.own)):
            closed = {name: torch.maximum(most, self.gates(task)[name]) for name, most in closed.items()}
        return closed

    def start(self, classes: int, *, steepness: float, steps: int, seed: int) -> GatedStack:
        """Return what a new task begins with, to be trained: the shared layers, the last task's norms, a fresh head.

        steps  of an epoch
        """
        tensors = initialise(GrowthSpace.first(self.graph, classes), self.graph.widths, seed=seed).tensors
        last = self.own[-1] if self.own else {}
        tensors |= self.layers | {name: tensor for name, tensor in last.items() if name.startswith("norm/")}
        children = Children(self.graph, None, [Growth(self.graph.widths, classes, tensors)], device=self.device)
        draw = torch.Generator().manual_seed(seed_for(seed, "gates"))
        embeddings = {
            group.name: torch.randn(1, group.width, generator=draw).to(self.device) for group in self.graph.groups
        }
        return GatedStack(children, embeddings, steepness=steepness, steps=steps)

    def commit(self, trained: GatedStack) -> None:
        """Keep what a task ended with."""
        tensors = trained.children.growth(0).tensors
        self.layers = {name: tensor for name, tensor in tensors.items() if name.startswith("layer/")}
        masks = {f"gate/{name}/mask": gate[0].clone() for name, gate in trained.gates().items()}
        self.own.append({name: tensor for name, tensor in tensors.items() if name not in self.layers} | masks)
        self._views = {}  # what is not held has moved

    def stored(self, _first: int = 0, _last: int | None = None, /) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return what is saved: no facts, and every tensor: shared by NAME, own by TASK/NAME."""
        return {}, {**self.layers, **join_tensors(self.own)}

    def stored_shapes(self, _facts: Mapping[str, Any], classes: Sequence[int], /) -> Shapes:
        """Return the shape of every saved tensor after tasks of these numbers of classes."""
        found: Shapes = {}
        masks = {f"gate/{group.name}/mask": (group.width,) for group in self.graph.groups}
        for task, count in enumerate(classes):
            shapes = GrowthSpace.first(self.graph, count).shapes(self.graph.widths) | masks
            found |= {name if name.startswith("layer/") else f"{task}/{name}": shape for name, shape in shapes.items()}
        return found

    def restore(self, _facts: Mapping[str, Any], tensors: Mapping[str, Tensor], classes: Sequence[int], /) -> None:
        """Take back saved tensors."""
        placed = {name: tensor.to(self.device) for name, tensor in tensors.items()}
        self.layers = {name: tensor for name, tensor in placed.items() if name.startswith("layer/")}
        own = {name: tensor for name, tensor in placed.items() if name not in self.layers}
        self.own, self._views = part_tensors(own, len(classes)), {}

    def parameters(self) -> dict[str, int]:
        """Count what is stored, by part; gates are attention."""
        return count_tensors(self.layers, *self.own)

    def predict(self, x: Tensor, task: int) -> Tensor:
        """Return logits (n, classes of the task) for inputs (n, *shape)."""
        with torch.no_grad():
            return self._view(task)(x)

    def single_task(self, task: int) -> SingleTask:
        """Return what a task computes with, apart from the others; gates are in its weights."""
        return self._view(task).single_task()

    def _view(self, task: int) -> CompactNetwork:
        if task not in self._views:
            own = {name: tensor for name, tensor in self.own[task].items() if not name.startswith("gate/")}
            weights = gated(self.graph, {**self.layers, **own}, self.gates(task))
            self._views[task] = assemble(self.graph, None, Growth(self.graph.widths, 0, weights))
        return self._views[task]


class GatedStack:
    """K gated networks to be trained, with the gates a = sigmoid(s e).

    embeddings  e of every group, (K, C)
    steepness   s_max: in training s rises from 1/s_max to s_max over the steps of every epoch, otherwise it is s_max
    steps       of an epoch
    taken       steps taken so far (K, 1), counted by whoever trains
    """

    def __init__(self, children: Children, embeddings: Gates, *, steepness: float, steps: int) -> None:
        self.children = children
        self.count, self.draws = children.count, children.draws
        self.embeddings = {name: nn.Parameter(tensor) for name, tensor in embeddings.items()}
        self.steepness, self.steps = steepness, steps
        self.taken = torch.zeros_like(next(iter(self.embeddings.values()))[:, :1], requires_grad=False)

    @property
    def training(self) -> bool:
        """Whether norms, dropout and gates are as in training."""
        return self.children.training

    @training.setter
    def training(self, value: bool) -> None:
        self.children.training = value

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The networks' parameters, and ``gate/GROUP/embedding``."""
        own = {f"gate/{name}/embedding": tensor for name, tensor in self.embeddings.items()}
        return {**self.children.parameters, **own}

    @property
    def state(self) -> dict[str, Tensor]:
        """All tensors, (K, …) each."""
        return {**self.children.state, **self.parameters, "gate/taken": self.taken}

    @property
    def signature(self) -> Hashable:
        """Stacks of one signature differ only in the values of their state."""
        return self.children.signature, self.steepness, self.steps

    def sharpness(self) -> Tensor:
        """Return s of this step, (K, 1). Where no gradient is recorded, as in measuring, there is no step."""
        if not self.training or not torch.is_grad_enabled():
            return torch.full_like(self.taken, self.steepness)
        least = 1 / self.steepness
        share = self.taken % self.steps / (self.steps - 1) if self.steps > 1 else torch.ones_like(self.taken)
        return least + (self.steepness - least) * share

    def gates(self) -> dict[str, Tensor]:
        """Return a = sigmoid(s e) of every group, (K, C); for gradients only in training."""
        sharpness = self.sharpness()
        found = {name: torch.sigmoid(sharpness * tensor) for name, tensor in self.embeddings.items()}
        return found if self.training else {name: gate.detach() for name, gate in found.items()}

    def __call__(self, x: Tensor, task: int = 0, precomputed: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Return logits (K, n, classes) for shared inputs (n, *shape)."""
        read_through = copy(self.children)
        read_through.parameters = gated(self.children.graph, self.children.parameters, self.gates())
        return read_through(x, task)

    def precompute(self, _inputs: Tensor) -> None:
        """Return None: nothing is the same in every step."""


def gated(graph: Graph, tensors: Mapping[str, Tensor], gates: Gates) -> dict[str, Tensor]:
    """Return a network's tensors, every weight multiplied by the gate of the unit that it reads."""
    found = dict(tensors)
    for layer in (*graph.layers, graph.head):
        read = read_gates(graph, layer, gates)
        if read is not None:
            weight, _ = tensor_names(layer)
            found[weight] = found[weight] * read
    return found


def held(graph: Graph, gates: Gates) -> dict[str, Tensor]:
    """Return for every shared tensor how firmly gates hold it, from 0 to 1, in a shape that broadcasts over it.

    A weight W_ij is held as its unit i and what it reads j are, min(a_i, a_j); a bias as its unit.
    """
    found = {}
    for layer in graph.layers:
        assert layer.group is not None
        unit = gates[graph.groups[layer.group].name]
        weight, bias = tensor_names(layer)
        row = unit.reshape(*unit.shape, *(1,) * (1 + len(layer.kernel)))
        read = read_gates(graph, layer, gates)
        found[weight] = row if read is None else torch.minimum(row, read)
        if layer.bias:
            found[bias] = unit
    return found


def read_gates(graph: Graph, layer: Layer, gates: Gates) -> Tensor | None:
    """Return the gate of what each weight of a layer reads, (…, out or 1, in, *1); None where it reads no gate.

    That is raw input, and in a depthwise convolution the unit itself, which its readers read through its gate.
    """
    if layer.source.group is None or layer.separate == "depthwise":
        return None
    read = gates[graph.groups[layer.source.group].name].repeat_interleave(layer.source.spread, -1).unsqueeze(-2)
    if layer.separate:
        assert layer.group is not None
        units = graph.groups[layer.group].width // layer.groups  # of each group of the convolution
        read = read.unflatten(-1, (layer.groups, -1)).squeeze(-3).repeat_interleave(units, -2)
    return read.reshape(*read.shape, *(1,) * len(layer.kernel))


def refuse_unheld(graph: Graph) -> None:
    """Refuse a graph in which closed units have a say in what open ones compute."""
    for norm in graph.norms:
        if norm.kind != "batch" and norm.source.group is not None:
            raise NetworkError(
                f"'{norm.name}' is a {norm.kind.title()}Norm: units that a task has closed would change the statistics "
                "of those it has open, so nothing could be held (use BatchNorm)"
            )

"""Progressive columns: a network per task, which reads the features of all columns before it through adapters.

Layer i of column k computes (k columns lie before it, numbered j)

    h_i = σ(W_i h_{i-1} + U_i relu(V_i [α_j h_{i-1}^j]_{j<k} + b_i))

h^j are the features of column j, frozen with its own laterals. σ stands for all steps of the graph between two layers.

    α  lateral/NAME/scale           (k,)                     one number per column before
    V  lateral/NAME/reduce.weight   (a, k·C)                 per channel: a 1 x 1 convolution on feature maps
    b  lateral/NAME/reduce.bias     (a,)
    U  lateral/NAME/expand.weight   (out, a·spread, *kernel) in the form of W, so that strides and sizes agree

C is the width of a column where the layer reads, a = max(1, ⌈ratio · C⌉). A flatten spreads each of the a channels
as it spreads those of W's input. The head is a layer like the others; layers on raw input have no adapter.
A column's other tensors are those of a growth from nothing (``growth.py``).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil, lcm, prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bocl.networks.by_task import join_tensors, part_tensors
from bocl.networks.compact import evaluate
from bocl.networks.graph import Graph, Layer, Norm
from bocl.networks.growth import GrowthSpace, Shapes, count_tensors, initialise, is_parameter, tensor_names
from bocl.networks.norms import normalise_batch, normalise_blocks, scale_and_shift
from bocl.networks.products import plain_product
from bocl.networks.single_task import SingleTask
from bocl.seeding import seed_for

Features = Mapping[str, Tensor]  # layer → (n, k·C, positions): what the columns before made of its input, side by side


class LateralNetwork:
    """Columns of one graph: one per task, each with its own head."""

    def __init__(self, graph: Graph, *, ratio: float, device: torch.device | str = "cpu") -> None:
        self.graph = graph
        self.ratio = ratio
        self.device = torch.device(device)
        self.columns: list[dict[str, Tensor]] = []

    def next_column(self, classes: int, *, seed: int) -> Column:
        """Return an untrained column for one more task; weights start uniform in ±1/√fan-in, each α at 1."""
        tensors = initialise(GrowthSpace.first(self.graph, classes), self.graph.widths, seed=seed).tensors
        generator = torch.Generator().manual_seed(seed_for(seed, "laterals"))
        laterals = _lateral_shapes(self.graph, len(self.columns), classes, self.ratio)
        for name, shape in laterals.items():
            if name.endswith("/scale"):
                tensors[name] = torch.ones(shape)
            else:
                fan_in = prod(laterals[name.replace("reduce.bias", "reduce.weight")][1:])
                tensors[name] = torch.empty(shape).uniform_(-1, 1, generator=generator).div_(fan_in**0.5)
        return Column(self, {name: tensor.to(self.device) for name, tensor in tensors.items()})

    def commit(self, tensors: Mapping[str, Tensor]) -> None:
        """Make a trained column part of the network, frozen, as its next task."""
        self.columns.append({name: tensor.detach().to(self.device, copy=True) for name, tensor in tensors.items()})

    def features(self, x: Tensor, columns: int) -> Features:
        """Run the first ``columns`` columns, each on the features of those before it."""
        with torch.no_grad():
            return _features(self.graph, self.columns[:columns], x)

    def predict(self, x: Tensor, task: int) -> Tensor:
        """Return logits (n, classes of the task); columns after its own play no part."""
        with torch.no_grad():
            return column_logits(self.graph, self.columns[: task + 1], x)

    def single_task(self, task: int) -> SingleTask:
        """Return what a task computes with: its column, and what it reads of those before, whose heads play no part."""
        unused = ("head/", f"lateral/{self.graph.head.name}/")
        read = [
            {name: tensor for name, tensor in column.items() if not name.startswith(unused)}
            for column in self.columns[:task]
        ]
        return SingleTask("columns", {"columns": task + 1}, join_tensors([*read, self.columns[task]]))

    def stored(self, first: int = 0, last: int | None = None, /) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return what is saved: no facts, and every tensor, ``TASK/NAME``."""
        return {}, join_tensors(self.columns[first:last], first)

    def parameters(self) -> dict[str, int]:
        """Count what is stored, by part; laterals are shared weights."""
        return count_tensors(*self.columns)

    def restore(self, _facts: Mapping[str, Any], tensors: Mapping[str, Tensor], classes: Sequence[int]) -> None:
        """Take back saved columns."""
        self.columns = []
        for column in part_tensors(tensors, len(classes)):
            self.commit(column)

    def stored_shapes(self, _facts: Mapping[str, Any], classes: Sequence[int]) -> Shapes:
        """Return the shape of every saved tensor after tasks of these numbers of classes."""
        return join_tensors(
            GrowthSpace.first(self.graph, count).shapes(self.graph.widths)
            | _lateral_shapes(self.graph, task, count, self.ratio)
            for task, count in enumerate(classes)
        )


class Column:
    """The column of a new task as it is trained: a stack of one, every tensor (1, …)."""

    count = 1

    def __init__(self, network: LateralNetwork, tensors: Mapping[str, Tensor]) -> None:
        self.network = network
        self.draws = network.graph.draws
        self.before = len(network.columns)
        self.training = True
        stacked = {name: tensor.unsqueeze(0) for name, tensor in tensors.items()}
        self.parameters = {name: nn.Parameter(tensor) for name, tensor in stacked.items() if is_parameter(name)}
        buffers = {name: tensor for name, tensor in stacked.items() if name not in self.parameters}
        self.state: dict[str, Tensor] = {**self.parameters, **buffers}
        self._forms: dict[str, tuple[int, ...]] = {}  # of the features of one sample, once they are precomputed

    @property
    def signature(self) -> Hashable:
        """Columns for one task of one network have the same signature."""
        shapes = tuple((name, tuple(value.shape)) for name, value in self.state.items())
        return id(self.network), self.before, shapes  # the network lives as long as this column, and only adds columns

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The column's tensors as they are stored, as copies."""
        return {name: tensor.detach()[0].clone() for name, tensor in self.state.items()}

    def precompute(self, inputs: Tensor) -> Tensor | None:
        """Compute the features of the columns before, which are frozen: (n, …)."""
        if not self.before:
            return None
        features = self.network.features(inputs, self.before)
        self._forms = {name: tuple(value.shape[1:]) for name, value in features.items()}
        return torch.cat([value.flatten(1) for value in features.values()], dim=1)

    def __call__(self, x: Tensor, task: int = 0, precomputed: Tensor | None = None) -> Tensor:  # noqa: ARG002 - one head
        """Return logits (1, n, classes) for inputs (n, *shape); ``precomputed`` comes from ``precompute``."""
        features = self.network.features(x, self.before) if precomputed is None else self._parted(precomputed)
        weights = {name: tensor[0] for name, tensor in self.state.items()}
        return _values(self.network.graph, weights, x, features, training=self.training)[-1].unsqueeze(0)

    def _parted(self, precomputed: Tensor) -> Features:
        """Undo the flattening of ``precompute``."""
        parts = precomputed.split([prod(form) for form in self._forms.values()], dim=1)
        forms = zip(self._forms.items(), parts, strict=True)
        return {name: part.reshape(len(part), *form) for (name, form), part in forms}


def column_logits(graph: Graph, columns: Sequence[Mapping[str, Tensor]], x: Tensor) -> Tensor:
    """Return the logits (n, classes) of the last column."""
    return _values(graph, columns[-1], x, _features(graph, columns[:-1], x), training=False)[-1]


def narrowed(graph: Graph, width: Sequence[float]) -> Graph:
    """Return the graph with every group at a fraction of its width: at least 1, and divisible by its group norms."""
    groups = []
    for number, (group, fraction) in enumerate(zip(graph.groups, width, strict=True)):
        share = lcm(
            *(norm.num_groups for norm in graph.norms if norm.source.group == number and norm.kind == "group"),
            *(layer.groups for layer in graph.layers if number in (layer.group, layer.source.group)),
        )
        groups.append(replace(group, width=max(1, round(group.width * fraction / share)) * share))
    steps = [
        replace(step, source=replace(step.source, width=groups[step.source.group].width))
        if isinstance(step, Layer | Norm) and step.source.group is not None
        else step
        for step in graph.steps
    ]
    return Graph(tuple(steps), tuple(groups))


def _features(graph: Graph, columns: Sequence[Mapping[str, Tensor]], x: Tensor) -> Features:
    """Run columns, each on the features of those before it, up to their heads."""
    inputs: dict[str, list[Tensor]] = {layer.name: [] for layer in _with_laterals(graph)}
    for column in columns:
        values = _values(graph, column, x, _side_by_side(inputs), training=False, head=False)
        for layer in _with_laterals(graph):
            value, channels = values[layer.reads[0]], layer.source.width
            inputs[layer.name].append(value.reshape(x.shape[0], channels, prod(value.shape[1:]) // channels))
    return _side_by_side(inputs)


def _with_laterals(graph: Graph) -> list[Layer]:
    return [layer for layer in (*graph.layers, graph.head) if layer.gated]


def _lateral_shapes(graph: Graph, before: int, classes: int, ratio: float) -> Shapes:
    """Return the shapes of a column's adapters when ``before`` columns lie before it."""
    found: Shapes = {}
    for layer in _with_laterals(graph) if before else ():
        units = classes if layer.group is None else graph.widths[layer.group]
        channels, prefix = layer.source.width, f"lateral/{layer.name}"
        hidden = max(1, ceil(ratio * channels))
        found[f"{prefix}/scale"] = (before,)
        found[f"{prefix}/reduce.weight"] = (hidden, before * channels)
        found[f"{prefix}/reduce.bias"] = (hidden,)
        found[f"{prefix}/expand.weight"] = (units, hidden * layer.source.spread, *layer.kernel)
    return found


def _side_by_side(inputs: Mapping[str, Sequence[Tensor]]) -> Features:
    return {name: torch.cat(list(columns), dim=1) for name, columns in inputs.items() if columns}


def _values(
    graph: Graph, weights: Mapping[str, Tensor], x: Tensor, features: Features, *, training: bool, head: bool = True
) -> list[Tensor]:
    """Return every value of one column: the input (n, *shape), then the result of each step, logits last."""
    steps = graph.steps if head else graph.steps[:-1]
    layer = partial(_layer, weights=weights, features=features)
    return evaluate(steps, x, layer, partial(_norm, weights=weights, training=training), training=training)


def _layer(layer: Layer, value: Tensor, weights: Mapping[str, Tensor], features: Features) -> Tensor:
    """Return W h + U relu(V [α_j h^j] + b), or only W h where no column lies before."""
    weight, bias = tensor_names(layer)
    groups = layer.groups_of(value.shape[1], len(weights[weight]), is_root=True) if layer.separate else 1
    out = plain_product(layer, value, weights[weight], weights.get(bias), groups)
    if layer.name not in features:
        return out
    scale, reduce, lateral_bias, expand = (
        weights[f"lateral/{layer.name}/{name}"] for name in ("scale", "reduce.weight", "reduce.bias", "expand.weight")
    )
    # V [α_j h^j] = (V α) h: scaling the C columns of V that read column j costs less than scaling its features.
    scaled = (reduce.view(len(reduce), len(scale), -1) * scale.unsqueeze(1)).flatten(1)
    # A 1 x 1 convolution as a linear map of every position; U then reads it in the form W reads its own input:
    # a map (n, a, *space) for a convolution, else a vector (n, a·spread).
    hidden = torch.relu(F.linear(features[layer.name].mT, scaled, lateral_bias)).mT  # (n, a, positions)
    form = (len(lateral_bias), *value.shape[2:]) if layer.kernel else (expand.shape[1],)
    return out + plain_product(layer, hidden.reshape(value.shape[0], *form), expand, None)


def _norm(norm: Norm, x: Tensor, weights: Mapping[str, Tensor], *, training: bool) -> Tensor:
    prefix = f"norm/{norm.name}"
    weight, bias = weights.get(f"{prefix}/weight"), weights.get(f"{prefix}/bias")
    if norm.kind == "batch":
        mean, var = weights[f"{prefix}/mean"], weights[f"{prefix}/var"]
        stack = [None if part is None else part.unsqueeze(0) for part in (weight, bias)]
        return normalise_batch(norm, x.unsqueeze(0), mean.unsqueeze(0), var.unsqueeze(0), *stack, training=training)[0]
    return scale_and_shift(normalise_blocks(norm, x, [x.shape[1]]), weight, bias)

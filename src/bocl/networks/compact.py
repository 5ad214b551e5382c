"""One task's network in compact form, which predicts.

It computes on contiguous copies of the task's slices, made once: a strided view of a grown matrix, or a
matrix masked with zeros, would change the last bits of a product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bocl.networks import functions
from bocl.networks.attention import features_and_gates, gate, is_gated
from bocl.networks.graph import Add, Function, Graph, Layer, Multiply, Norm, Step
from bocl.networks.growth import Growth
from bocl.networks.norms import normalise_blocks, per_channel, scale_and_shift
from bocl.networks.single_task import SingleTask
from bocl.widths import Widths

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


class CompactNetwork:
    """The network as one task sees it.

    weights  layer/NAME/weight (out_t, in_t, *kernel), layer/NAME/bias, and the task's own gate/…, norm/…, head/…; of a
             separate layer layer/NAME/weight.B (out_B, …, *kernel) for every block B
    blocks   units of every group by the growth that added them, oldest first
    roots    places of the blocks that read no other: the base network's, and those of tasks with a network of their own
    """

    def __init__(
        self,
        graph: Graph,
        weights: dict[str, Tensor],
        blocks: tuple[Widths, ...],
        roots: frozenset[int] = frozenset({0}),
    ) -> None:
        self.graph = graph
        self.weights = weights
        self.blocks = blocks
        self.roots = roots

    @property
    def widths(self) -> Widths:
        """The task's stamp: the width of every group."""
        return self.graph.total(self.blocks)

    def __call__(self, x: Tensor, head: str = "head") -> Tensor:
        """Return logits (n, classes) for inputs (n, *shape)."""
        return self.values(x, head)[-1]

    def features(self, x: Tensor) -> Tensor:
        """Return what the head reads of inputs (n, *shape), before gates: (n, C)."""
        return self.values(x, before_head=True)[self.graph.head.reads[0]]

    def single_task(self, head: str = "head") -> SingleTask:
        """Return all that a call computes with."""
        tensors = {name: tensor for name, tensor in self.weights.items() if not name.startswith("head")}
        own = ((name, self.weights.get(f"{head}/{name}")) for name in ("weight", "bias"))
        tensors |= {f"head/{name}": tensor for name, tensor in own if tensor is not None}
        facts = {"blocks": [list(widths) for widths in self.blocks], "roots": sorted(self.roots)}
        return SingleTask("compact", facts, tensors)

    def weight_and_bias(self, layer: Layer, head: str = "head") -> tuple[Tensor, Tensor | None]:
        """Return a layer's weight (out_t, in_t, *kernel), and its bias (out_t,) where it has one."""
        prefix = head if layer.group is None else f"layer/{layer.name}"
        return self.weights[f"{prefix}/weight"], self.weights.get(f"{prefix}/bias")

    def openness(self, x: Tensor) -> dict[str, Tensor]:
        """Return every gated layer's mean gate over inputs (n, *shape), on the units of each growth: (growths,).

        It is NaN for a growth that added no units to what the layer reads.
        """
        values = self.values(x)
        found = {}
        for layer in (*self.graph.layers, self.graph.head):
            if self._gated(layer):
                _, beta = features_and_gates(values[layer.reads[0]], self.weights, f"gate/{layer.name}")
                assert layer.source.group is not None
                units = [widths[layer.source.group] for widths in self.blocks]
                found[layer.name] = torch.stack([block.mean() for block in beta.mean(0).split(units)])
        return found

    def _gated(self, layer: Layer) -> bool:
        return is_gated(self.weights, f"gate/{layer.name}")

    def values(self, x: Tensor, head: str = "head", *, before_head: bool = False) -> list[Tensor]:
        """Return the input and the result of every step, or of all before the head, which need not be there then."""
        steps = self.graph.steps[:-1] if before_head else self.graph.steps
        return evaluate(steps, x, partial(self._layer, head=head), self.norm, training=False)

    def separate_weights(self, layer: Layer) -> list[Tensor]:
        """Return the weights of a separate layer, one for each block."""
        return [self.weights[f"layer/{layer.name}/weight.{block}"] for block in range(len(self.blocks))]

    def separate_product(self, layer: Layer, x: Tensor) -> Tensor:
        """Return a separate layer's product with x (n, in_t, *space), block by block: (n, out_t, *space)."""
        assert layer.group is not None
        assert layer.source.group is not None
        inputs, units = ([z[group] for z in self.blocks] for group in (layer.source.group, layer.group))
        bias = self.weights.get(f"layer/{layer.name}/bias")
        biases = [None] * len(units) if bias is None else list(bias.split(units))
        convolve: Any = CONVOLUTIONS[len(layer.kernel)]
        parts: list[Tensor] = []
        for block, (part, weight) in enumerate(zip(x.split(inputs, 1), self.separate_weights(layer), strict=True)):
            if weight.numel():
                groups = layer.groups_of(part.shape[1], len(weight), is_root=block in self.roots)
                sizes = (layer.stride, layer.padding, layer.dilation, groups)
                parts.append(convolve(part, weight, biases[block], *sizes))
            elif len(weight):  # units of a growth that has nothing for them to read
                shape = (x.shape[0], len(weight), *parts[0].shape[2:])
                parts.append(bias_alone(shape, biases[block], x))
        return torch.cat(parts, 1)

    def _layer(self, layer: Layer, x: Tensor, head: str) -> Tensor:
        if layer.separate:
            return self.separate_product(layer, x)
        if self._gated(layer):
            x = gate(x, self.weights, f"gate/{layer.name}")
        weight, bias = self.weight_and_bias(layer, head)
        if not layer.kernel:
            return F.linear(x, weight, bias)
        convolve = CONVOLUTIONS[len(layer.kernel)]
        return convolve(x, weight, bias, layer.stride, layer.padding, layer.dilation)

    def norm(self, norm: Norm, x: Tensor) -> Tensor:
        """Return a value (n, C, *space) normalised as this task does."""
        prefix = f"norm/{norm.name}"
        weight, bias = self.weights.get(f"{prefix}/weight"), self.weights.get(f"{prefix}/bias")
        if norm.kind == "batch":
            mean, var = self.weights[f"{prefix}/mean"], self.weights[f"{prefix}/var"]
            return F.batch_norm(x, mean, var, weight, bias, training=False, eps=norm.eps)
        sizes = [norm.source.width] if norm.source.group is None else [z[norm.source.group] for z in self.blocks]
        return scale_and_shift(normalise_blocks(norm, x, sizes, self.roots), weight, bias)


def evaluate(
    steps: Iterable[Step],
    x: Tensor,
    layer: Callable[[Layer, Tensor], Tensor],
    norm: Callable[[Norm, Tensor], Tensor] | None,
    *,
    training: bool,
) -> list[Tensor]:
    """Return every value of a network: the input x (n, *shape), then the result of each step.

    layer, norm  what such a step makes of the value it reads; no norm where the steps have none
    """
    values = [x]
    for step in steps:
        value = values[step.reads[0]]
        match step:
            case Layer():
                value = layer(step, value)
            case Norm():
                assert norm is not None
                value = norm(step, value)
            case Function():
                value = functions.apply(step, value, training=training)
            case Add():
                value = value + values[step.reads[1]]
            case Multiply():
                value = value * values[step.reads[1]]
        values.append(value)
    return values


def bias_alone(shape: tuple[int, ...], bias: Tensor | None, like: Tensor) -> Tensor:
    """Return what units that read nothing give: their bias everywhere, or 0.

    bias  (units,) for the shape (n, units, *space), or (K, units) for (K, n, units, *space)
    """
    nothing = like.new_zeros(shape)
    return nothing if bias is None else nothing + per_channel(bias, nothing)


def grown_weight(old: Tensor, columns: Tensor | None, rows: Tensor) -> Tensor:
    """Return a layer's weight (o, i, …) grown by columns (o, z_in, …) and rows (z_out, i + z_in, …).

    Columns and rows of K children, stacked, give the weights of all: (K, o + z_out, i + z_in, …).
    """
    units, inputs = rows.dim() - old.dim(), rows.dim() - old.dim() + 1  # the dimensions that grow
    old = old.expand(*rows.shape[:units], *old.shape)
    if columns is None:  # nothing reads back: raw input, or the `forward` wiring
        columns = old.new_zeros(*old.shape[:inputs], rows.shape[inputs] - old.shape[inputs], *old.shape[inputs + 1 :])
    return torch.cat([torch.cat([old, columns], inputs), rows], units)


def assemble(graph: Graph, frozen: CompactNetwork | None, growth: Growth, *, own_norms: bool = True) -> CompactNetwork:
    """Put a task's new pieces around the frozen network and return the whole as contiguous copies.

    own_norms  whether the task has norms of its own for all units that it reads, or for its new ones only
    """
    weights = {name: tensor for name, tensor in growth.tensors.items() if not name.startswith("layer/")}
    if frozen is not None and not own_norms:
        norms = [name for name in weights if name.startswith("norm/")]
        weights |= {name: torch.cat([frozen.weights[name], weights[name]]) for name in norms}
    for layer in graph.layers:
        prefix = f"layer/{layer.name}"
        weight = growth.tensors[f"{prefix}/rows"]
        bias = growth.tensors[f"{prefix}/bias"] if layer.bias else None
        old_bias = None if frozen is None else frozen.weights.get(f"{prefix}/bias")
        if old_bias is not None and bias is not None:
            bias = torch.cat([old_bias, bias])
        if layer.separate:
            old = [] if frozen is None else frozen.separate_weights(layer)
            weights |= {f"{prefix}/weight.{block}": part for block, part in enumerate([*old, weight])}
        else:
            if frozen is not None:
                columns = growth.tensors.get(f"{prefix}/columns")
                weight = grown_weight(frozen.weights[f"{prefix}/weight"], columns, weight)
            weights[f"{prefix}/weight"] = weight
        if bias is not None:
            weights[f"{prefix}/bias"] = bias
    copies = {name: contiguous_copy(tensor) for name, tensor in weights.items()}
    if frozen is None:
        return CompactNetwork(graph, copies, (growth.widths,))
    return CompactNetwork(graph, copies, (*frozen.blocks, growth.widths), frozen.roots)


def contiguous_copy(tensor: Tensor) -> Tensor:
    """Return a contiguous copy of a tensor or view, without its gradient."""
    return tensor.detach().clone(memory_format=torch.contiguous_format)

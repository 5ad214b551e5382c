"""One task's network in compact form: what it predicts with, for ever.

It computes on contiguous copies of the task's slices, made once: a strided view of a grown matrix, or a
matrix masked with zeros, changes the last bits of a product.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from bocl.networks import functions
from bocl.networks.attention import features_and_gates, gate
from bocl.networks.graph import Add, Function, Graph, Layer, Norm, Widths
from bocl.networks.growth import Growth

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


class CompactNetwork:
    """The network as one task sees it.

    weights  layer/NAME/weight (out_t, in_t, *kernel), layer/NAME/bias, and the task's own gate/…, norm/…, head/…
    blocks   units of every group by the growth that added them, oldest first
    """

    def __init__(self, graph: Graph, weights: dict[str, Tensor], blocks: tuple[Widths, ...]) -> None:
        self.graph = graph
        self.weights = weights
        self.blocks = blocks

    @property
    def widths(self) -> Widths:
        """The task's stamp: the width of every group."""
        return tuple(sum(group) for group in zip(*self.blocks, strict=True))

    def __call__(self, x: Tensor, head: str = "head") -> Tensor:
        """Return logits (n, classes) for inputs (n, *shape)."""
        return self._values(x, head)[-1]

    def openness(self, x: Tensor) -> dict[str, Tensor]:
        """Return for every gated layer its mean gate over inputs (n, *shape), on the units of each growth: (growths,).

        A growth that added no units to what the layer reads has none: NaN.
        """
        values = self._values(x)
        found = {}
        for layer in (*self.graph.layers, self.graph.head):
            if self._gated(layer):
                _, beta = features_and_gates(values[layer.reads[0]], self.weights, f"gate/{layer.name}")
                assert layer.source.group is not None
                units = [widths[layer.source.group] for widths in self.blocks]
                found[layer.name] = torch.stack([block.mean() for block in beta.mean(0).split(units)])
        return found

    def _gated(self, layer: Layer) -> bool:
        return f"gate/{layer.name}/reduce.weight" in self.weights

    def _values(self, x: Tensor, head: str = "head") -> list[Tensor]:
        """Return the input and the result of every step."""
        values = [x]
        for step in self.graph.steps:
            read = [values[index] for index in step.reads]
            match step:
                case Layer():
                    values.append(self._layer(step, read[0], head))
                case Norm():
                    values.append(self._norm(step, read[0]))
                case Function():
                    values.append(functions.apply(step.function, read[0], step.arguments, training=False))
                case Add():
                    values.append(read[0] + read[1])
        return values

    def _layer(self, layer: Layer, x: Tensor, head: str) -> Tensor:
        if self._gated(layer):
            x = gate(x, self.weights, f"gate/{layer.name}")
        prefix = head if layer.group is None else f"layer/{layer.name}"
        weight, bias = self.weights[f"{prefix}/weight"], self.weights.get(f"{prefix}/bias")
        if not layer.kernel:
            return F.linear(x, weight, bias)
        convolve = CONVOLUTIONS[len(layer.kernel)]
        return convolve(x, weight, bias, layer.stride, layer.padding, layer.dilation)

    def _norm(self, norm: Norm, x: Tensor) -> Tensor:
        prefix = f"norm/{norm.name}"
        weight, bias = self.weights.get(f"{prefix}/weight"), self.weights.get(f"{prefix}/bias")
        if norm.kind == "batch":
            mean, var = self.weights[f"{prefix}/mean"], self.weights[f"{prefix}/var"]
            return F.batch_norm(x, mean, var, weight, bias, training=False, eps=norm.eps)
        sizes = [norm.source.width] if norm.source.group is None else [z[norm.source.group] for z in self.blocks]
        x = normalise_blocks(x, sizes, norm.num_groups, norm.eps)
        if weight is None or bias is None:
            return x
        shape = (-1, *(1,) * (x.dim() - 2))
        return x * weight.view(shape) + bias.view(shape)


def normalise_blocks(x: Tensor, sizes: Sequence[int], base_groups: int, eps: float) -> Tensor:
    """Group-normalise x (n, C, *space): the base network's channels in ``base_groups`` groups, each growth's in one."""
    parts = [
        torch.group_norm(part, base_groups if index == 0 else 1, eps=eps)  # F.group_norm refuses a single value
        for index, part in enumerate(x.split(list(sizes), dim=1))
        if part.shape[1]
    ]
    return torch.cat(parts, dim=1)


def grown_weight(old: Tensor, columns: Tensor | None, rows: Tensor) -> Tensor:
    """Return a layer's weight (o, i, …) grown by columns (o, z_in, …) and rows (z_out, i + z_in, …)."""
    if columns is None:  # nothing reads back: raw input, or the `forward` wiring
        columns = old.new_zeros(old.shape[0], rows.shape[1] - old.shape[1], *old.shape[2:])
    return torch.cat([torch.cat([old, columns.detach()], 1), rows], 0)


def assemble(graph: Graph, known: CompactNetwork | None, growth: Growth) -> CompactNetwork:
    """Put a task's new pieces around what is known and return the whole as contiguous copies."""
    weights = {
        name: tensor.detach().clone(memory_format=torch.contiguous_format)
        for name, tensor in growth.tensors.items()
        if not name.startswith("layer/")
    }
    for layer in graph.layers:
        prefix = f"layer/{layer.name}"
        rows = growth.tensors[f"{prefix}/rows"].detach()
        bias = growth.tensors[f"{prefix}/bias"].detach() if layer.bias else None
        if known is not None:
            columns = growth.tensors.get(f"{prefix}/columns")
            rows = grown_weight(known.weights[f"{prefix}/weight"], columns, rows)
            if bias is not None:
                bias = torch.cat([known.weights[f"{prefix}/bias"], bias])
        weights[f"{prefix}/weight"] = rows.clone(memory_format=torch.contiguous_format)
        if bias is not None:
            weights[f"{prefix}/bias"] = bias.clone()
    blocks = (*(known.blocks if known is not None else ()), growth.widths)
    return CompactNetwork(graph, weights, blocks)

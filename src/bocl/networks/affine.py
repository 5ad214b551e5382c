"""The layers and norms of a plain network as affine maps, and what their units read.

Every unit computes y = w̃ · x̃. x̃ is all that it reads at once, with a 1 at the end where it has a bias: all inputs of a
linear layer, a window of a convolution, and in a norm the normalised value of its channel. Units that read the same are
a group. A map has G of them: the groups of a grouped convolution, the channels of a depthwise one or of a norm, or one.

    W̃  (G, units of a group, d)        x̃  (G, rows, d)        R = E[x̃ x̃ᵀ]  (G, d, d)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from bocl.networks.compact import CompactNetwork
from bocl.networks.graph import Graph, Layer, Norm
from bocl.networks.growth import GrowthSpace, is_parameter, tensor_names
from bocl.networks.plain import PlainNetwork
from bocl.networks.products import plain_product

MOST_NUMBERS = 1 << 24  # of x̃ that are held at once


@dataclass(frozen=True)
class AffineMap:
    """A layer, or the scales and shifts of a norm.

    weight  name of its weight, (units, *reads)
    bias    name of its bias, (units,); '' without one
    groups  G
    reads   shape of what a unit reads, without the 1; () of a norm
    """

    step: Layer | Norm
    weight: str
    bias: str
    groups: int
    reads: tuple[int, ...]

    @property
    def columns(self) -> int:
        """How many numbers x̃ has: d."""
        return prod(self.reads) + bool(self.bias)

    def matrix(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Return W̃ (G, units of a group, d), made of tensors by name; those of a stack of one are taken too."""
        weight = tensors[self.weight].reshape(self.groups, -1, prod(self.reads))
        return torch.cat([weight, tensors[self.bias].reshape(self.groups, -1, 1)], 2) if self.bias else weight

    def parts(self, matrix: Tensor) -> dict[str, Tensor]:
        """Return weight (units·reads,) and bias (units,) that make up such a matrix, by name."""
        weight, bias = matrix.split([prod(self.reads), bool(self.bias)], 2)
        return {self.weight: weight.flatten()} | ({self.bias: bias.flatten()} if self.bias else {})

    def what_units_read(self, value: Tensor) -> Tensor:
        """Return x̃ (G, rows, d) of a layer that reads the value (n, C, *space), or of a norm that made it of its."""
        if isinstance(self.step, Norm):
            x = value.transpose(0, 1).reshape(self.groups, -1, 1)
        elif not self.step.kernel:
            x = value.unsqueeze(0)
        else:
            # A convolution whose units copy one number of the window each.
            size = prod(self.reads)
            copies = torch.eye(size, dtype=value.dtype, device=value.device).view(size, *self.reads)
            copies = copies.repeat(self.groups, *(1 for _ in self.reads))
            windows = plain_product(self.step, value, copies, None, self.groups)
            x = windows.unflatten(1, (self.groups, size)).flatten(3).permute(1, 0, 3, 2).flatten(1, 2)
        return torch.cat([x, x.new_ones(*x.shape[:2], 1)], 2) if self.bias else x


def shared_maps(network: PlainNetwork, classes: int) -> list[AffineMap]:
    """Return the maps that all tasks share: a head only where it is one for all, of so many classes."""
    shapes = GrowthSpace.first(network.graph, classes).shapes(network.graph.widths)
    return [found for found in _maps(network.graph, shapes, network.head_of(0)) if network.is_shared(found.weight)]


def _maps(graph: Graph, shapes: Mapping[str, tuple[int, ...]], head: str) -> Iterator[AffineMap]:
    for step in graph.steps:
        if isinstance(step, Norm) and step.affine:
            prefix = f"norm/{step.name}"
            (units,) = (int(size) for size in shapes[f"{prefix}/weight"])
            yield AffineMap(step, f"{prefix}/weight", f"{prefix}/bias", units, ())
        elif isinstance(step, Layer):
            units, *reads = (int(size) for size in shapes[tensor_names(step)[0]])
            inputs = step.source.size(graph.widths)
            groups = step.groups_of(inputs, units, is_root=True) if step.separate else 1
            weight, bias = tensor_names(step, head)
            yield AffineMap(step, weight, bias if step.bias else "", groups, tuple(reads))


def correlations(network: PlainNetwork, maps: Sequence[AffineMap], x: Tensor, task: int) -> dict[str, Tensor]:
    """Return R of every map for inputs (n, *shape), by the name of its weight, in double precision."""
    largest = max(read.numel() for _, read in _what_is_read(network, maps, x[:1], task))
    totals: dict[str, Tensor] = {}
    rows: dict[str, int] = {}
    for part in x.split(max(1, MOST_NUMBERS // largest)):
        for name, read in _what_is_read(network, maps, part, task):
            exact = read.double()
            totals[name] = totals.get(name, 0) + exact.mT @ exact
            rows[name] = rows.get(name, 0) + read.shape[1]
    return {name: total / rows[name] for name, total in totals.items()}


def _what_is_read(
    network: PlainNetwork, maps: Sequence[AffineMap], x: Tensor, task: int
) -> Iterator[tuple[str, Tensor]]:
    values = network.values(x, task)
    statistics = {name: tensor for name, tensor in network.tensors.items() if not is_parameter(name)}
    normalising = CompactNetwork(network.graph, statistics, (network.graph.widths,))  # without scales and shifts
    for found in maps:
        value = values[found.step.reads[0]]
        value = normalising.norm(found.step, value) if isinstance(found.step, Norm) else value
        yield found.weight, found.what_units_read(value)

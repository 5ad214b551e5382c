"""What DEN does with weights: proximal steps, the sub-network that is reached, what moves, what drifted.

A unit's *group* is all that makes its output: its incoming weights (a filter's, for a convolution), its bias and,
where a norm follows, its scale and shift. A unit whose group is zero puts out zero.

Units are told apart by one boolean tensor (C,) per channel group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_, or_

import torch
from torch import Tensor

from bocl.networks.graph import Graph, Layer, Widths
from bocl.networks.growth import tensor_names

Masks = dict[str, Tensor]  # tensor → what of it is trained, to be broadcast; a tensor left out stays as it is


def soft_threshold(w: Tensor, threshold: float) -> Tensor:
    """Return argmin_v ½(v - w)² + threshold·|v|, entry by entry."""
    return w.sign() * (w.abs() - threshold).clamp(min=0)


def shrink_factors(norms: Tensor, threshold: float) -> Tensor:
    """Return what a group of norm ‖w‖ is multiplied by in argmin_v ½‖v - w‖² + threshold·‖v‖."""
    return (1 - threshold / norms.clamp(min=torch.finfo(norms.dtype).tiny)).clamp(min=0)


def unit_norms(graph: Graph, tensors: Mapping[str, Tensor], group: int) -> Tensor:
    """Return ‖·‖ of every unit's group, (C,), over those of its tensors that are given."""
    return torch.stack([part.square().sum(1) for part in _unit_parts(graph, tensors, group)]).sum(0).sqrt()


def silent_units(graph: Graph, tensors: Mapping[str, Tensor], group: int) -> Tensor:
    """Return the units whose group is nothing but zeros, (C,)."""
    return ~torch.stack([part.any(1) for part in _unit_parts(graph, tensors, group)]).any(0)


def shrink_units(graph: Graph, tensors: Mapping[str, Tensor], before: Widths, threshold: float) -> None:
    """Take a group-lasso step, in place, on every unit but the first ``before`` of each channel group."""
    for group, first in enumerate(before):
        factors = shrink_factors(unit_norms(graph, tensors, group)[first:], threshold)
        for part in _unit_parts(graph, tensors, group):
            part[first:].mul_(factors.unsqueeze(1))


def _unit_parts(graph: Graph, tensors: Mapping[str, Tensor], group: int) -> list[Tensor]:
    """Return views (C, …) of what makes the units of a group."""
    names = [
        f"layer/{layer.name}/{part}" for layer in graph.layers if layer.group == group for part in ("rows", "bias")
    ]
    names += [
        f"norm/{norm.name}/{part}" for norm in graph.norms if norm.source.group == group for part in ("weight", "bias")
    ]
    units = len(tensors[names[0]])
    return [tensors[name].view(units, -1) for name in names if name in tensors]


def reached_units(graph: Graph, tensors: Mapping[str, Tensor]) -> list[Tensor]:
    """Return the units that the head reaches through weights that are not zero, breadth first from the top."""
    reached = [
        torch.zeros_like(unit_norms(graph, tensors, group), dtype=torch.bool) for group in range(len(graph.groups))
    ]
    for layer in (graph.head, *reversed(graph.layers)):
        if layer.source.group is not None:
            weight = tensors[tensor_names(layer)[0]]
            weight = weight if layer.group is None else weight[reached[layer.group]]
            reads = (weight != 0).flatten(1).any(0)  # (in·kernel,)
            reached[layer.source.group] |= reads.view(len(reached[layer.source.group]), -1).any(1)
    return reached


def inside(graph: Graph, tensors: Mapping[str, Tensor], units: Sequence[Tensor]) -> Masks:
    """Mask what lies within a sub-network: connections with both ends in it, its biases, its part of norms and head."""
    masks = {"head/bias": _whole(tensors)}
    for layer in (*graph.layers, graph.head):
        weight, bias = tensor_names(layer)
        masks[weight] = reduce(and_, _ends(layer, units))
        if layer.group is not None:
            masks[bias] = units[layer.group]
    for norm in graph.norms:
        group = norm.source.group
        mask = _whole(tensors) if group is None else units[group].repeat_interleave(norm.source.spread)
        masks |= {f"norm/{norm.name}/{name}": mask for name in ("weight", "bias")}
    return masks


def stamped_later(graph: Graph, tensors: Mapping[str, Tensor], before: Widths) -> Masks:
    """Mask what is newer than the first ``before`` units of each group: connections with an end there, norms, head."""
    new = []
    for group, first in enumerate(before):
        norms = unit_norms(graph, tensors, group)
        new.append(torch.arange(len(norms), device=norms.device) >= first)
    masks = {name: _whole(tensors) for name in tensors if not name.startswith("layer/")}
    for layer in graph.layers:
        assert layer.group is not None
        weight, bias = tensor_names(layer)
        masks[weight] = reduce(or_, _ends(layer, new))
        masks[bias] = new[layer.group]
    return masks


def _ends(layer: Layer, units: Sequence[Tensor]) -> list[Tensor]:
    """Return which outputs (out, 1, …) and inputs (1, in, …) of a layer are of these units; raw input has none."""
    beyond = (1,) * len(layer.kernel)
    ends = [] if layer.group is None else [units[layer.group].view(-1, 1, *beyond)]
    if layer.source.group is not None:
        ends.append(units[layer.source.group].repeat_interleave(layer.source.spread).view(1, -1, *beyond))
    return ends


def _whole(tensors: Mapping[str, Tensor]) -> Tensor:
    return torch.tensor(True, device=tensors["head/weight"].device)

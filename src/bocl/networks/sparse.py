"""What DEN does with weights: proximal steps, the sub-network that is reached, masks of what is trained.

A unit's *group* is all that makes its output: its incoming weights (a filter's, for a convolution), its bias and,
where a norm follows, its scale and shift. The output of a unit whose group is zero is zero.

Sets of units are boolean tensors (C,), one per channel group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_, or_

import torch
from torch import Tensor

from bocl.networks.graph import Graph, Layer
from bocl.networks.growth import tensor_names
from bocl.widths import Widths

Masks = dict[
    str, Tensor
]  # tensor → which of its entries are trained, to be broadcast; a tensor left out is not trained
NEWTON_STEPS = 6  # exact to double precision, even where steps in a group differ by twelve powers of ten
_TINY = torch.finfo(torch.float64).tiny


def soft_threshold(w: Tensor, threshold: Tensor | float) -> Tensor:
    """Return argmin_v ½(v - w)² + threshold·|v| for every entry of w; the threshold is one number or one per entry."""
    return w.sign() * (w.abs() - threshold).clamp(min=0)


def shrink_groups(w: Tensor, steps: Tensor, coefficient: float) -> Tensor:
    """Return argmin_v γ‖v‖ + Σ_i (v_i - w_i)² / (2 s_i) for every row, where γ is the coefficient.

    w      (C, n), a group in each row
    steps  s (C, n)

    It is v_i = w_i ν / (ν + γ s_i), where ν = ‖v‖ makes Σ_i (w_i / (ν + γ s_i))² = 1; where no ν > 0 does, it is 0.
    Newton's method finds ν from below, because 1 / √sum is concave in it, and linear where all steps are equal.
    """
    w, reach = w.double(), coefficient * steps.double()  # Adam's steps differ by many powers of ten
    norms: Tensor = (_norms(w) - reach.amax(1, keepdim=True)).clamp(min=0)
    for _ in range(NEWTON_STEPS):
        whole = (norms + reach).clamp(min=_TINY)
        terms = (w / whole).square()
        total, slope = terms.sum(1, keepdim=True), (terms / whole).sum(1, keepdim=True)
        norms = (norms + total * (total.sqrt() - 1) / slope.clamp(min=_TINY)).clamp(min=0)
    return w * norms / (norms + reach).clamp(min=_TINY)


def unit_norms(graph: Graph, tensors: Mapping[str, Tensor], group: int) -> Tensor:
    """Return ‖·‖ of every unit's group, (C,), over the tensors that are given."""
    return _norms(_joined_units(graph, tensors, group)).squeeze(1)


def silent_units(graph: Graph, tensors: Mapping[str, Tensor], group: int) -> Tensor:
    """Return the units whose group is all zeros, (C,)."""
    return ~_joined_units(graph, tensors, group).any(1)


def shrink_units(
    graph: Graph, tensors: Mapping[str, Tensor], steps: Mapping[str, Tensor], before: Widths, coefficient: float
) -> None:
    """Take a group-lasso step, in place, on every unit after the first ``before`` of each channel group.

    steps  the step size of every entry, in the shape of its tensor
    """
    for group, first in enumerate(before):
        parts = [part[first:] for part in _unit_parts(graph, tensors, group)]
        shrunk = shrink_groups(torch.cat(parts, dim=1), _joined_units(graph, steps, group)[first:], coefficient)
        for part, now in zip(parts, shrunk.split([part.shape[1] for part in parts], dim=1), strict=True):
            part.copy_(now)


def _norms(rows: Tensor) -> Tensor:
    """Return ‖·‖ of every row of (C, n): (C, 1)."""
    return rows.square().sum(1, keepdim=True).sqrt()


def _joined_units(graph: Graph, tensors: Mapping[str, Tensor], group: int) -> Tensor:
    """Return the tensors that make the units of a group, joined, with one unit in each row: (C, n)."""
    return torch.cat(_unit_parts(graph, tensors, group), dim=1)


def _unit_parts(graph: Graph, tensors: Mapping[str, Tensor], group: int) -> list[Tensor]:
    """Return views (C, …) of the tensors that make the units of a group: rows, biases, scales, shifts."""
    names = [name for layer in graph.layers if layer.group == group for name in tensor_names(layer)]
    for norm in graph.norms:
        if norm.source.group == group:
            names += [f"norm/{norm.name}/weight", f"norm/{norm.name}/bias"]
    units = len(tensors[names[0]])
    return [tensors[name].view(units, -1) for name in names if name in tensors]


def reached_units(graph: Graph, tensors: Mapping[str, Tensor]) -> list[Tensor]:
    """Return the units that the head reaches through weights that are not zero: booleans (C,) for every group."""
    rows = [tensors[f"layer/{group.name}/rows"] for group in graph.groups]
    reached = [torch.zeros(len(units), dtype=torch.bool, device=units.device) for units in rows]
    for layer in (graph.head, *reversed(graph.layers)):
        if layer.source.group is not None:
            weight = tensors[tensor_names(layer)[0]]
            weight = weight if layer.group is None else weight[reached[layer.group]]
            reads = (weight != 0).flatten(1).any(0)  # (in·kernel,)
            reached[layer.source.group] |= reads.view(len(reached[layer.source.group]), -1).any(1)
    return reached


def masks_within(graph: Graph, tensors: Mapping[str, Tensor], units: Sequence[Tensor]) -> Masks:
    """Mask what lies within a sub-network: connections with both ends in it, its biases, its part of norms and head.

    units  the units of every group that are in it, booleans (C,)

    Masks of weights are (out, in, 1, …), of layers that read raw input (out, 1, …), of the head (1, in); those of
    biases and norms are (C,) or (C·spread,).
    """
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


def masks_of_new(graph: Graph, tensors: Mapping[str, Tensor], before: Widths) -> Masks:
    """Mask what is newer than the first ``before`` units of each group: connections with an end there, norms, head.

    Masks have the shapes of ``masks_within``; norms and head have one for the whole tensor.
    """
    rows = [tensors[f"layer/{group.name}/rows"] for group in graph.groups]
    new = [torch.arange(len(units), device=units.device) >= first for units, first in zip(rows, before, strict=True)]
    masks = {name: _whole(tensors) for name in tensors if not name.startswith("layer/")}
    for layer in graph.layers:
        assert layer.group is not None
        weight, bias = tensor_names(layer)
        masks[weight] = reduce(or_, _ends(layer, new))
        masks[bias] = new[layer.group]
    return masks


def _ends(layer: Layer, units: Sequence[Tensor]) -> list[Tensor]:
    """Return which outputs (out, 1, …) and inputs (1, in, …) of a layer are among these units; raw input has none."""
    beyond = (1,) * len(layer.kernel)
    ends = [] if layer.group is None else [units[layer.group].view(-1, 1, *beyond)]
    if layer.source.group is not None:
        ends.append(units[layer.source.group].repeat_interleave(layer.source.spread).view(1, -1, *beyond))
    return ends


def _whole(tensors: Mapping[str, Tensor]) -> Tensor:
    """Return the mask () of a tensor that is trained whole."""
    return torch.tensor(True, device=tensors["head/weight"].device)

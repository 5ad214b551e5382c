"""K children that grow beside a frozen network: it never reads them, so it is computed once for all of them.

This holds where old units read no new ones, nothing is gated, and norms of old units are frozen. Every value has two
parts, the frozen units (n, C, *space), which need no gradient, and each child's own (K, n, C', *space):

    old = W frozen        new = rows_old frozen + rows_new own
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bocl.networks import functions
from bocl.networks.compact import CompactNetwork, bias_alone
from bocl.networks.graph import Add, Function, Layer, Multiply, Norm
from bocl.networks.growth import tensor_names
from bocl.networks.norms import normalise_batch, normalise_by_first, normalise_masked, per_channel, scale_and_shift
from bocl.networks.products import own_product, plain_product, shared_product

if TYPE_CHECKING:
    from bocl.networks.stacked import Children

Parts = tuple[Tensor, Tensor | None]  # frozen and own; raw input is all frozen


def logits_aside(children: Children, frozen: CompactNetwork, x: Tensor, head: str) -> Tensor:
    """Return logits (K, n, classes) for shared inputs (n, *shape)."""
    values: list[Parts] = [(x, None)]
    for step in children.graph.steps:
        old, own = values[step.reads[0]]
        match step:
            case Layer():
                values.append(_layer(children, frozen, step, (old, own), head))
            case Norm():
                values.append((_frozen_norm(frozen, step, old), own_norm(children, step, old, own)))
            case Function():
                values.append(_function(children, step, old, own))
            case Add() | Multiply():
                other, others = values[step.reads[1]]
                assert own is not None
                assert others is not None
                added = isinstance(step, Add)
                values.append((old + other, own + others) if added else (old * other, own * others))
    logits = values[-1][1]
    assert logits is not None
    return logits


def _layer(children: Children, frozen: CompactNetwork, layer: Layer, value: Parts, head: str) -> Parts:
    old, own = value
    weight_name, bias_name = tensor_names(layer, head)
    rows, bias = children.parameters[weight_name], children.parameters.get(bias_name)
    with torch.no_grad():
        if layer.separate:
            known = frozen.separate_product(layer, old)
        elif layer.group is None:
            known = old  # of a head, which is all the task's own
        else:
            known = plain_product(layer, old, *frozen.weight_and_bias(layer))
    if not rows.shape[1]:
        return known, known.new_empty(children.count, len(known), 0, *known.shape[2:])
    if layer.separate:
        assert own is not None
        if not rows.numel():
            return known, bias_alone((*own.shape[:2], rows.shape[1], *known.shape[2:]), bias, known)
        groups = layer.groups_of(own.shape[2], rows.shape[1], is_root=False)
        return known, own_product(layer, own, rows, bias, groups)
    from_old, from_new = rows.split([old.shape[1], rows.shape[2] - old.shape[1]], dim=2)
    new = shared_product(layer, old, from_old, bias)
    if own is not None and from_new.shape[2]:
        new = new + own_product(layer, own, from_new, None)
    return known, new


def _frozen_norm(frozen: CompactNetwork, norm: Norm, old: Tensor) -> Tensor:
    with torch.no_grad():
        return frozen.norm(norm, old)


def own_norm(children: Children, norm: Norm, old: Tensor, own: Tensor | None) -> Tensor | None:
    """Normalise each child's own units (K, n, C', *space) with its own statistics, scale and shift.

    old  the frozen units, (n, C, *space) or for every child (K, n, C, *space)
    """
    if own is None or not own.shape[2]:
        return own
    prefix, group = f"norm/{norm.name}", norm.source.group
    assert group is not None
    weight, bias = _affine(children.parameters, prefix)
    if norm.kind == "batch":
        mean, var = children.buffers[f"{prefix}/mean"], children.buffers[f"{prefix}/var"]
        return normalise_batch(norm, own, mean, var, weight, bias, training=children.training)
    mask = per_channel(children.masks[f"mask/{group}"][:, children.before[group] :], own)
    if norm.kind == "group":
        own = normalise_masked(norm, own, mask)
    else:
        assert children.frozen is not None
        own = normalise_by_first(norm, own, old[..., : children.frozen.blocks[0][group]]) * mask
    return scale_and_shift(own, weight, bias)


def _affine(tensors: Mapping[str, Tensor], prefix: str) -> tuple[Tensor | None, Tensor | None]:
    return tensors.get(f"{prefix}/weight"), tensors.get(f"{prefix}/bias")


def _function(children: Children, step: Function, old: Tensor, own: Tensor | None) -> Parts:
    old = functions.apply(step, old, training=children.training)
    if own is None:
        return old, None
    if not own.shape[2]:  # pools refuse images without channels
        return old, own.new_empty(*own.shape[:2], 0, *old.shape[2:])
    return old, children.own_function(step, own, new_only=True)

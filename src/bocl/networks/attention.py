"""Attention over what earlier tasks learnt: a gate before every layer but the first.

    β = sigmoid(W_s relu(W_c v + b_c) + b_s)        for each sample; the layer reads F ⊙ β
    β = sigmoid(b)                                  one number per unit, the same for all samples

v is the mean of each channel over space, or the node itself. One gate per task and layer; the gate of
a flattened feature map is per channel, not per column.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bocl.networks.own_kernels import kernels_of

#: W_c, b_c, W_s, b_s
NAMES = ("reduce.weight", "reduce.bias", "expand.weight", "expand.bias")
UNIT = "unit"  # b, (C,); of a task that does without, (0,)


def hidden_width(channels: Any, reduction: int) -> Any:
    """Return max(2, ⌈channels / reduction⌉) for an integer or an integer array."""
    return np.maximum(2, -(-channels // reduction))


def gate(x: Tensor, weights: Mapping[str, Tensor], prefix: str) -> Tensor:
    """Return F ⊙ β for x (…, n, C·spread) or (…, n, C, *space) and weights (…, h, C) and (…, C, h), or (…, C).

    Both may have a leading dimension K: a stack of K children. Of these some may do without unit gates: theirs are 1.
    """
    features, beta = features_and_gates(x, weights, prefix)
    return (features * beta.unsqueeze(-1)).reshape(x.shape)


def features_and_gates(x: Tensor, weights: Mapping[str, Tensor], prefix: str) -> tuple[Tensor, Tensor]:
    """Return F (…, n, C, columns) and β (…, n, C), or (…, 1, C), for the arguments of ``gate``."""
    first = weights[f"{prefix}/{UNIT}"] if f"{prefix}/{UNIT}" in weights else weights[f"{prefix}/{NAMES[0]}"][..., 0, :]
    lead, channels = first.shape[:-1], first.shape[-1]
    columns = prod(x.shape[len(lead) + 1 :]) // channels  # not -1: there may be no samples
    features = x.reshape(*lead, x.shape[len(lead)], channels, columns)
    return features, gates_of(features, weights, prefix)


def gates_of(features: Tensor, weights: Mapping[str, Tensor], prefix: str, means: Tensor | None = None) -> Tensor:
    """Return β (…, n, C), or (…, 1, C), for features (…, n, C, *space).

    means  (…, n, C) of the features over space, where they are known
    """
    if f"{prefix}/{UNIT}" in weights:
        return _unit_gates(weights, prefix)
    w_c, b_c, w_s, b_s = (weights[f"{prefix}/{name}"] for name in NAMES)
    kernels = None if means is None else kernels_of("gates", means)
    if means is None:
        columns = features.flatten(w_c.dim())
        means = columns.squeeze(-1) if columns.shape[-1] == 1 else columns.mean(-1)
    if kernels is not None and w_c.shape[-2] <= kernels.MOST_HIDDEN:
        found: Tensor = kernels.Gates.apply(means, w_c, b_c, w_s, b_s)
        return found
    hidden = torch.relu(means @ w_c.mT + b_c.unsqueeze(-2))
    return torch.sigmoid(hidden @ w_s.mT + b_s.unsqueeze(-2))


def is_gated(weights: Mapping[str, Tensor], prefix: str) -> bool:
    """Whether there are gates before a layer."""
    unit = weights.get(f"{prefix}/{UNIT}")
    return f"{prefix}/{NAMES[0]}" in weights if unit is None else unit.shape[-1] > 0


def _unit_gates(weights: Mapping[str, Tensor], prefix: str) -> Tensor:
    """Return β (…, 1, C); 1 for children of a stack that do without."""
    beta = weights[f"{prefix}/{UNIT}"].sigmoid().unsqueeze(-2)
    has_gates = weights.get(f"{prefix}/has gates")  # (K, 1)
    return beta if has_gates is None else torch.where(has_gates.unsqueeze(-1), beta, 1.0)


def gate_parts(shared: Tensor, own: Tensor | None, weights: Mapping[str, Tensor], prefix: str) -> tuple[Tensor, Tensor]:
    """Gate vectors whose first units all K children share: (n, C) and (K, n, C') → (K, n, C) and (K, n, C').

    The same as ``gate`` on the joined (K, n, C + C'), without joining it and without gradients for the shared part.
    """
    units = shared.shape[1]
    if f"{prefix}/{UNIT}" in weights:
        beta = _unit_gates(weights, prefix)
        old = shared * beta[..., :units]
        return old, old.new_empty(*old.shape[:2], 0) if own is None else own * beta[..., units:]
    w_c, b_c, w_s, b_s = (weights[f"{prefix}/{name}"] for name in NAMES)
    children, samples = len(w_c), len(shared)
    if own is None:
        own = shared.new_empty(children, samples, 0)
    from_shared = (shared @ w_c[:, :, :units].flatten(0, 1).mT).view(samples, children, -1).transpose(0, 1)
    hidden = torch.relu(torch.baddbmm(from_shared + b_c.unsqueeze(1), own, w_c[:, :, units:].mT))

    def computed(part: slice) -> Tensor:
        return torch.baddbmm(b_s[:, None, part], hidden, w_s[:, part].mT).sigmoid_()

    return shared * computed(slice(units)), own * computed(slice(units, None))

"""Attention over what earlier tasks learnt: a gate before every layer but the first.

    β = sigmoid(W_s relu(W_c v + b_c) + b_s)        the layer reads F ⊙ β

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

#: W_c, b_c, W_s, b_s
NAMES = ("reduce.weight", "reduce.bias", "expand.weight", "expand.bias")


def hidden_width(channels: Any, reduction: int) -> Any:
    """Return max(2, ⌈channels / reduction⌉) for an integer or an integer array."""
    return np.maximum(2, -(-channels // reduction))


def gate(x: Tensor, weights: Mapping[str, Tensor], prefix: str) -> Tensor:
    """Return F ⊙ β for x (…, n, C·spread) or (…, n, C, *space) and weights (…, h, C) and (…, C, h).

    Both may have a leading dimension K: a stack of K children.
    """
    features, beta = features_and_gates(x, weights, prefix)
    return (features * beta.unsqueeze(-1)).reshape(x.shape)


def features_and_gates(x: Tensor, weights: Mapping[str, Tensor], prefix: str) -> tuple[Tensor, Tensor]:
    """Return F (…, n, C, columns) and β (…, n, C) for the arguments of ``gate``."""
    w_c, b_c, w_s, b_s = (weights[f"{prefix}/{name}"] for name in NAMES)
    lead, channels = w_c.shape[:-2], w_c.shape[-1]
    columns = prod(x.shape[len(lead) + 1 :]) // channels
    features = x.reshape(*lead, x.shape[len(lead)], channels, columns)
    v = features.squeeze(-1) if columns == 1 else features.mean(-1)
    hidden = torch.relu(v @ w_c.mT + b_c.unsqueeze(-2))
    return features, torch.sigmoid(hidden @ w_s.mT + b_s.unsqueeze(-2))


def gate_parts(shared: Tensor, own: Tensor | None, weights: Mapping[str, Tensor], prefix: str) -> tuple[Tensor, Tensor]:
    """Gate vectors whose first units all K children share: (n, C) and (K, n, C') → (K, n, C) and (K, n, C').

    The same as ``gate`` on the joined (K, n, C + C'), without joining it and without gradients for the shared part.
    """
    w_c, b_c, w_s, b_s = (weights[f"{prefix}/{name}"] for name in NAMES)
    children, samples, units = len(w_c), len(shared), shared.shape[1]
    if own is None:
        own = shared.new_empty(children, samples, 0)
    from_shared = (shared @ w_c[:, :, :units].flatten(0, 1).mT).view(samples, children, -1).transpose(0, 1)
    hidden = torch.relu(torch.baddbmm(from_shared + b_c.unsqueeze(1), own, w_c[:, :, units:].mT))

    def beta(part: slice) -> Tensor:
        return torch.baddbmm(b_s[:, None, part], hidden, w_s[:, part].mT).sigmoid_()

    return shared * beta(slice(units)), own * beta(slice(units, None))

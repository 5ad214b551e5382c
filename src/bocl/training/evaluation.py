"""Accuracy, always measured in batches of one size, so that logits are the same to the bit."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bocl.training.batches import DeviceSplit
from bocl.training.precision import repeatable_products

BATCH = 1000


def accuracies(predict: Callable[[Tensor], Tensor], split: DeviceSplit) -> Tensor:
    """Return the share of samples put in the right class: (K,) for logits (K, n, classes), else a scalar."""
    hits = []
    with torch.no_grad():
        for start in range(0, len(split), BATCH):
            inputs, labels = split.rows(slice(start, start + BATCH))
            hits.append((predict(inputs).argmax(-1) == labels).sum(-1))
    return torch.stack(hits).sum(0).double() / len(split)


def accuracy(predict: Callable[[Tensor], Tensor], split: DeviceSplit) -> float:
    """Return the accuracy of one network with logits (n, classes), computed in full float32."""
    with repeatable_products("float32"):
        return float(accuracies(predict, split))

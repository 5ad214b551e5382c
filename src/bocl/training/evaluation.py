"""Accuracy and confidence, always measured in batches of one size, so that logits are the same to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from bocl.training.batches import DeviceSplit
from bocl.training.precision import repeatable_products

BATCH = 1000


class Scores(NamedTuple):
    """How good K networks are on some samples: (K,) each.

    accuracy    share of samples put in the right class
    confidence  mean probability of the right class: the accuracy that a network expects of itself where it knows how
                sure it may be. It needs a third of the samples to tell two networks apart
    """

    accuracy: Tensor
    confidence: Tensor


def scores(predict: Callable[[Tensor], Tensor], split: DeviceSplit) -> Scores:
    """Return accuracy and confidence: (K,) for logits (K, n, classes), else scalars."""
    hits, sure = [], []
    with torch.no_grad():
        for part in split.parts(BATCH):
            inputs, labels = split.rows(part)
            logits = predict(inputs)
            hits.append((logits.argmax(-1) == labels).sum(-1))
            right = labels.expand(logits.shape[:-1]).unsqueeze(-1)
            sure.append(logits.softmax(-1, dtype=torch.float64).gather(-1, right).squeeze(-1).sum(-1))
    return Scores(*(torch.stack(parts).sum(0).double() / len(split) for parts in (hits, sure)))


def accuracy(predict: Callable[[Tensor], Tensor], split: DeviceSplit) -> float:
    """Return the accuracy of one network with logits (n, classes), computed in full float32."""
    with repeatable_products("float32"):
        return float(scores(predict, split).accuracy)

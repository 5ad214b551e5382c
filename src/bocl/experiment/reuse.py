"""How far a finished task's gates are open to what it and each task before it added, for the record."""

from __future__ import annotations

import torch

from bocl.methods.method import Method
from bocl.networks.expandable import ExpandableNetwork
from bocl.training.batches import DeviceSplit
from bocl.training.evaluation import BATCH
from bocl.training.precision import repeatable_products


def mean_gates(method: Method, task: int, validation: DeviceSplit) -> dict[str, tuple[float, ...]]:
    """Return {gated layer: mean gate on the units of every task up to this one}; nothing of a method without gates.

    The mean is over the first validation samples, one batch of them.
    """
    network = getattr(method, "network", None)
    if not isinstance(network, ExpandableNetwork):
        return {}
    inputs, _ = validation.rows(slice(0, BATCH))
    with torch.no_grad(), repeatable_products("float32"):
        found = network.tasks[task].openness(inputs)
    return {layer: tuple(means.tolist()) for layer, means in found.items()}

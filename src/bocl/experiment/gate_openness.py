"""How far a finished task's gates are open to what it and each task before it added, for the record."""

from __future__ import annotations

import torch

from bocl.methods.method import Learner
from bocl.training.batches import DeviceSplit
from bocl.training.evaluation import BATCH
from bocl.training.precision import repeatable_products


def mean_gates(learner: Learner, task: int, validation: DeviceSplit) -> dict[str, tuple[float, ...]]:
    """Return {gated layer: mean gate on the units of every task up to this one}, over one batch of samples."""
    inputs, _ = validation.rows(slice(0, BATCH))
    with torch.no_grad(), repeatable_products("float32"):
        found = learner.gate_openness(task, inputs)
    return {layer: tuple(means.tolist()) for layer, means in found.items()}

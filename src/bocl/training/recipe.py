"""How a network is trained: one recipe for every method of a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from bocl.checks import Natural, NonNegative, Positive, PositiveInt, section


@section("recipe")
@dataclass(frozen=True)
class Recipe:
    """Optimiser, batches and length of a training.

    optimiser      `sgd` (with momentum) or `adam`
    weight_decay   L2 on every trained weight
    epochs         passes over the training samples
    schedule       learning rate `constant`, or `cosine` down to 0 over all steps
    patience       stop when validation accuracy has not risen for so many epochs, and keep the best epoch; 0 = off
    precision      of products on a GPU: `tf32`, `float32`, or `bf16` (weights and sums stay float32)
    """

    optimiser: Literal["adam", "sgd"] = "adam"
    learning_rate: Positive = 1e-3
    momentum: Annotated[NonNegative, Field(lt=1)] = 0.9
    weight_decay: NonNegative = 1e-4
    batch_size: PositiveInt = 32
    epochs: PositiveInt = 15
    schedule: Literal["constant", "cosine"] = "constant"
    patience: Natural = 0
    precision: Literal["tf32", "float32", "bf16"] = "tf32"

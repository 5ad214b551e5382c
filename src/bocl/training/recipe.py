"""How a network is trained: one recipe for every method of a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from bocl.checks import number, settle, whole, word

Optimiser = Literal["adam", "sgd"]
Schedule = Literal["constant", "cosine"]
Precision = Literal["tf32", "float32", "bf16"]


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

    optimiser: Optimiser = "adam"
    learning_rate: float = 1e-3
    momentum: float = 0.9
    weight_decay: float = 1e-4
    batch_size: int = 32
    epochs: int = 15
    schedule: Schedule = "constant"
    patience: int = 0
    precision: Precision = "tf32"

    def __post_init__(self) -> None:
        settle(
            self,
            "recipe",
            optimiser=word(*get_args(Optimiser)),
            learning_rate=number(above=0),
            momentum=number(least=0, below=1),
            weight_decay=number(least=0),
            batch_size=whole(least=1),
            epochs=whole(least=1),
            schedule=word(*get_args(Schedule)),
            patience=whole(least=0),
            precision=word(*get_args(Precision)),
        )

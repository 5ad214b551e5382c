"""How a network is trained: one recipe for every method of a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from bocl.errors import ConfigError

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
        checks = {
            "optimiser": (self.optimiser in get_args(Optimiser), " or ".join(get_args(Optimiser))),
            "schedule": (self.schedule in get_args(Schedule), " or ".join(get_args(Schedule))),
            "precision": (self.precision in get_args(Precision), " or ".join(get_args(Precision))),
            "learning_rate": (self.learning_rate > 0, "above 0"),
            "momentum": (0 <= self.momentum < 1, "in [0, 1)"),
            "weight_decay": (self.weight_decay >= 0, "0 or more"),
            "batch_size": (self.batch_size >= 1, "at least 1"),
            "epochs": (self.epochs >= 1, "at least 1"),
            "patience": (self.patience >= 0, "0 (off) or more"),
        }
        problems = [
            f"recipe.{name} is {getattr(self, name)}; it must be {wanted}"
            for name, (right, wanted) in checks.items()
            if not right
        ]
        if problems:
            raise ConfigError("; ".join(problems))

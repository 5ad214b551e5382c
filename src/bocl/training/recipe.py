"""How a network is trained: one recipe for every method of a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bocl.errors import ConfigError


@dataclass(frozen=True)
class Recipe:
    """Optimiser, batches and length of a training.

    optimiser      `sgd` (with momentum) or `adam`
    weight_decay   L2 on every trained weight
    epochs         passes over the training samples
    schedule       learning rate `constant`, or `cosine` down to 0 over all steps
    patience       stop when validation accuracy has not risen for so many epochs, and keep the best epoch; 0 = off
    """

    optimiser: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 1e-3
    momentum: float = 0.9
    weight_decay: float = 1e-4
    batch_size: int = 32
    epochs: int = 15
    schedule: Literal["constant", "cosine"] = "constant"
    patience: int = 0

    def __post_init__(self) -> None:
        problems = []
        if not self.learning_rate > 0:
            problems.append(f"recipe.learning_rate is {self.learning_rate}; it must be above 0")
        if not 0 <= self.momentum < 1:
            problems.append(f"recipe.momentum is {self.momentum}; it must be in [0, 1)")
        if not self.weight_decay >= 0:
            problems.append(f"recipe.weight_decay is {self.weight_decay}; it must not be negative")
        for name in ("batch_size", "epochs"):
            if getattr(self, name) < 1:
                problems.append(f"recipe.{name} is {getattr(self, name)}; it must be at least 1")
        if self.patience < 0:
            problems.append(f"recipe.patience is {self.patience}; it must be 0 (off) or more")
        if problems:
            raise ConfigError("; ".join(problems))

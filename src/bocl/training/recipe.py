"""How a network is trained: one recipe for every method of a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from bocl.checks import Natural, NonNegative, Positive, PositiveInt, section

USUAL_EPOCHS = 15
LEAST_STEPS = 1000


@section("recipe")
@dataclass(frozen=True)
class Recipe:
    """Optimiser, batches and length of a training.

    optimiser      `sgd` (with momentum) or `adam`
    weight_decay   L2 on every trained weight
    epochs         passes over the training samples. None: 15, and where samples are few as many as make 1,000 steps:
                   with less, a small network is not trained yet, and seems worse than it is
    schedule       learning rate `constant`, or `cosine` down to 0 over all steps
    patience       stop when validation accuracy has not risen for so many epochs, and keep the best epoch; 0 = off
    precision      of products on a GPU: `tf32`, `float32`, or `bf16` (weights and sums stay float32)
    """

    optimiser: Literal["adam", "sgd"] = "adam"
    learning_rate: Positive = 1e-3
    momentum: Annotated[NonNegative, Field(lt=1)] = 0.9
    weight_decay: NonNegative = 1e-4
    batch_size: PositiveInt = 32
    epochs: PositiveInt | None = None
    schedule: Literal["constant", "cosine"] = "constant"
    patience: Natural = 0
    precision: Literal["tf32", "float32", "bf16"] = "tf32"

    def steps(self, samples: int) -> int:
        """Return how many steps an epoch of so many samples makes."""
        return -(-samples // min(self.batch_size, samples))

    def epochs_of(self, steps: int) -> int:
        """Return how many epochs of so many steps a training makes."""
        return max(USUAL_EPOCHS, -(-LEAST_STEPS // steps)) if self.epochs is None else self.epochs

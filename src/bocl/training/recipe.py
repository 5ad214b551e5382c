"""How a network is trained: one recipe for every method of a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from bocl.checks import Fraction, Natural, NonNegative, Positive, PositiveInt, section
from bocl.errors import ConfigError

Augment = Literal["off", "flip", "shift", "flip-shift"]
USUAL_EPOCHS = 15
LEAST_STEPS = 1000


@section("recipe")
@dataclass(frozen=True)
class Recipe:
    """Optimiser, batches and length of a training.

    optimiser      `sgd` (with momentum), `adam`, or `adamw`
    weight_decay   L2 on every trained weight; with `adamw` weights shrink by this share of the learning rate instead
    epochs         passes over the training samples. None: 15, and where samples are few as many as make 1,000 steps:
                   with less, a small network is not trained yet, and seems worse than it is
    schedule       learning rate `constant`, or `cosine` down to 0 over all steps
    patience       stop when validation accuracy has not risen for so many epochs, and keep the best epoch; 0 = off
    precision      of products on a GPU: `tf32`, `float32`, or `bf16` (weights and sums stay float32)
    average        what is scored and kept: the weights of the last step (`off`), their mean over the `last` steps, or
                   their `exponential` mean. Statistics of batch norms are measured again for these weights
    average_share  of all steps, over which `last` takes the mean, and which `exponential` takes to forget
    augment        how a training image is changed, anew whenever it is shown: `flip` mirrors every other one, `shift`
                   moves it by up to an eighth of its height and width, `flip-shift` does both
    use_validation once nothing is left to choose, train on the validation samples, too: what a search has chosen is
                   trained once more, and a method that chooses nothing trains on all samples at once. Validation
                   accuracies of finished tasks are then of samples that were learnt; those of trials are not
    """

    optimiser: Literal["adam", "sgd", "adamw"] = "adam"
    learning_rate: Positive = 1e-3
    momentum: Annotated[NonNegative, Field(lt=1)] = 0.9
    weight_decay: NonNegative = 1e-4
    batch_size: PositiveInt = 32
    epochs: PositiveInt | None = None
    schedule: Literal["constant", "cosine"] = "constant"
    patience: Natural = 0
    precision: Literal["tf32", "float32", "bf16"] = "tf32"
    average: Literal["off", "last", "exponential"] = "off"
    average_share: Annotated[Fraction, Field(gt=0)] = 1 / 3
    augment: Augment = "off"
    use_validation: bool = False

    def __post_init__(self) -> None:
        if self.use_validation and self.patience:
            raise ConfigError(
                f"recipe.patience is {self.patience}, which stops a training by validation samples, and "
                "recipe.use_validation trains on them; leave out one of the two"
            )

    def steps(self, samples: int) -> int:
        """Return how many steps an epoch of so many samples makes."""
        return -(-samples // min(self.batch_size, samples))

    def epochs_of(self, steps: int) -> int:
        """Return how many epochs of so many steps a training makes."""
        return max(USUAL_EPOCHS, -(-LEAST_STEPS // steps)) if self.epochs is None else self.epochs

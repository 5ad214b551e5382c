"""A method in one file, as a newcomer would write it: the nearest class mean, of the pixels as they are.

mean_c = Σ_{y_i = c} x_i / n_c        logits_c = -‖x - mean_c‖²
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bocl.checks import Positive, checked, section
from bocl.methods.method import Learned, Learner
from bocl.networks.by_task import join_tensors, part_tensors
from bocl.networks.graph import Graph
from bocl.training.evaluation import accuracy
from bocl.training.recipe import Recipe


@section("toy")
@dataclass(frozen=True)
class ToySettings:
    """Of the method `toy`.

    sharpness  what squared distances are multiplied by
    """

    sharpness: Positive = 1.0


class Means:
    """The class means of every task, (classes, pixels) each."""

    def __init__(self, pixels: int, sharpness: float) -> None:
        self.pixels, self.sharpness = pixels, sharpness
        self.tasks: list[Tensor] = []

    def predict(self, x: Tensor, task: int) -> Tensor:
        return -self.sharpness * torch.cdist(x.flatten(1), self.tasks[task]) ** 2

    def parameters(self) -> dict[str, int]:
        return {"shared": 0, "heads": sum(means.numel() for means in self.tasks), "attention": 0, "norms": 0}

    def stored(self, first: int = 0, last: int | None = None, /) -> tuple[dict[str, Any], dict[str, Tensor]]:
        return {}, join_tensors(({"means": means} for means in self.tasks[first:last]), first)

    def stored_shapes(self, _facts: Mapping[str, Any], classes: Sequence[int]) -> dict[str, tuple[int, ...]]:
        return {f"{task}/means": (count, self.pixels) for task, count in enumerate(classes)}

    def restore(self, _facts: Mapping[str, Any], tensors: Mapping[str, Tensor], classes: Sequence[int]) -> None:
        self.tasks = [part["means"] for part in part_tensors(tensors, len(classes))]


class Toy(Learner):
    """Nearest class mean; it forgets nothing."""

    name: ClassVar[str] = "toy"
    forgets: ClassVar[bool] = False

    def __init__(
        self,
        network: nn.Module | Graph,
        *,
        settings: ToySettings = ToySettings(),  # noqa: B008 - frozen
        recipe: Recipe = Recipe(),  # noqa: B008
        seed: int = 0,
        device: str | torch.device = "auto",
    ) -> None:
        super().__init__(network, recipe=recipe, seed=seed, device=device)
        self.settings = checked("settings", settings, ToySettings)
        self.network = Means(self.graph.layers[0].source.width, settings.sharpness)

    def _learn(self, task, data, _callback, _trainer, /) -> Learned:
        inputs, labels = data.train.rows(slice(None))
        means = torch.stack([inputs[labels == label].flatten(1).mean(0) for label in range(task.classes)])
        self.network.tasks.append(means)
        score = accuracy(lambda x: self.network.predict(x, data.index), data.validation)
        added = {"shared": 0, "heads": means.numel(), "attention": 0, "norms": 0}
        return Learned(task.name, (0,) * len(self.graph.groups), score, added)

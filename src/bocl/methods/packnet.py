"""PackNet: every task trains the weights that are free, keeps the largest of them, and gives the others free.

    1. training    min_θ L_t(θ; D_t) over the free weights; those of earlier tasks are used as they are
    2. pruning     of a layer's free weights the share p_t with the largest |θ| is kept, the others are 0
    3. retraining  the same over the kept weights, for fewer epochs at a tenth of the learning rate

A task uses its own weights and those of all tasks before it.

Source: Mallya and Lazebnik, "PackNet: Adding Multiple Tasks to a Single Network by Iterative Pruning" (2018), and its
code: 20 epochs at 1e-3 and then 1e-4, half to three quarters of the weights pruned, 10 epochs of retraining. Where this
deviates:

- p_t is 1/(T - t + 1) by default, for T tasks that keep equal parts of the network;
- weights of earlier tasks are kept out of the optimiser, so that a momentum or decay cannot move them either. So the
  recipe's weight decay may stay on: it is applied to what is trained;
- free weights begin each task anew at random, where the code begins at the 0 that pruning left;
- biases and norms are each task's own, as its head is; there they are those of the first task;
- retraining is at a tenth of the recipe's rate.

A task after the last of T finds no free weight: it learns a head, norms and biases.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from bocl.checks import Fraction, PositiveInt, checked, section
from bocl.methods.guessing import GuessSettings
from bocl.methods.method import Learned, Learner
from bocl.methods.plain import train_one
from bocl.methods.rounds import RoundTrainer
from bocl.methods.subnetworks import learned_masked
from bocl.networks.graph import Graph
from bocl.networks.growth import Growth
from bocl.networks.masked import ByLayer, MaskedNetwork
from bocl.networks.subnetworks import Draft, Subnetworks
from bocl.records.events import Callback, RoundStarted
from bocl.seeding import seed_for
from bocl.tasks.task import Task
from bocl.training.batches import DeviceTask
from bocl.training.recipe import Recipe
from bocl.training.trainer import Fit

SLOWER = 0.1  # the learning rate of the retraining, as a share of the recipe's


@section("packnet")
@dataclass(frozen=True)
class PackNetSettings:
    """Of the method `packnet`.

    keep     p, share of a layer's free weights that a task keeps. None: equal parts for all tasks
    retrain  epochs of the retraining, as a share of the recipe's
    """

    keep: Annotated[Fraction, Field(gt=0)] | None = None
    retrain: Annotated[Fraction, Field(gt=0)] = 0.5


class PackNet(Learner):
    """Iterative pruning: every task keeps a part of the network's free weights, which no later task changes."""

    name: ClassVar[str] = "packnet"
    forgets: ClassVar[bool] = False
    graph: Graph
    network: MaskedNetwork

    def __init__(
        self,
        network: nn.Module | Graph,
        *,
        settings: PackNetSettings = PackNetSettings(),  # noqa: B008 - frozen
        tasks: int = 10,
        recipe: Recipe = Recipe(),  # noqa: B008
        seed: int = 0,
        device: str | torch.device = "auto",
        guess: GuessSettings = GuessSettings(),  # noqa: B008
    ) -> None:
        """Take any network BOCL takes.

        tasks  T, how many there will be: the network is shared out among them
        """
        super().__init__(network, recipe=recipe, seed=seed, device=device, guess=guess)
        self.settings = checked("settings", settings, PackNetSettings)
        self.tasks = checked("tasks", tasks, PositiveInt)
        self.network = MaskedNetwork(self.graph, device=self.device)

    def _learn(self, task: Task, data: DeviceTask, callback: Callback, _trainer: RoundTrainer, /) -> Learned:
        """Train what is free, prune it, and train the rest again."""
        network, used, weights = self.network, self.network.used, self.network.weights
        start = network.start(task.classes, seed=seed_for(self.seed, "base", data.index))
        whole, first = self._train(start, used, weights, data, self.recipe, "base", callback)

        share = self.settings.keep or 1 / max(self.tasks - data.index, 1)
        kept = {name: largest(weight, ~used[name], share) for name, weight in whole.weights(0).items()}
        unchanged = {name: ~each for name, each in kept.items()}  # and 0 where no task has kept a weight
        recipe = retraining(self.recipe, len(data.train), self.settings.retrain)
        pruned, second = self._train(whole.growth(0), unchanged, weights, data, recipe, "retraining", callback)

        masks = {name: used[name] | each for name, each in kept.items()}
        network.commit(pruned.growth(0).tensors, masks, pruned.weights(0))
        return learned_masked(network, data, first.effort + second.effort)

    def _train(
        self,
        start: Growth,
        fixed: ByLayer,
        weights: ByLayer,
        data: DeviceTask,
        recipe: Recipe,
        step: str,
        callback: Callback,
    ) -> tuple[Subnetworks, Fit]:
        """Train all weights that are not fixed."""
        callback(RoundStarted(step, (self.graph.widths,)))
        trained = Subnetworks(self.graph, [Draft(start, fixed, weights)], device=self.device)
        seed = seed_for(self.seed, "order", data.index, step)
        return trained, train_one(trained, [data], recipe, seed=seed, callback=callback)


def largest(weights: Tensor, free: Tensor, share: float) -> Tensor:
    """Return which of the free weights are the given share of them with the largest size."""
    sizes = weights.abs().masked_fill(~free, -1).flatten()
    order = sizes.sort(descending=True, stable=True).indices
    chosen = torch.zeros_like(sizes, dtype=torch.bool)
    chosen[order[: ceil(share * int(free.sum()))]] = True
    return chosen.view_as(weights)


def retraining(recipe: Recipe, samples: int, share: float) -> Recipe:
    """Return the recipe of the training after pruning: fewer epochs at a lower rate."""
    epochs = recipe.epochs_of(recipe.steps(samples))
    return replace(recipe, epochs=max(1, round(share * epochs)), learning_rate=SLOWER * recipe.learning_rate)

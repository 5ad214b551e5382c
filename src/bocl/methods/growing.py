"""What methods on a growing network have in common."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from bocl.checks import checked
from bocl.errors import ConfigError
from bocl.methods.failures import check_trained
from bocl.methods.guessing import GuessSettings
from bocl.methods.method import Learned, Learner
from bocl.methods.rounds import RoundMaker, RoundTrainer
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.graph import Graph
from bocl.networks.growing import Base, GrowingNetwork, pretrained_base
from bocl.networks.growth import Growth, GrowthSettings, count_tensors
from bocl.networks.low_rank.backbone import Backbone
from bocl.networks.low_rank.network import FactoredNetwork
from bocl.networks.pretrained import Pretrained
from bocl.records.events import Callback, RoundStarted
from bocl.tasks.task import Task, with_validation
from bocl.training.batches import DeviceTask, task_to_device
from bocl.training.device import resolve_device
from bocl.training.evaluation import accuracy
from bocl.training.recipe import Recipe
from bocl.training.trainer import Effort
from bocl.widths import Widths


class GrowingLearner(Learner):
    """A learner whose network grows for every task and whose earlier tasks are frozen."""

    forgets = False
    network: GrowingNetwork

    def __init__(
        self,
        network: nn.Module | Base,
        *,
        growth: GrowthSettings,
        recipe: Recipe,
        seed: int,
        device: str | torch.device,
        pretrained: bool = False,
        guess: GuessSettings = GuessSettings(),  # noqa: B008 - frozen
    ) -> None:
        self.growth = checked("growth", growth, GrowthSettings)
        self.pretrained = checked("pretrained", pretrained, bool)
        if growth.form == "low-rank" and not pretrained:
            raise ConfigError(
                "growth.form is low-rank, which adapts a trained network and keeps its weights; pass pretrained=True, "
                "or grow by units"
            )
        if growth.form == "low-rank" and isinstance(network, Graph):
            raise ConfigError("growth.form is low-rank, which adapts an nn.Module; a traced graph has no weights")
        if pretrained and isinstance(network, nn.Module):
            network = pretrained_base(network, growth, resolve_device(device))
        base = network.tensors if isinstance(network, Pretrained) else None
        graph = network.graph if isinstance(network, Pretrained) else network
        super().__init__(graph, recipe=recipe, seed=seed, device=device, guess=guess)
        if isinstance(self.graph, Backbone):
            self.network = FactoredNetwork(self.graph)
        else:
            self.network = ExpandableNetwork(self.graph, growth, self.device, pretrained=pretrained, base=base)

    def _on_all_samples(
        self, task: Task, index: int, growth: Growth, seed: int, callback: Callback, trainer: RoundTrainer
    ) -> tuple[Growth, Effort]:
        """Train the growth that was chosen once more, on the validation samples too, where the recipe says so.

        seed  of the first weights of the one that was chosen
        """
        if not self.recipe.use_validation:
            return growth, Effort()
        data = task_to_device(with_validation(task), index, self.device)
        rounds = RoundMaker(index, data.classes, self.recipe, self.seed)
        asked = rounds.children("final", [growth.widths], [seed], pad_to=growth.widths, reads=[growth.reads])
        callback(RoundStarted(asked.purpose, asked.widths))
        (child,) = trainer(asked, self.network, data, callback)
        check_trained(child.fit.accuracy, task.name, child.failure)
        return child.growth, child.fit.effort

    def _commit(self, task: Task, growth: Growth, data: DeviceTask) -> Learned:
        """Keep a winner, scored once more in compact form, the form it will predict in."""
        score = accuracy(self.network.candidate(growth), data.validation)
        self.network.commit(growth)
        parameters = count_tensors(growth.tensors)
        return Learned(task.name, growth.widths, score, parameters, reads=growth.reads)

    def base_sha256(self) -> str:
        """Return a sha256 of the pretrained weights that tasks grow from; '' without such."""
        return self.network.base_sha256()

    @property
    def frozen_features(self) -> Callable[[Tensor], Tensor] | None:
        """What the pretrained network alone makes of inputs, (n, C); None without one."""
        return self.network.base_features if self.network.pretrained else None

    def widths_by_task(self) -> list[Widths]:
        """Return what every task added."""
        return [growth.widths for growth in self.network.growths]

    def tensors_of(self, task: int) -> dict[str, Tensor]:
        """Return every tensor of a task, as stored and, ``compact/…``, as used to predict."""
        used = self.network.tasks[task].weights
        return super().tensors_of(task) | {f"compact/{name}": tensor for name, tensor in used.items()}

    def gate_openness(self, task: int, inputs: Tensor, /) -> dict[str, Tensor]:
        """Return {gated layer: mean gate on the units of every task up to this one}; NaN for tasks it does not read."""
        return self.network.gate_openness(task, inputs)

"""Control: a fresh base network for every task. Nothing is shared, nothing is forgotten, everything is stored."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from bocl.methods.method import Learned, Learner
from bocl.methods.plain import learned_plain, train_plain
from bocl.methods.rounds import RoundTrainer
from bocl.networks.graph import Graph
from bocl.networks.growth import PARTS
from bocl.networks.plain import SeparateNetworks
from bocl.records.events import Callback
from bocl.seeding import seed_for
from bocl.tasks.task import Task
from bocl.training.batches import DeviceTask
from bocl.training.recipe import Recipe


class Independent(Learner):
    """Control: a network of its own for every task, each trained alone."""

    name: ClassVar[str] = "independent"
    forgets: ClassVar[bool] = False
    network: SeparateNetworks

    def __init__(
        self,
        network: nn.Module | Graph,
        *,
        recipe: Recipe = Recipe(),  # noqa: B008 - frozen
        seed: int = 0,
        device: str | torch.device = "auto",
    ) -> None:
        """Take any network BOCL takes."""
        super().__init__(network, recipe=recipe, seed=seed, device=device)
        self.network = SeparateNetworks(self.graph, self.device)

    def _learn(self, task: Task, data: DeviceTask, callback: Callback, _trainer: RoundTrainer, /) -> Learned:
        """Train a network of its own for the task."""
        network = self.network.fresh()
        network.add_task(task.classes, seed=seed_for(self.seed, "base", data.index))
        order = seed_for(self.seed, "order", data.index)
        effort = train_plain(network, [data], self.recipe, seed=order, callback=callback)
        self.network.networks.append(network)
        return learned_plain(network, data, head=0, before=dict.fromkeys(PARTS, 0), effort=effort)

"""Control: a network of its own for every task. Nothing is shared, nothing is forgotten, everything is stored.

With a pretrained module every task's network starts from it: fine-tuning, task by task.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import torch
from torch import nn

from bocl.checks import checked
from bocl.methods.guessing import GuessSettings
from bocl.methods.method import Learned, Learner
from bocl.methods.plain import learned_plain, train_one, train_plain
from bocl.methods.rounds import RoundTrainer
from bocl.networks.growing import Base, whole_base
from bocl.networks.growth import PARTS
from bocl.networks.low_rank.backbone import Backbone
from bocl.networks.plain import SeparateNetworks
from bocl.networks.whole import WholeModules, count_whole
from bocl.records.events import Callback, RoundStarted
from bocl.seeding import seed_for
from bocl.tasks.task import Task
from bocl.training.batches import DeviceTask
from bocl.training.device import resolve_device
from bocl.training.evaluation import accuracy
from bocl.training.recipe import Recipe


class Independent(Learner):
    """Control: a network of its own for every task, each trained alone."""

    name: ClassVar[str] = "independent"
    forgets: ClassVar[bool] = False
    takes_whole: ClassVar[bool] = True
    network: SeparateNetworks | WholeModules

    def __init__(
        self,
        network: nn.Module | Base,
        *,
        recipe: Recipe = Recipe(),  # noqa: B008 - frozen
        seed: int = 0,
        device: str | torch.device = "auto",
        guess: GuessSettings = GuessSettings(),  # noqa: B008
        pretrained: bool = False,
    ) -> None:
        """Take any network BOCL takes, and with ``pretrained`` any module, from whose weights every task starts."""
        self.pretrained = checked("pretrained", pretrained, bool)
        base = whole_base(network, resolve_device(device), pretrained=self.pretrained)
        super().__init__(base, recipe=recipe, seed=seed, device=device, guess=guess)
        if isinstance(self.graph, Backbone):
            self.network = WholeModules(self.graph)
        else:
            self.network = SeparateNetworks(self.graph, self.device)

    def _learn(self, task: Task, data: DeviceTask, callback: Callback, _trainer: RoundTrainer, /) -> Learned:
        """Train a network of its own for the task."""
        if isinstance(self.network, WholeModules):
            return self._fine_tune(self.network, data, callback)
        network = self.network.fresh()
        network.add_task(task.classes, seed=seed_for(self.seed, "base", data.index))
        order = seed_for(self.seed, "order", data.index)
        effort = train_plain(network, [data], self.recipe, seed=order, callback=callback)
        self.network.networks.append(network)
        return learned_plain(network, data, head=0, before=dict.fromkeys(PARTS, 0), effort=effort)

    def _fine_tune(self, network: WholeModules, data: DeviceTask, callback: Callback) -> Learned:
        """Train a copy of the pretrained module."""
        copy = network.fresh(data.classes, seed=seed_for(self.seed, "base", data.index))
        callback(RoundStarted("base", (self.graph.no_units,)))
        order = seed_for(self.seed, "order", data.index)
        fit = train_one(copy, [data], self.recipe, seed=order, callback=callback)
        network.commit(copy.tensors)
        score = accuracy(partial(network.predict, task=len(network.tensors) - 1), data.validation)
        counted = count_whole(network.graph, network.tensors[-1])
        return Learned(data.name, self.graph.no_units, score, counted, effort=fit.effort)

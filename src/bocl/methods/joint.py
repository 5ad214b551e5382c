"""Control: one network trained on every task seen so far, all at once. It needs the data of all of them.

min_θ Σ_{i ≤ t} L_i(θ; D_i), from a fresh start at every task
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import nn

from bocl.errors import DataError
from bocl.methods.guessing import GuessSettings
from bocl.methods.method import Learned, Learner
from bocl.methods.plain import learned_plain, train_plain
from bocl.methods.rounds import RoundTrainer
from bocl.networks.graph import Graph
from bocl.networks.growth import PARTS
from bocl.networks.plain import PlainNetwork
from bocl.records.events import Callback
from bocl.seeding import seed_for
from bocl.tasks.task import Task
from bocl.training.batches import DeviceTask
from bocl.training.recipe import Recipe
from bocl.wording import counted


class Joint(Learner):
    """Control: one network with a head per task, trained from scratch on all tasks together."""

    name: ClassVar[str] = "joint"
    forgets: ClassVar[bool] = True
    graph: Graph
    network: PlainNetwork

    def __init__(
        self,
        network: nn.Module | Graph,
        *,
        recipe: Recipe = Recipe(),  # noqa: B008 - frozen
        seed: int = 0,
        device: str | torch.device = "auto",
        guess: GuessSettings = GuessSettings(),  # noqa: B008
    ) -> None:
        """Take any network BOCL takes."""
        super().__init__(network, recipe=recipe, seed=seed, device=device, guess=guess)
        self.network = PlainNetwork(self.graph, device=self.device)
        self.data: list[Task] = []  # of every task learnt

    def _learn(self, task: Task, data: DeviceTask, callback: Callback, _trainer: RoundTrainer, /) -> Learned:
        """Train from scratch on this task and all before it."""
        if len(self.data) != len(self.seen):
            before = counted(len(self.seen), "task")
            raise DataError(f"joint training needs the data of the {before} learnt before; call recall()")
        tasks = [*(self.to_learn_from(each, index) for index, each in enumerate(self.data)), data]
        stored = self.parameters() if self.seen else dict.fromkeys(PARTS, 0)
        network = PlainNetwork(self.graph, device=self.device)
        for each in tasks:
            network.add_task(each.classes, seed=seed_for(self.seed, "base", each.index))
        order = seed_for(self.seed, "order", data.index)
        effort = train_plain(network, tasks, self.recipe, seed=order, callback=callback)
        learned = learned_plain(network, data, head=data.index, before=stored, effort=effort)
        self.network = network
        self.data.append(task)
        return learned

    def recall(self, tasks: Sequence[Task]) -> None:
        """Take back the data of the tasks learnt before, which no saved state holds."""
        self.data = list(tasks)

    def extra_numbers(self) -> int:
        """Count the training data of all tasks, which is in no state, and what tasks are guessed by."""
        samples = sum(task.train.raw.numel() + task.train.labels.numel() for task in self.data)
        return samples + super().extra_numbers()

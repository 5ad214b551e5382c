"""SN: one network fine-tuned through all tasks, with nothing against forgetting.

min_θ L_t(θ; D_t), started from θ_{t-1}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from bocl.checks import checked, section
from bocl.methods.guessing import GuessSettings
from bocl.methods.method import Learned, Learner
from bocl.methods.plain import fine_tune
from bocl.methods.rounds import RoundTrainer
from bocl.networks.graph import Graph
from bocl.networks.plain import PlainNetwork
from bocl.records.events import Callback
from bocl.tasks.task import Task
from bocl.training.batches import DeviceTask
from bocl.training.recipe import Recipe


@section("sn")
@dataclass(frozen=True)
class SNSettings:
    """Of the method `sn`.

    shared_head  one head for all tasks, or one each
    """

    shared_head: bool = False


class SN(Learner):
    """Single network, fine-tuned on one task after another; every task has its own head unless they share one."""

    name: ClassVar[str] = "sn"
    forgets: ClassVar[bool] = True
    graph: Graph
    network: PlainNetwork

    def __init__(
        self,
        network: nn.Module | Graph,
        *,
        settings: SNSettings = SNSettings(),  # noqa: B008 - frozen
        recipe: Recipe = Recipe(),  # noqa: B008
        seed: int = 0,
        device: str | torch.device = "auto",
        guess: GuessSettings = GuessSettings(),  # noqa: B008
    ) -> None:
        """Take any network BOCL takes."""
        super().__init__(network, recipe=recipe, seed=seed, device=device, guess=guess)
        self.settings = checked("settings", settings, SNSettings)
        self.network = PlainNetwork(self.graph, shared_head=settings.shared_head, device=self.device)

    def _learn(self, _task: Task, data: DeviceTask, callback: Callback, _trainer: RoundTrainer, /) -> Learned:
        """Fine-tune the whole network."""
        self.network, learned = fine_tune(self.network, data, self.recipe, seed=self.seed, callback=callback)
        return learned

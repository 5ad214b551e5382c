"""RCL, reinforced continual learning: the growth of BOCL without attention, searched by a recurrent controller.

r(z) = A(z) - α Σ_i z_i / n        z drawn from an LSTM's policy, which follows the gradient of E r(z)

Source: Xu and Zhu, Reinforced Continual Learning (2018), by its algorithm. A controller is made anew for every task.
Deviations, in both controllers: no child is trained twice, a repeated draw is answered from its record
(``search/reinforce.py``); the child z = 0 is trained with the first and can win; A is measured on validation samples.
The `tuned` controller also learns from batches of four, with standardised rewards, larger steps and an entropy bonus.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from bocl.checks import PositiveInt, section
from bocl.methods.bocl import BOCL
from bocl.methods.budget import GoalSettings
from bocl.methods.reward import RewardSettings
from bocl.networks.graph import Graph, Widths
from bocl.networks.growth import GrowthSettings, Wiring
from bocl.search.settings import ControllerName, SearchSettings
from bocl.training.recipe import Recipe


@section("rcl")
@dataclass(frozen=True)
class RCLSettings:
    """Of the method `rcl`: its controller and its trials per task; bounds, wiring and α are the other methods' own."""

    controller: ControllerName = "tuned"
    trials: PositiveInt = 50


class RCL(BOCL):
    """Reinforced continual learning: grows as a trained controller proposes, without attention, and forgets nothing.

    BOCL with other settings: no attention, the same price for a unit of every layer, the controller's search without
    early stopping or warm start, and so no need to remember what earlier searches tried.
    """

    name: ClassVar[str] = "rcl"
    forgets: ClassVar[bool] = False
    remembers: ClassVar[bool] = False

    def __init__(
        self,
        network: nn.Module | Graph,
        *,
        controller: ControllerName = "tuned",
        trials: int = 50,
        bounds: int | Widths = 29,
        memory_gb: float = 16.0,
        children_at_once: int | None = None,
        wiring: Wiring = "full",
        alpha: float = 5e-3,
        goal: GoalSettings = GoalSettings(),  # noqa: B008 - frozen
        tasks: int = 10,
        recipe: Recipe = Recipe(),  # noqa: B008
        seed: int = 0,
        device: str | torch.device = "auto",
    ) -> None:
        """Take any network BOCL takes.

        controller  `tuned`, or `as-released` by RCL's authors, which trains one child at a time
        trials      children trained for every task but the first
        bounds, memory_gb, children_at_once, wiring, alpha  as in SearchSettings, GrowthSettings and RewardSettings
        goal, tasks  as in BOCL
        """
        settings = RCLSettings(controller, trials)
        self.controller, self.trials = settings.controller, settings.trials
        search = SearchSettings(
            "reinforce",
            trials=self.trials,
            patience=self.trials,
            warm_points=0,
            bounds=bounds,
            memory_gb=memory_gb,
            children_at_once=children_at_once,
            round_size=1 if controller == "as-released" else SearchSettings.round_size,
            controller=controller,
        )
        super().__init__(
            network,
            growth=GrowthSettings(wiring, attention=False),
            search=search,
            reward=RewardSettings(alpha, "uniform"),
            goal=goal,
            tasks=tasks,
            recipe=recipe,
            seed=seed,
            device=device,
        )
        self.bounds = search.bounds
        self.memory_gb, self.children_at_once = search.memory_gb, search.children_at_once
        self.wiring, self.alpha = self.growth.wiring, self.reward.alpha

"""RCL, reinforced continual learning: the growth of BOCL without attention, searched by a recurrent controller.

r(z) = A(z) - α Σ_i z_i / n        z drawn from an LSTM's policy, which follows the gradient of E r(z)

Source: Xu and Zhu, Reinforced Continual Learning (2018), by its algorithm. Every task has a new controller.
Deviations, in both controllers: no child is trained twice, a repeated draw is answered from its record
(``search/reinforce.py``); the child z = 0 is trained with the first and can win; A is measured on validation samples.
The `tuned` controller also learns from batches of four, with standardised rewards, larger steps and an entropy bonus.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from bocl.checks import PositiveInt, checked, section
from bocl.methods.bocl import BOCL
from bocl.methods.budget import GoalSettings
from bocl.methods.guessing import GuessSettings
from bocl.methods.reward import USUAL_ALPHA, RewardSettings
from bocl.networks.graph import Graph
from bocl.networks.growth import GrowthSettings
from bocl.search.settings import ControllerName, SearchSettings
from bocl.training.recipe import Recipe

USUAL_BOUNDS = 29  # units a layer may grow by, where the settings leave it open
ROUND_SIZE = 8


@section("rcl")
@dataclass(frozen=True)
class RCLSettings:
    """Of the method `rcl`.

    controller  `tuned`, or `as-released` by RCL's authors, which trains one child at a time
    trials      children trained for every task but the first
    """

    controller: ControllerName = "tuned"
    trials: PositiveInt = 50


class RCL(BOCL):
    """Reinforced continual learning: grows as a trained controller proposes, without attention, and forgets nothing.

    BOCL with other settings: no attention, the same price for a unit of every layer, the controller's search without
    early stopping or warm start, and so no need to remember what earlier searches tried.
    """

    name: ClassVar[str] = "rcl"
    remembers: ClassVar[bool] = False

    def __init__(
        self,
        network: nn.Module | Graph,
        *,
        settings: RCLSettings = RCLSettings(),  # noqa: B008 - frozen
        growth: GrowthSettings = GrowthSettings(),  # noqa: B008
        search: SearchSettings = SearchSettings(),  # noqa: B008
        reward: RewardSettings = RewardSettings(),  # noqa: B008
        goal: GoalSettings = GoalSettings(),  # noqa: B008
        tasks: int = 10,
        recipe: Recipe = Recipe(),  # noqa: B008
        seed: int = 0,
        device: str | torch.device = "auto",
        guess: GuessSettings = GuessSettings(),  # noqa: B008
    ) -> None:
        """Take any network BOCL takes.

        growth, search, reward  of these only wiring, bounds, memory_gb, children_at_once, parts and alpha count here
        goal, tasks             as in BOCL
        """
        self.settings = checked("settings", settings, RCLSettings)
        growth, search = checked("growth", growth, GrowthSettings), checked("search", search, SearchSettings)
        reward, goal = checked("reward", reward, RewardSettings), checked("goal", goal, GoalSettings)
        usual = USUAL_ALPHA if goal.price is None else None
        super().__init__(
            network,
            growth=GrowthSettings("all", growth.wiring, attention=False),
            search=SearchSettings(
                "reinforce",
                trials=settings.trials,
                patience=settings.trials,
                warm_points=0,
                bounds=USUAL_BOUNDS if search.bounds is None else search.bounds,
                memory_gb=search.memory_gb,
                children_at_once=search.children_at_once,
                parts=search.parts,
                round_size=1 if settings.controller == "as-released" else ROUND_SIZE,
                halving=False,
                controller=settings.controller,
            ),
            reward=RewardSettings(usual if reward.alpha is None else reward.alpha, "uniform"),
            goal=goal,
            tasks=tasks,
            recipe=recipe,
            seed=seed,
            device=device,
            guess=guess,
        )

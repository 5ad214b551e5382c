"""Control: z = 0 for every task after the first. What the first network's features are worth to later tasks."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from bocl.methods.fixed import Fixed, FixedSettings
from bocl.methods.guessing import GuessSettings
from bocl.networks.graph import Graph
from bocl.networks.growth import GrowthSettings
from bocl.training.recipe import Recipe


class Frozen(Fixed):
    """Control: no growth at all; later tasks get attention over the first network's features, and a head."""

    name: ClassVar[str] = "frozen"

    def __init__(
        self,
        network: nn.Module | Graph,
        *,
        growth: GrowthSettings = GrowthSettings(),  # noqa: B008 - frozen
        recipe: Recipe = Recipe(),  # noqa: B008
        seed: int = 0,
        device: str | torch.device = "auto",
        guess: GuessSettings = GuessSettings(),  # noqa: B008
        pretrained: bool = False,
    ) -> None:
        """Take any network BOCL takes. Of a pretrained one, no task adds more than a head."""
        super().__init__(
            network,
            settings=FixedSettings(widths=0),
            growth=growth,
            recipe=recipe,
            seed=seed,
            device=device,
            pretrained=pretrained,
            guess=guess,
        )

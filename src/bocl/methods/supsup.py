"""SupSup: random weights that nothing ever trains, and for every task a mask over them.

    min_s  L_t(W ⊙ m(s); D_t)               m(s) = 1 for the share c of a layer's weights with the largest |s|
    s ← s - η ∂L/∂m ∂|s|/∂s                 straight through: as if m were |s|

W is ±√(2/fan-in), signs drawn once. Tasks share nothing else, so they can be learnt in any order.

Source: Wortsman et al., "Supermasks in Superposition" (2020), where the task's number is known, and its code: Adam at
1e-3 for split CIFAR-100. Where this deviates:

- each task has a head of its own, trained as usual, in place of a mask over a head of many more outputs;
- norms are each task's own as there, but with their scale and shift, if the network has them, and so are biases;
- every layer has the same share of its weights, where the paper takes more of small layers;
- signs are kept as a bit each, where the paper keeps their seed: no one promises that it gives the same signs again.

The recipe's weight decay is not applied: scores are only compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from bocl.checks import checked, section
from bocl.methods.guessing import GuessSettings
from bocl.methods.method import Learned, Learner
from bocl.methods.rounds import RoundTrainer
from bocl.methods.subnetworks import Density, choose_subnetwork
from bocl.networks.graph import Graph
from bocl.networks.masked import MaskedNetwork
from bocl.networks.subnetworks import Draft
from bocl.records.events import Callback
from bocl.seeding import seed_for
from bocl.tasks.task import Task
from bocl.training.batches import DeviceTask
from bocl.training.recipe import Recipe


@section("supsup")
@dataclass(frozen=True)
class SupSupSettings:
    """Of the method `supsup`.

    density  c, share of a layer's weights that a task uses
    """

    density: Density = 0.5


class SupSup(Learner):
    """Supermasks in superposition: random weights that stay as they are, and a mask per task."""

    name: ClassVar[str] = "supsup"
    forgets: ClassVar[bool] = False
    graph: Graph
    network: MaskedNetwork

    def __init__(
        self,
        network: nn.Module | Graph,
        *,
        settings: SupSupSettings = SupSupSettings(),  # noqa: B008 - frozen
        recipe: Recipe = Recipe(),  # noqa: B008
        seed: int = 0,
        device: str | torch.device = "auto",
        guess: GuessSettings = GuessSettings(),  # noqa: B008
    ) -> None:
        """Take any network BOCL takes."""
        super().__init__(network, recipe=recipe, seed=seed, device=device, guess=guess)
        self.settings = checked("settings", settings, SupSupSettings)
        self.network = MaskedNetwork(self.graph, signed=True, device=self.device)

    def _learn(self, _task: Task, data: DeviceTask, callback: Callback, _trainer: RoundTrainer, /) -> Learned:
        """Choose a subnetwork of the random network, and train biases, norms and a head for it."""
        _, learned = choose_subnetwork(self, data, callback)
        return learned

    def draft(self, data: DeviceTask) -> Draft:
        """Return where a task's subnetwork starts: at scores of its own, with all weights fixed."""
        start = self.network.start(data.classes, seed=seed_for(self.seed, "base", data.index))
        constants = self.network.constants(seed=seed_for(self.seed, "signs"))
        fixed = {name: torch.ones_like(weight, dtype=torch.bool) for name, weight in constants.items()}
        scores = self.network.scores(seed=seed_for(self.seed, "scores", data.index))
        return Draft(start, fixed, constants, scores, self.settings.density)

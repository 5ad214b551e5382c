"""WSN: for every task the best subnetwork of one network, whose weights are learnt along with the choice.

    min_{θ, s}  L_t(θ ⊙ m(s); D_t)          m(s) = 1 for the share c of a layer's weights with the largest |s|
    θ ← θ - η (∂L/∂θ ⊙ (1 - M_{t-1}))       M_{t-1} = m_1 ∨ … ∨ m_{t-1}
    s ← s - η ∂L/∂m ∂|s|/∂s                 straight through: as if m were |s|

So a task may use every weight of earlier tasks, and changes none. The scores go on from those of the task before.

Source: Kang et al., "Forget-free Continual Learning with Winning Subnetworks" (2022), and its code, whose settings for
permuted MNIST are Adam at 1e-3, batches of 10, 5 epochs. Where this deviates:

- weights of earlier tasks are kept out of the optimiser, so that a momentum or decay cannot move them either;
- weights that no task uses yet begin each task anew; in the code they stay as a task left them;
- biases and norms, which the paper's networks for this data do not have, are each task's own, as its head is;
- masks are kept as a bit each. What coding would make of them is told beside (``MaskedNetwork.coded_masks``), as an
  entropy; the paper codes all masks together by Huffman.

The recipe's weight decay is not applied. The scores are numbers kept besides the parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from bocl.checks import checked, section
from bocl.methods.guessing import GuessSettings
from bocl.methods.method import Learned, Learner, State
from bocl.methods.rounds import RoundTrainer
from bocl.methods.seen import SeenTask
from bocl.methods.subnetworks import Density, choose_subnetwork
from bocl.networks.check import check_tensors
from bocl.networks.graph import Graph
from bocl.networks.masked import ByLayer, MaskedNetwork
from bocl.networks.subnetworks import Draft
from bocl.records.events import Callback
from bocl.seeding import seed_for
from bocl.tasks.task import Task
from bocl.training.batches import DeviceTask
from bocl.training.recipe import Recipe


@section("wsn")
@dataclass(frozen=True)
class WSNSettings:
    """Of the method `wsn`.

    density  c, share of a layer's weights that a task uses
    """

    density: Density = 0.3


class WSN(Learner):
    """Winning subnetworks: every task uses a part of one network, old weights as they are, and new ones."""

    name: ClassVar[str] = "wsn"
    forgets: ClassVar[bool] = False
    graph: Graph
    network: MaskedNetwork

    def __init__(
        self,
        network: nn.Module | Graph,
        *,
        settings: WSNSettings = WSNSettings(),  # noqa: B008 - frozen
        recipe: Recipe = Recipe(),  # noqa: B008
        seed: int = 0,
        device: str | torch.device = "auto",
        guess: GuessSettings = GuessSettings(),  # noqa: B008
    ) -> None:
        """Take any network BOCL takes."""
        super().__init__(network, recipe=recipe, seed=seed, device=device, guess=guess)
        self.settings = checked("settings", settings, WSNSettings)
        self.network = MaskedNetwork(self.graph, device=self.device)
        self.scores: ByLayer = {}  # as the last task left them

    def _learn(self, _task: Task, data: DeviceTask, callback: Callback, _trainer: RoundTrainer, /) -> Learned:
        """Choose a subnetwork and train what is new in it."""
        self.scores, learned = choose_subnetwork(self, data, callback)
        return learned

    def draft(self, data: DeviceTask) -> Draft:
        """Return where a task's subnetwork starts: at the last task's scores, with the weights of all tasks fixed."""
        start = self.network.start(data.classes, seed=seed_for(self.seed, "base", data.index))
        scores = self.scores or self.network.scores(seed=seed_for(self.seed, "scores"))
        return Draft(start, self.network.used, self.network.weights, scores, self.settings.density)

    def _kept(self, _first: int = 0, /) -> State:
        return State({}, {f"score/{name}": scores for name, scores in self.scores.items()})

    def _check_kept(self, kept: State, seen: Sequence[SeenTask], /) -> None:
        """Refuse scores that are not one for every weight."""
        weights = self.network.weights if seen else {}
        check_tensors(kept.tensors, {f"score/{name}": tuple(weight.shape) for name, weight in weights.items()})

    def _restore_kept(self, kept: State, /) -> None:
        self.scores = {name.removeprefix("score/"): scores.to(self.device) for name, scores in kept.tensors.items()}

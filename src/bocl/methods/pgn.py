"""PGN: a column per task that reads all columns before it, which are frozen with their own laterals.

    h_i^k = σ(W_i^k h_{i-1}^k + U_i^k relu(V_i^k [α_j h_{i-1}^j]_{j<k}))      trained on D_k: W^k, U^k, V^k, α^k

Source: Progressive Neural Networks (Rusu et al., 2016), its adapter equation for every layer i ≥ 2, the head
included; ``networks/lateral.py`` computes it. Where this deviates:

- a column may be narrower than the base network (``width``), and the adapter's hidden width is a fraction
  (``adapter``) of the column's; the paper's own is 1;
- α starts at 1 rather than at small random numbers, because V starts by its fan-in;
- V has a bias, and an adapter's activation is always a ReLU;
- V works per channel also where the layer reads a flattened map, so one channel costs one row, not H·W.

Weights of laterals are counted as shared.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import nn

from bocl.checks import OneOrEach, Positive, checked, per_group, section
from bocl.methods.guessing import GuessSettings
from bocl.methods.method import Learned, Learner
from bocl.methods.plain import train_one
from bocl.methods.rounds import RoundTrainer
from bocl.networks.graph import Graph
from bocl.networks.growth import count_tensors
from bocl.networks.lateral import LateralNetwork, narrowed
from bocl.records.events import Callback, RoundStarted
from bocl.seeding import seed_for
from bocl.tasks.task import Task
from bocl.training.batches import DeviceTask
from bocl.training.evaluation import accuracy
from bocl.training.recipe import Recipe

MOST_TIMES = 100.0  # a column of a hundred times the base network's width is a slip
_Times = Annotated[Positive, Field(le=MOST_TIMES)]


@section("pgn")
@dataclass(frozen=True)
class PGNSettings:
    """Of the method `pgn`.

    width    of every column, as a fraction of the base network's: one number, or one per hidden group
    adapter  hidden width of an adapter, as a fraction of the width its layer reads in one column
    """

    width: OneOrEach[_Times] = 1.0
    adapter: _Times = 1.0


class PGN(Learner):
    """Progressive network: one column per task next to frozen ones."""

    name: ClassVar[str] = "pgn"
    forgets: ClassVar[bool] = False
    if_out_of_memory: ClassVar[str] = "smaller pgn.width, pgn.adapter or recipe.batch_size"
    graph: Graph
    network: LateralNetwork

    def __init__(
        self,
        network: nn.Module | Graph,
        *,
        settings: PGNSettings = PGNSettings(),  # noqa: B008 - frozen
        recipe: Recipe = Recipe(),  # noqa: B008
        seed: int = 0,
        device: str | torch.device = "auto",
        guess: GuessSettings = GuessSettings(),  # noqa: B008
    ) -> None:
        """Take any network BOCL takes."""
        super().__init__(network, recipe=recipe, seed=seed, device=device, guess=guess)
        self.settings = checked("settings", settings, PGNSettings)
        width = per_group("pgn.width", self.settings.width, len(self.graph.groups))
        self.network = LateralNetwork(narrowed(self.graph, width), ratio=self.settings.adapter, device=self.device)

    def _learn(self, task: Task, data: DeviceTask, callback: Callback, _trainer: RoundTrainer, /) -> Learned:
        """Train a column; those before stay as they are."""
        widths = self.network.graph.widths
        callback(RoundStarted("base", (widths,)))
        column = self.network.next_column(task.classes, seed=seed_for(self.seed, "base", data.index))
        fit = train_one(column, [data], self.recipe, seed=seed_for(self.seed, "order", data.index), callback=callback)
        self.network.commit(column.tensors)
        score = accuracy(partial(self.network.predict, task=data.index), data.validation)
        return Learned(task.name, widths, score, count_tensors(column.tensors), effort=fit.effort)

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

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from bocl.checks import Natural, OneOrEach, Positive, checked, per_group, section
from bocl.methods.checks import Seen, as_graph, check_inputs, check_task, memory_told, seen_from
from bocl.methods.method import Learned, State, join_tensors, part_tensors
from bocl.methods.plain import train_one
from bocl.methods.saving import save
from bocl.networks.graph import Graph
from bocl.networks.growth import PARTS, count_tensors
from bocl.networks.lateral import LateralNetwork, narrowed
from bocl.records.events import Listener, RoundStarted, nobody
from bocl.seeding import seed_for
from bocl.tasks.task import Task
from bocl.training.batches import task_to_device
from bocl.training.device import resolve_device
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


class PGN:
    """Progressive network: one column per task beside frozen ones."""

    name: ClassVar[str] = "pgn"
    forgets: ClassVar[bool] = False

    def __init__(
        self,
        network: nn.Module | Graph,
        *,
        settings: PGNSettings = PGNSettings(),  # noqa: B008 - frozen
        recipe: Recipe = Recipe(),  # noqa: B008 - frozen
        seed: int = 0,
        device: str | torch.device = "auto",
    ) -> None:
        self.graph = as_graph(network)
        self.settings = checked("settings", settings, PGNSettings)
        self.recipe = checked("recipe", recipe, Recipe)
        self.seed = checked("seed", seed, Natural)
        self.device = resolve_device(device)
        width = per_group("pgn.width", self.settings.width, len(self.graph.groups))
        self.network = LateralNetwork(narrowed(self.graph, width), ratio=self.settings.adapter, device=self.device)
        self.seen: list[Seen] = []

    @memory_told("smaller pgn.width, pgn.adapter or recipe.batch_size")
    def learn(self, task: Task, listen: Listener = nobody) -> Learned:
        """Train a column for one more task; those before stay as they are."""
        check_task(self.graph, task, self.seen)
        index = len(self.seen)
        data = task_to_device(task, index, self.device)
        widths = self.network.graph.widths
        listen(RoundStarted("base", (widths,)))
        column = self.network.next_column(task.classes, seed=seed_for(self.seed, "base", index))
        order = seed_for(self.seed, "order", index)
        fit = train_one(column, [data], self.recipe, name=task.name, seed=order, listen=listen)
        self.network.commit(column.tensors)
        self.seen.append(Seen.of(task))
        score = accuracy(partial(self.network.predict, task=index), data.validation)
        return Learned(task.name, widths, score, count_tensors(column.tensors), effort=fit.effort)

    def predict(self, x: Any, task: int) -> Tensor:
        """Return logits (n, classes): the same bits as on the day the task was learnt.

        x  (n, *shape): bytes for a task of bytes, scaled here; float32 is taken as already scaled (``Split.inputs``)
        """
        return self.network.predict(check_inputs(x, task, self.seen, self.device), task)

    def parameters(self) -> dict[str, int]:
        """Count what is stored, by part; laterals are shared weights."""
        by_task = [count_tensors(column) for column in self.network.columns]
        return {part: sum(task[part] for task in by_task) for part in PARTS}

    def state(self) -> State:
        """Return what has been learnt."""
        return State({"seen": [asdict(entry) for entry in self.seen]}, join_tensors(self.network.columns))

    def restore(self, state: State) -> None:
        """Take back what ``state`` returned."""
        self.seen = seen_from(state.facts)
        self.network.columns = []
        for tensors in part_tensors(state.tensors, len(self.seen)):
            self.network.commit(tensors)

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder of its own."""
        save(self, folder)

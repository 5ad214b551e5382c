"""Progress & Compress: an active column learns a task, and a network of fixed size learns it from the column.

    progress   h_i = σ(W_i h_{i-1} + U_i relu(V_i [α h^B_{i-1}]))                 trained on D_t: W, U, V, α
    compress   min_θ  E_{x ∈ D_t} KL(q(· | x) ‖ p(· | x, θ)) + λ/2 Σ_i F_i (θ_i - θ*_i)²
               F ← γ F + F_t

The knowledge base p of parameters θ is the network that predicts, with a head for every task. θ* are its parameters
after the task before. The active column q is a network as PGN's: it reads features h^B of the base, which is frozen
meanwhile. It is made anew for every task and not kept.

θ is what all tasks share. A head belongs to its own task and is not trained again.

Source: Schwarz et al., "Progress & Compress: A scalable framework for continual learning". Where this deviates:

- Each F_t is divided by its mean over the parameters, so that all tasks count the same.
- The quadratic is solved for after each step on the loss, as in EWC, so no λ is too large. A huge one leaves the base
  where it is, wherever F is not 0.
- The column reads the base through adapters as in PGN (``networks/lateral.py``). On the first task there is nothing to
  read: the column is a network by itself.
- Both phases last as long as the recipe says.
- Running statistics of batch norms are no parameters: they follow the newest task, as in EWC.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from bocl.checks import Fraction, NonNegative, Positive, PositiveInt, checked, section
from bocl.errors import NetworkError
from bocl.methods.ewc import MOST_STRENGTH, Labels, Quadratic, estimated_fisher
from bocl.methods.guessing import GuessSettings
from bocl.methods.method import EXTRA, Learned, Learner, State
from bocl.methods.plain import fine_tune, train_one
from bocl.methods.rounds import RoundTrainer
from bocl.methods.seen import SeenTask
from bocl.networks.check import check_tensors
from bocl.networks.graph import Graph
from bocl.networks.lateral import LateralNetwork
from bocl.networks.plain import PlainNetwork
from bocl.records.events import Callback, RoundStarted
from bocl.seeding import seed_for
from bocl.tasks.task import Task
from bocl.training.batches import DeviceTask
from bocl.training.hooks import Hooks
from bocl.training.recipe import Recipe
from bocl.training.trainer import Effort


@section("pc")
@dataclass(frozen=True)
class PCSettings:
    """Of the method `pc`.

    strength        λ
    decay           γ, how much of the earlier tasks' F is kept at each task
    adapter         hidden width of the column's adapters, as a fraction of the width its layer reads
    labels          of the Fisher information: `sampled` from the network's predictions, or the `true` ones
    fisher_samples  training samples it is estimated from
    """

    strength: Annotated[NonNegative, Field(le=MOST_STRENGTH)] = 0.1
    decay: Fraction = 1.0
    adapter: Annotated[Positive, Field(le=100)] = 1.0
    labels: Labels = "sampled"
    fisher_samples: PositiveInt = 1000


class PC(Learner):
    """Progress & Compress: a column learns each task, and a network of fixed size learns it from the column."""

    name: ClassVar[str] = "pc"
    forgets: ClassVar[bool] = True
    if_out_of_memory: ClassVar[str] = "smaller pc.adapter, recipe.batch_size or network"
    graph: Graph
    network: PlainNetwork

    def __init__(
        self,
        network: nn.Module | Graph,
        *,
        settings: PCSettings = PCSettings(),  # noqa: B008 - frozen
        recipe: Recipe = Recipe(),  # noqa: B008
        seed: int = 0,
        device: str | torch.device = "auto",
        guess: GuessSettings = GuessSettings(),  # noqa: B008
    ) -> None:
        """Take any network BOCL takes."""
        super().__init__(network, recipe=recipe, seed=seed, device=device, guess=guess)
        self.settings = checked("settings", settings, PCSettings)
        self.network = PlainNetwork(self.graph, device=self.device)
        self.precision: dict[str, Tensor] = {}  # F, of all tasks learnt

    def _learn(self, _task: Task, data: DeviceTask, callback: Callback, _trainer: RoundTrainer, /) -> Learned:
        """Learn the task in a column, and from the column in the base."""
        columns, effort = self._progress(data, callback)
        teacher = partial(columns.predict, task=len(columns.columns) - 1)
        held = Quadratic(self.precision, {name: self.network.tensors[name] for name in self.precision})
        hooks = Hooks(proximal=held.pull(self.settings.strength) if self.precision else None)
        network, learned = fine_tune(
            self.network,
            replace(data, teacher=teacher),
            self.recipe,
            seed=self.seed,
            callback=callback,
            hooks=lambda _: hooks,
        )
        self.precision = self._with_task(network, data)
        self.network = network
        return replace(learned, effort=learned.effort + effort)

    def _progress(self, data: DeviceTask, callback: Callback) -> tuple[LateralNetwork, Effort]:
        """Train an active column; return it as the last one, after the base where there is one, and what it took."""
        columns = LateralNetwork(self.graph, ratio=self.settings.adapter, device=self.device)
        if self.network.classes:
            columns.commit(self.network.tensors)
        callback(RoundStarted("column", (self.graph.widths,)))
        column = columns.next_column(data.classes, seed=seed_for(self.seed, "column", data.index))
        order = seed_for(self.seed, "order of the column", data.index)
        fit = train_one(column, [data], self.recipe, seed=order, callback=callback)
        columns.commit(column.tensors)
        return columns, fit.effort

    def _with_task(self, network: PlainNetwork, data: DeviceTask) -> dict[str, Tensor]:
        """Return F of all tasks, the one just learnt included."""
        settings, draw = self.settings, torch.Generator().manual_seed(seed_for(self.seed, "fisher", data.index))
        fisher = estimated_fisher(network, data.train, data.index, settings.labels, settings.fisher_samples, draw)
        total, count = sum(float(part.sum()) for part in fisher.values()), sum(map(torch.numel, fisher.values()))
        scaled = {name: part * (count / total) if total else part for name, part in fisher.items()}
        return {name: part + settings.decay * self.precision.get(name, 0.0) for name, part in scaled.items()}

    def _kept(self, _first: int = 0, /) -> State:
        return State({}, {f"precision/{name}": tensor for name, tensor in self.precision.items()})

    def _check_kept(self, kept: State, seen: Sequence[SeenTask], /) -> None:
        """Refuse a saved F that is not one of this network's shared parameters."""
        shapes = self.network.stored_shapes({}, [entry.classes for entry in seen])
        check_tensors(
            kept.tensors, {f"precision/{name}": shapes[name] for name in shapes if self.network.is_shared(name)}
        )
        for name, tensor in kept.tensors.items():
            if not tensor.isfinite().all() or (tensor < 0).any():
                raise NetworkError(f"tensor '{EXTRA}{name}' holds numbers that cannot be")

    def _restore_kept(self, kept: State, /) -> None:
        self.precision = {
            name.removeprefix("precision/"): tensor.to(self.device) for name, tensor in kept.tensors.items()
        }

"""IMM: a network for every task, trained from the one before, and all of them merged into one that predicts.

    mean-IMM    θ = Σ_t α_t θ_t                               α_t: how much task t counts, 1 in all
    mode-IMM    θ_i = Σ_t α_t F_ti θ_ti / Σ_t α_t F_ti        F: Fisher information, as in EWC (``methods/ewc.py``)

The mean is the nearest Gaussian to the mixture of the tasks' posteriors, the mode about where that mixture is largest.
Both need weights between which the loss is flat. Three transfers see to that while θ_t is trained:

    weight-transfer    θ_t starts from θ_{t-1}
    L2-transfer        min L_t(θ) + λ/2 ‖θ - θ_{t-1}‖²
    drop-transfer      dropout around θ_{t-1}: a dropped unit has its weights (``networks/drop_transfer.py``)

θ is what all tasks share: the body, and the head where there is one for all. Any other head is trained with θ_t and
stays as it is. What is merged is enough to merge the next one, of which α is the share:

    A ← (1 - α) A + α F_t,   θ ← θ + α F_t / A (θ_t - θ)      F = A = 1 of the mean

So besides θ two numbers per parameter are kept, A and θ_{t-1}, however many tasks there are; of the mean one.

Source: Lee et al., "Overcoming Catastrophic Forgetting by Incremental Moment Matching", and its code for λ and p.
Deviations:
- α is one setting; the paper tunes α_t by samples of all tasks. By default all count the same, α = 1/t.
- L2-transfer is solved for after each step on the loss, not followed with it (``training/proximal.py``).
- The first task has nothing to drop to. It is trained as any network; the paper drops its units to zero.
- Where F is 0 for all tasks the mode is the mean.
- Running statistics of batch norms, which its networks do not have, are merged as by the mean.
- F is estimated from `fisher_samples` training samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from bocl.checks import Fraction, NonNegative, PositiveInt, checked, section
from bocl.errors import NetworkError
from bocl.methods.ewc import MOST_STRENGTH, Labels, Quadratic, estimated_fisher
from bocl.methods.guessing import GuessSettings
from bocl.methods.method import EXTRA, Learned, Learner, State
from bocl.methods.plain import learned_plain, train_one
from bocl.methods.rounds import RoundTrainer
from bocl.methods.seen import SeenTask
from bocl.networks.check import check_tensors
from bocl.networks.drop_transfer import AroundEarlier
from bocl.networks.graph import Graph
from bocl.networks.growth import Shapes, is_parameter
from bocl.networks.plain import PlainNetwork
from bocl.records.events import Callback, RoundStarted
from bocl.seeding import seed_for
from bocl.tasks.task import Task
from bocl.training.batches import DeviceTask
from bocl.training.hooks import Hooks
from bocl.training.recipe import Recipe

LEAST = 1e-30  # added to F


@section("imm")
@dataclass(frozen=True)
class IMMSettings:
    """Of the method `imm`.

    form            how networks are merged: `mean`, or `mode`
    newest          α, how much the newest network counts, and all before it 1 - α. None: all networks count the same
    weight          weight-transfer: whether a task's network starts from the one before, or from new weights
    l2              λ of L2-transfer; 0 is none
    drop            p of drop-transfer; 0 is none
    labels          of the Fisher information: `sampled` from the network's predictions, or the `true` ones
    fisher_samples  training samples it is estimated from
    shared_head     one head for all tasks, or one each
    """

    form: Literal["mean", "mode"] = "mode"
    newest: Annotated[Fraction, Field(gt=0)] | None = None
    weight: bool = True
    l2: Annotated[NonNegative, Field(le=MOST_STRENGTH)] = 1e-4
    drop: Annotated[NonNegative, Field(lt=1)] = 0.5
    labels: Labels = "sampled"
    fisher_samples: PositiveInt = 1000
    shared_head: bool = False


class IMM(Learner):
    """Incremental moment matching: a network per task, trained near the one before, and all merged into one."""

    name: ClassVar[str] = "imm"
    forgets: ClassVar[bool] = True
    graph: Graph
    network: PlainNetwork

    def __init__(
        self,
        network: nn.Module | Graph,
        *,
        settings: IMMSettings = IMMSettings(),  # noqa: B008 - frozen
        recipe: Recipe = Recipe(),  # noqa: B008
        seed: int = 0,
        device: str | torch.device = "auto",
        guess: GuessSettings = GuessSettings(),  # noqa: B008
    ) -> None:
        """Take any network BOCL takes."""
        super().__init__(network, recipe=recipe, seed=seed, device=device, guess=guess)
        self.settings = checked("settings", settings, IMMSettings)
        self.network = PlainNetwork(self.graph, shared_head=settings.shared_head, device=self.device)
        self.latest: dict[str, Tensor] = {}  # θ_{t-1} and its running statistics
        self.information: dict[str, Tensor] = {}  # A, of the mode

    def _learn(self, _task: Task, data: DeviceTask, callback: Callback, _trainer: RoundTrainer, /) -> Learned:
        """Train a network near the one before, and merge it with all others."""
        index, before = data.index, self.parameters()
        own, fit_seed = self._start(data), seed_for(self.seed, "order", index)
        callback(RoundStarted("base", (self.graph.widths,)))
        trained = AroundEarlier(own, self.latest, self.settings.drop) if self._drops else own.trainable()
        fit = train_one(trained, [data], self.recipe, seed=fit_seed, callback=callback, hooks=self._hooks())
        own.take(trained)
        self._merge(own, data)
        return learned_plain(self.network, data, head=index, before=before, effort=fit.effort)

    @property
    def _drops(self) -> bool:
        return bool(self.latest and self.settings.drop)

    def _start(self, data: DeviceTask) -> PlainNetwork:
        """Return the network of a new task, untrained."""
        seed, settings = seed_for(self.seed, "base", data.index), self.settings
        own = self.network.copy()
        own.add_task(data.classes, seed=seed)
        fresh = PlainNetwork(self.graph, shared_head=settings.shared_head, device=self.device)
        fresh.add_task(data.classes, seed=seed)
        source = self.latest if settings.weight and self.latest else fresh.tensors
        own.tensors |= {name: source[name].clone() for name in own.tensors if self._is_merged(name)}
        return own

    def _is_merged(self, name: str) -> bool:
        """Whether a tensor is merged: a parameter that all tasks share, or a running statistic."""
        return self.network.is_shared(name) or not is_parameter(name)

    def _hooks(self) -> Hooks:
        """Return L2-transfer."""
        if not self.latest or not self.settings.l2:
            return Hooks()
        shared = {name: tensor for name, tensor in self.latest.items() if is_parameter(name)}
        around = Quadratic({name: torch.ones_like(tensor) for name, tensor in shared.items()}, shared)
        return Hooks(proximal=around.pull(self.settings.l2))

    def _merge(self, own: PlainNetwork, data: DeviceTask) -> None:
        """Merge a trained network into the one that predicts."""
        index, settings = data.index, self.settings
        latest = {name: tensor for name, tensor in own.tensors.items() if self._is_merged(name)}
        share = 1.0 if not index else settings.newest or 1 / (index + 1)
        shares = dict.fromkeys(latest, torch.tensor(share, device=self.device))
        if settings.form == "mode":
            draw = torch.Generator().manual_seed(seed_for(self.seed, "fisher", index))
            fisher = estimated_fisher(own, data.train, index, settings.labels, settings.fisher_samples, draw)
            fisher = {name: share * (found + LEAST) for name, found in fisher.items()}
            earlier = {name: (1 - share) * found for name, found in self.information.items()}
            self.information = {name: found + earlier.get(name, 0) for name, found in fisher.items()}
            shares |= {name: found / self.information[name] for name, found in fisher.items()}
        merged = own.copy()
        if index:
            merged.tensors |= {name: self.network.tensors[name].lerp(latest[name], shares[name]) for name in latest}
        self.network = merged
        self.latest = latest if settings.weight or settings.l2 or settings.drop else {}

    def _kept(self, _first: int = 0, /) -> State:
        parts = {"latest": self.latest, "information": self.information}
        return State({}, {f"{part}/{name}": tensor for part, kept in parts.items() for name, tensor in kept.items()})

    def _check_kept(self, kept: State, seen: Sequence[SeenTask], /) -> None:
        """Refuse saved tensors that are not over what this network's tasks share."""
        settings, shapes = self.settings, self.network.stored_shapes({}, [entry.classes for entry in seen])
        wanted: Shapes = {}
        if settings.weight or settings.l2 or settings.drop:
            wanted |= {f"latest/{name}": shape for name, shape in shapes.items() if self._is_merged(name)}
        if settings.form == "mode":
            shared = {name: shape for name, shape in shapes.items() if self.network.is_shared(name)}
            wanted |= {f"information/{name}": shape for name, shape in shared.items()}
        check_tensors(kept.tensors, wanted)
        for name, tensor in kept.tensors.items():
            if not tensor.isfinite().all() or (name.startswith("information/") and (tensor <= 0).any()):
                raise NetworkError(f"tensor '{EXTRA}{name}' holds numbers that cannot be")

    def _restore_kept(self, kept: State, /) -> None:
        parts: dict[str, dict[str, Tensor]] = {"latest": {}, "information": {}}
        for key, tensor in kept.tensors.items():
            part, _, name = key.partition("/")
            parts[part][name] = tensor.to(self.device)
        self.latest, self.information = parts["latest"], parts["information"]

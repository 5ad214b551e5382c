"""EWC: one network, every parameter held to what earlier tasks made of it, as firmly as they need it.

    min_θ  L_t(θ) + λ/2 Σ_{k<t} Σ_i F_ki (θ_i - θ*_ki)²

    F_ki = mean over samples (x, y) of task k of (∂ log p(y | x, θ*_k) / ∂θ_i)²

Sources: Kirkpatrick et al., "Overcoming catastrophic forgetting in neural networks" (form `separate`, the sum above);
Schwarz et al., "Progress & Compress" (form `online`: one quadratic around the latest θ*, with F ← γ F + F_t).

A sum of quadratics is a quadratic: with A = Σ_k F_k and m = Σ_k F_k θ*_k / A, all of `separate` is λ/2 A (θ - m)² and a
constant. So either form stores two numbers per parameter, however many tasks there are.

θ is what all tasks share: the body, and the head where there is one for all. Any other head belongs to its own task and
is not trained again. Running statistics of batch norms are no parameters: they follow the newest task, as in SN.

Deviations:
- The quadratic is solved for after each step on the loss, not followed with it (``training/proximal.py``):
  θ ← (θ' + s λ A m) / (1 + s λ A). The objective is the same, but SGD cannot follow a λ A beyond about 2/η, and Adam
  goes on moving by η. Solved for, λ = 0 is SN to the bit, and a huge λ leaves θ at m wherever A is not 0.
- Labels y are drawn from the network's own predictions, as the Fisher information is defined (`labels = "sampled"`);
  `"true"` takes those of the samples, as much published code does.
- F is estimated from `fisher_samples` training samples, and `online` does not bring the tasks' F to one scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn
from torch.func import grad, vmap

from bocl.checks import Fraction, NonNegative, PositiveInt, checked, section
from bocl.errors import NetworkError
from bocl.methods.method import EXTRA, Learned, Learner, State
from bocl.methods.plain import fine_tune
from bocl.methods.rounds import RoundTrainer
from bocl.methods.seen import SeenTask
from bocl.networks.check import check_tensors
from bocl.networks.graph import Graph
from bocl.networks.plain import PlainNetwork, plain_logits
from bocl.records.events import Callback
from bocl.seeding import seed_for
from bocl.tasks.task import Task
from bocl.training.batches import DeviceSplit, DeviceTask
from bocl.training.hooks import Hooks
from bocl.training.precision import repeatable_products
from bocl.training.recipe import Recipe

Form = Literal["separate", "online"]
Labels = Literal["sampled", "true"]
PARTS = ("precision", "centre")  # of a quadratic
MOST_STRENGTH = 1e12
MOST_GRADIENTS = 1 << 24  # numbers held at once while per-sample gradients are squared


@section("ewc")
@dataclass(frozen=True)
class EWCSettings:
    """How firmly, and to what, parameters are held.

    strength        λ
    form            `separate`: a quadratic per task; `online`: one, around the latest parameters
    decay           γ of the form `online`: how much of the earlier tasks' F is kept at each task
    labels          of the Fisher information: `sampled` from the network's predictions, or the `true` ones
    fisher_samples  training samples it is estimated from
    shared_head     one head for all tasks, or one each
    """

    strength: Annotated[NonNegative, Field(le=MOST_STRENGTH)] = 100.0
    form: Form = "separate"
    decay: Fraction = 1.0
    labels: Labels = "sampled"
    fisher_samples: PositiveInt = 1000
    shared_head: bool = False


@dataclass(frozen=True, eq=False)
class Quadratic:
    """½ Σ_i A_i (θ_i - m_i)² over the shared parameters, by name.

    precision  A ≥ 0
    centre     m
    """

    precision: dict[str, Tensor]
    centre: dict[str, Tensor]

    def add(self, fisher: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> Quadratic:
        """Return this quadratic plus ½ Σ F (θ - θ*)²: A + F, around (A m + F θ*) / (A + F)."""
        precision, centre = {}, {}
        for name, new in fisher.items():
            precision[name] = self.precision[name] + new
            share = torch.where(precision[name] > 0, new / precision[name], 1.0)  # where nothing holds, m is free
            centre[name] = self.centre[name].lerp(parameters[name], share)
        return Quadratic(precision, centre)

    def move(self, fisher: Mapping[str, Tensor], parameters: Mapping[str, Tensor], decay: float) -> Quadratic:
        """Return ½ Σ (γ A + F) (θ - θ*)²."""
        precision = {name: decay * self.precision[name] + new for name, new in fisher.items()}
        return Quadratic(precision, {name: parameters[name].clone() for name in fisher})

    def pull(self, strength: float) -> Callable[[Mapping[str, Tensor], Callable[[Tensor], Any]], None]:
        """Return the proximal step of λ times this quadratic: θ ← (θ' + w m) / (1 + w), w = s λ A."""
        steepness = {name: strength * precision for name, precision in self.precision.items()}

        def step(parameters: Mapping[str, Tensor], step_size: Callable[[Tensor], Any]) -> None:
            for name, centre in self.centre.items():
                weight = step_size(parameters[name]) * steepness[name]  # (1, …), as the parameter
                parameters[name].lerp_(centre.expand_as(parameters[name]), 1 / (1 + 1 / weight))  # 0 at 0, 1 at ∞

        return step


class EWC(Learner):
    """Elastic weight consolidation: one network, held to earlier parameters as firmly as earlier tasks need them."""

    name: ClassVar[str] = "ewc"
    forgets: ClassVar[bool] = True
    graph: Graph
    network: PlainNetwork

    def __init__(
        self,
        network: nn.Module | Graph,
        *,
        settings: EWCSettings = EWCSettings(),  # noqa: B008 - frozen
        recipe: Recipe = Recipe(),  # noqa: B008
        seed: int = 0,
        device: str | torch.device = "auto",
    ) -> None:
        """Take any network BOCL takes."""
        super().__init__(network, recipe=recipe, seed=seed, device=device)
        self.settings = checked("settings", settings, EWCSettings)
        self.network = PlainNetwork(self.graph, shared_head=settings.shared_head, device=self.device)
        self.quadratic: Quadratic | None = None  # of all tasks learnt

    def _learn(self, _task: Task, data: DeviceTask, callback: Callback, _trainer: RoundTrainer, /) -> Learned:
        """Fine-tune, held to the tasks before, and add what this one needs held."""
        hooks = Hooks(proximal=self.quadratic.pull(self.settings.strength) if self.quadratic else None)
        network, learned = fine_tune(
            self.network, data, self.recipe, seed=self.seed, callback=callback, hooks=lambda _: hooks
        )
        self.quadratic = self._with_task(network, data.train)
        self.network = network
        return learned

    def _with_task(self, network: PlainNetwork, samples: DeviceSplit) -> Quadratic:
        """Return the quadratic of all tasks, the one just learnt included."""
        task, settings = len(self.seen), self.settings
        fisher = estimated_fisher(
            network, samples, task, labels=settings.labels, most=settings.fisher_samples, seed=self.seed
        )
        if self.quadratic is None:
            return Quadratic(fisher, {name: network.tensors[name].clone() for name in fisher})
        if settings.form == "online":
            return self.quadratic.move(fisher, network.tensors, settings.decay)
        return self.quadratic.add(fisher, network.tensors)

    def _kept(self, _first: int = 0, /) -> State:
        if self.quadratic is None:
            return State({}, {})
        parts = {part: getattr(self.quadratic, part) for part in PARTS}
        return State({}, {f"{part}/{name}": tensor for part in PARTS for name, tensor in parts[part].items()})

    def _check_kept(self, kept: State, seen: Sequence[SeenTask], /) -> None:
        """Refuse a saved quadratic that is not one over this network's shared parameters."""
        shapes = self.network.stored_shapes({}, [entry.classes for entry in seen])
        wanted = {name: shape for name, shape in shapes.items() if self.network.is_shared(name)}
        check_tensors(kept.tensors, {f"{part}/{name}": wanted[name] for part in PARTS for name in wanted})
        for name, tensor in kept.tensors.items():
            if not tensor.isfinite().all() or (name.startswith("precision/") and (tensor < 0).any()):
                raise NetworkError(f"tensor '{EXTRA}{name}' holds numbers that cannot be")

    def _restore_kept(self, kept: State, /) -> None:
        parts: dict[str, dict[str, Tensor]] = {part: {} for part in PARTS}
        for key, tensor in kept.tensors.items():
            part, _, name = key.partition("/")
            parts[part][name] = tensor.to(self.device)
        self.quadratic = Quadratic(**parts) if kept.tensors else None


def estimated_fisher(
    network: PlainNetwork, samples: DeviceSplit, task: int, *, labels: Labels, most: int, seed: int
) -> dict[str, Tensor]:
    """Return the Fisher information of a task just learnt, from at most so many of its training samples.

    labels  the true ones, or drawn from the network's own predictions
    seed    of the method
    """
    draw = torch.Generator().manual_seed(seed_for(seed, "fisher", task))
    inputs, given = samples.rows(torch.randperm(len(samples), generator=draw)[:most])
    if labels == "sampled":
        likely = network.predict(inputs, task).softmax(1).cpu()
        given = torch.multinomial(likely, 1, generator=draw)[:, 0].to(network.device)
    return fisher_information(network, inputs, given, task)


def fisher_information(network: PlainNetwork, inputs: Tensor, labels: Tensor, task: int) -> dict[str, Tensor]:
    """Return the mean over samples of the squared gradient of log p(label | input), for every shared parameter."""
    head = network.head_of(task)
    shared = {name: tensor for name, tensor in network.tensors.items() if network.is_shared(name)}

    def surprise(parameters: Mapping[str, Tensor], x: Tensor, label: Tensor) -> Tensor:
        logits = plain_logits(network.graph, {**network.tensors, **parameters}, x[None], head)
        return F.cross_entropy(logits, label[None])

    gradients = vmap(grad(surprise), in_dims=(None, 0, 0))
    totals = {name: torch.zeros_like(tensor) for name, tensor in shared.items()}
    at_once = max(1, MOST_GRADIENTS // sum(tensor.numel() for tensor in shared.values()))
    with repeatable_products("float32"):  # whatever the recipe: gradients are squared
        for some, answers in zip(inputs.split(at_once), labels.split(at_once), strict=True):
            for name, gradient in gradients(shared, some, answers).items():
                totals[name] += gradient.square().sum(0)
    return {name: total / len(labels) for name, total in totals.items()}

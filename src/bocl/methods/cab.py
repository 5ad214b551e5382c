"""CAB: conceptor-aided backprop, one network whose steps leave alone what the inputs of earlier tasks occupy.

x̃ is what the units of a layer read, with a 1 for the bias. Of task k it has the correlation R_k = E[x̃ x̃ᵀ], and after
t tasks

    R = Σ_k R_k        A = R (R + α⁻² I)⁻¹        F = I - A = (I + α² R)⁻¹        W̃ ← W̃ - η δ (F x̃)ᵀ

A is the conceptor of all earlier tasks: the share of every direction that their inputs occupy. F is what is left. With
nothing occupied, F = I, this is SGD. With everything occupied, F = 0, nothing moves. In between, layers go on giving
nearly the same answers to earlier inputs.

Source: He and Jaeger, "Overcoming catastrophic interference using conceptor-aided backpropagation". There A is joined
with every new conceptor, A ← A ∨ C. With one aperture α this is the conceptor of the sum of the R_k, which needs no
inverse of a conceptor. So R is what is kept: (d + 1)² numbers in double precision for a layer that reads d, often more
than the network. They count as extra numbers.

Deviations:
- The recipe's optimiser takes its step W̃ → W̃', and the step is then reduced to what is free:
  W̃ ← W̃ + (W̃' - W̃) F. With plain SGD this is the equation above. It holds for momentum, Adam and weight decay, too,
  which the paper does not use.
- A convolution reads windows, and R is their mean (``networks/affine.py``). The scale and shift of a norm are a layer
  that reads one number per channel. Running statistics of batch norms follow the newest task, as in SN.
- A head of a task's own is not trained again, so nothing of it need be left alone.
- R_k is estimated from `samples` training samples, through the network as it predicts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from bocl.checks import NonNegative, PositiveInt, checked, section
from bocl.errors import NetworkError, WorkError
from bocl.methods.guessing import GuessSettings
from bocl.methods.method import EXTRA, Learned, Learner, State
from bocl.methods.plain import fine_tune
from bocl.methods.rounds import RoundTrainer
from bocl.methods.seen import SeenTask
from bocl.networks.affine import AffineMap, correlations, shared_maps
from bocl.networks.graph import Graph
from bocl.networks.plain import PlainNetwork
from bocl.networks.stacked import Children
from bocl.records.events import Callback
from bocl.seeding import seed_for
from bocl.tasks.task import Task
from bocl.training.batches import DeviceTask
from bocl.training.hooks import Hooks
from bocl.training.precision import repeatable_products
from bocl.training.recipe import Recipe

MOST_APERTURE = 1e4  # beyond it, I is lost next to α² R
RIDGE = 1e-13  # of the trace of α² R, added to its diagonal: rounding leaves it short of positive


@section("cab")
@dataclass(frozen=True)
class CABSettings:
    """Of the method `cab`.

    aperture     α: the larger, the more of what earlier inputs vary in is left alone
    samples      training samples of a task that R is estimated from
    shared_head  one head for all tasks, or one each
    """

    aperture: Annotated[NonNegative, Field(le=MOST_APERTURE)] = 1.0
    samples: PositiveInt = 5000
    shared_head: bool = False


class CAB(Learner):
    """Conceptor-aided backprop: one network whose steps leave alone what earlier inputs occupy."""

    name: ClassVar[str] = "cab"
    forgets: ClassVar[bool] = True
    if_out_of_memory: ClassVar[str] = "a smaller recipe.batch_size, or a network whose layers read less"
    graph: Graph
    network: PlainNetwork

    def __init__(
        self,
        network: nn.Module | Graph,
        *,
        settings: CABSettings = CABSettings(),  # noqa: B008 - frozen
        recipe: Recipe = Recipe(),  # noqa: B008
        seed: int = 0,
        device: str | torch.device = "auto",
        guess: GuessSettings = GuessSettings(),  # noqa: B008
    ) -> None:
        """Take any network BOCL takes."""
        super().__init__(network, recipe=recipe, seed=seed, device=device, guess=guess)
        self.settings = checked("settings", settings, CABSettings)
        self.network = PlainNetwork(self.graph, shared_head=settings.shared_head, device=self.device)
        self.occupied: dict[str, Tensor] = {}  # R of all tasks learnt, by the name of a weight

    def _learn(self, _task: Task, data: DeviceTask, callback: Callback, _trainer: RoundTrainer, /) -> Learned:
        """Fine-tune in what is free, and add what this task occupies."""
        maps = shared_maps(self.network, data.classes)
        free = {name: free_share(occupied, self.settings.aperture) for name, occupied in self.occupied.items()}
        network, learned = fine_tune(
            self.network,
            data,
            self.recipe,
            seed=self.seed,
            callback=callback,
            hooks=lambda trained: FreeSpace(maps, free, trained).hooks() if free else Hooks(),
        )
        draw = torch.Generator().manual_seed(seed_for(self.seed, "correlation", data.index))
        inputs, _ = data.train.rows(torch.randperm(len(data.train), generator=draw)[: self.settings.samples])
        with repeatable_products("float32"):
            new = correlations(network, maps, inputs, data.index)
        if not all(tensor.isfinite().all() for tensor in new.values()):
            raise WorkError(f"task '{data.name}': what layers read is not finite; try a smaller recipe.learning_rate")
        self.occupied = {name: self.occupied.get(name, 0) + tensor for name, tensor in new.items()}
        self.network = network
        return learned

    def _kept(self, _first: int = 0, /) -> State:
        return State({}, {f"correlation/{name}": tensor for name, tensor in self.occupied.items()})

    def _check_kept(self, kept: State, seen: Sequence[SeenTask], /) -> None:
        """Refuse saved correlations that are none of this network's layers."""
        maps = shared_maps(self.network, seen[0].classes) if seen else []
        wanted = {f"correlation/{entry.weight}": (entry.groups, entry.columns, entry.columns) for entry in maps}
        if kept.tensors.keys() != wanted.keys():
            raise NetworkError("correlations are kept of other layers than those of the network")
        for name, tensor in kept.tensors.items():
            like = tensor.dtype == torch.float64 and tensor.shape == wanted[name]
            if not like or not tensor.isfinite().all() or (tensor.diagonal(dim1=1, dim2=2) < 0).any():
                raise NetworkError(f"tensor '{EXTRA}{name}' is no correlation of what its layer reads")

    def _restore_kept(self, kept: State, /) -> None:
        self.occupied = {
            name.removeprefix("correlation/"): tensor.to(self.device) for name, tensor in kept.tensors.items()
        }


class FreeSpace:
    """Reduces every step of a training to what is free.

    maps  what is trained
    free  F (G, d, d) of each, by the name of its weight
    """

    def __init__(self, maps: Sequence[AffineMap], free: Mapping[str, Tensor], trained: Children) -> None:
        self.maps, self.free = maps, free
        names = [name for entry in maps for name in (entry.weight, entry.bias) if name]
        self.before = {name: torch.empty_like(trained.parameters[name]) for name in names}

    def hooks(self) -> Hooks:
        """Return what a step does for it."""
        return Hooks(adjust_gradients=self.remember, proximal=self.reduce)

    def remember(self, parameters: Mapping[str, Tensor]) -> None:
        """Take down the weights before the optimiser's step."""
        for name, before in self.before.items():
            before.copy_(parameters[name].detach())

    def reduce(self, parameters: Mapping[str, Tensor], _step_size: Callable[[Tensor], Any]) -> None:
        """Go from the weights before in the part of the step that is free: W̃ + (W̃' - W̃) F."""
        with repeatable_products("float32"):  # whatever the recipe: what leaks into the occupied part adds up
            for entry in self.maps:
                step = (entry.matrix(parameters) - entry.matrix(self.before)) @ self.free[entry.weight]
                for name, part in entry.parts(step).items():
                    parameters[name].copy_(self.before[name] + part.view_as(parameters[name]))


def free_share(occupied: Tensor, aperture: float) -> Tensor:
    """Return F = (I + α² R)⁻¹ (G, d, d) in single precision."""
    scaled = aperture**2 * occupied
    diagonal = 1 + RIDGE * scaled.diagonal(dim1=1, dim2=2).sum(1)
    one = torch.eye(occupied.shape[-1], dtype=occupied.dtype, device=occupied.device)
    return torch.cholesky_inverse(torch.linalg.cholesky(scaled + diagonal.view(-1, 1, 1) * one)).float()

"""Training a part of a network under penalties that make it sparse: DEN's steps, through the one training loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bocl.methods.plain import train_one
from bocl.networks.graph import Graph
from bocl.networks.sparse import Masks, shrink_units, soft_threshold
from bocl.networks.stamped import trainable
from bocl.records.events import Callback, RoundStarted
from bocl.training.batches import DeviceTask
from bocl.training.hooks import Hooks
from bocl.training.recipe import Recipe
from bocl.training.trainer import Fit
from bocl.widths import Widths


@dataclass(frozen=True, eq=False)
class Penalties:
    """What the objective has besides the loss, over all that is trained.

    μ‖W‖₁ + γ Σ_g ‖W_g‖₂ + μ₂/2 ‖W‖² + λ/2 ‖W - W'‖²

    l1             μ, on weights of layers and head; biases and norms have none
    group_lasso    γ, on the groups of the units beyond ``grouped_after``
    l2             μ₂
    anchor         λ, W' being ``anchored``; what is not in it has none
    """

    l1: float = 0.0
    group_lasso: float = 0.0
    grouped_after: Widths = ()
    l2: float = 0.0
    anchor: float = 0.0
    anchored: Mapping[str, Tensor] = field(default_factory=dict)


def train_part(
    graph: Graph,
    tensors: Mapping[str, Tensor],
    widths: Widths,
    data: DeviceTask,
    recipe: Recipe,
    masks: Masks,
    penalties: Penalties,
    *,
    step: str,
    seed: int,
    callback: Callback,
) -> tuple[dict[str, Tensor], Fit]:
    """Train what the masks say and return all tensors; the rest keeps its bits.

    step  what this training is for, for the event

    Penalties are solved for after every step on the loss (``training/proximal.py``), so that zeros are exact. The
    recipe must have no weight decay, which would move what has no gradient.
    """

    def adjust_gradients(parameters: Mapping[str, Tensor]) -> None:
        for key, tensor in parameters.items():
            if tensor.grad is not None:
                tensor.grad.mul_(masks.get(key, 0.0))

    def solve(parameters: Mapping[str, Tensor], step_size: Callable[[Tensor], Any]) -> None:
        steps = {key: torch.ones_like(tensor) * step_size(tensor) for key, tensor in parameters.items() if key in masks}
        for key, s in steps.items():
            solved = _solved(key, parameters[key], s, penalties)
            parameters[key].copy_(torch.where(masks[key], solved, parameters[key]))
        if penalties.group_lasso:
            # Units beyond ``grouped_after`` are new, and so are all their connections: no mask is needed.
            own = {key: parameters[key][0] for key in steps}
            sizes = {key: s[0] for key, s in steps.items()}
            shrink_units(graph, own, sizes, penalties.grouped_after, penalties.group_lasso)

    callback(RoundStarted(step, (widths,)))
    network = trainable(graph, tensors, widths, data.device)
    hooks = Hooks(adjust_gradients=adjust_gradients, proximal=solve)
    fit = train_one(network, [data], recipe, seed=seed, callback=callback, hooks=hooks)
    return network.growth(0).tensors, fit


def _solved(key: str, tensor: Tensor, s: Tensor, penalties: Penalties) -> Tensor:
    """Return the tensor after the proximal step of every penalty but the group lasso; s is its step sizes."""
    if penalties.l1 and (key.endswith("/rows") or key == "head/weight"):
        tensor = soft_threshold(tensor, penalties.l1 * s)
    if penalties.anchor and key in penalties.anchored:
        pulled = tensor + penalties.anchor * s * penalties.anchored[key]
        return pulled / (1 + (penalties.l2 + penalties.anchor) * s)
    return tensor / (1 + penalties.l2 * s)

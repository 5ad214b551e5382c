"""Training a part of a network under penalties that make it sparse: DEN's steps, through the one training loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bocl.methods.plain import train_one
from bocl.networks.graph import Graph, Widths
from bocl.networks.sparse import Masks, shrink_units, soft_threshold
from bocl.networks.stamped import trainable
from bocl.records.events import Listener, RoundStarted
from bocl.training.batches import DeviceTask
from bocl.training.hooks import Hooks
from bocl.training.recipe import Recipe
from bocl.training.trainer import Fit


@dataclass(frozen=True, eq=False)
class Pull:
    """What draws weights besides the loss.

    l1             μ: taken off the size of every trained weight after a step at the full learning rate
    group_lasso    γ: taken off the norm of the groups of units beyond ``grouped_after`` likewise
    l2             μ₂ of μ₂/2 ‖W‖², on all that is trained
    anchor         λ of λ/2 ‖W - W'‖², W' being ``anchored``
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
    pull: Pull,
    *,
    name: str,
    seed: int,
    listen: Listener,
) -> tuple[dict[str, Tensor], Fit]:
    """Train what the masks say and return all tensors; the rest keeps its bits.

    The recipe must have no weight decay, which would move what has no gradient.
    """

    def adjust_gradients(parameters: Mapping[str, Tensor]) -> None:
        for key, tensor in parameters.items():
            if tensor.grad is None:
                continue
            if key not in masks:
                tensor.grad.zero_()
                continue
            if pull.l2:
                tensor.grad.add_(tensor.detach(), alpha=pull.l2)
            if pull.anchor and key in pull.anchored:
                tensor.grad.add_(tensor.detach() - pull.anchored[key], alpha=pull.anchor)
            tensor.grad.mul_(masks[key])

    @torch.no_grad()
    def shrink(parameters: Mapping[str, Tensor], rate: Any) -> None:
        part = rate / recipe.learning_rate
        for key, tensor in parameters.items():
            if key in masks and (key.endswith("/rows") or key == "head/weight"):
                tensor.copy_(torch.where(masks[key], soft_threshold(tensor, part * pull.l1), tensor))
        if pull.group_lasso:
            own = {key: tensor[0] for key, tensor in parameters.items()}
            shrink_units(graph, own, pull.grouped_after, part * pull.group_lasso)

    listen(RoundStarted("base", (widths,)))
    network = trainable(graph, tensors, widths, data.device)
    hooks = Hooks(adjust_gradients=adjust_gradients, after_step=shrink if pull.l1 or pull.group_lasso else None)
    fit = train_one(network, [data], recipe, name=name, seed=seed, listen=listen, hooks=hooks)
    return network.growth(0).tensors, fit

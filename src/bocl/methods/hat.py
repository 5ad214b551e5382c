"""HAT: every task opens some of the units by gates that it learns, and later tasks leave alone what it has open.

    a = σ(s e),  one e per unit and task                        the gate; a unit is read times its gate
    s = 1/s_max + (s_max - 1/s_max) (b - 1)/(B - 1)             in batch b of B of every epoch; s_max when it predicts
    min_{W,e}  L_t(W, e) + c Σ_i a_i (1 - A_i) / Σ_i (1 - A_i)  A_i: largest gate of unit i in earlier tasks
    ΔW_ij ← (1 - min(A_i, A_j)) ΔW_ij,  Δb_i ← (1 - A_i) Δb_i   of a step Δ, W_ij leading from unit j to unit i
    ∂/∂e ← s_max (cosh(s e) + 1) / (s (cosh e + 1)) ∂/∂e        undoes what annealing s does to gradients of e

e starts from N(0, 1) and stays within ±6; |s e| counts as at most 50 in the last line.

A gate is only nearly binary. A weight between units that an earlier task has fully open (A = 1 in float32, so
s_max e > 17) keeps its bits; others move a little, and old logits drift. ``docs/methods.md`` says how far.

Source: Serrà et al., "Overcoming Catastrophic Forgetting with Hard Attention to the Task", and its code
(c, s_max).
Deviations:
- The step is masked, not the gradient. For SGD this is the same. Adam brings gradients of any length to one, so a mask
  of the gradient would hold nothing but what it holds fully.
- A unit is gated where it is read, not where it is computed, so that residual additions and products may stand between:
  in a plain network this is the same. Batch norms, which its networks do not have, are each task's own.
- The optimiser is the recipe's, without weight decay, which would pull gates to ½. So is the learning rate's schedule,
  in place of a rate that falls when validation stalls. Gradients are not clipped.
- With one batch in an epoch there is nothing to anneal: s = s_max.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from bocl.checks import NonNegative, Number, checked, section
from bocl.methods.guessing import GuessSettings
from bocl.methods.method import Learned, Learner
from bocl.methods.plain import train_one
from bocl.methods.rounds import RoundTrainer
from bocl.networks.gated import GatedNetwork, GatedStack, Gates, held, refuse_unheld
from bocl.networks.graph import Graph
from bocl.records.events import Callback, RoundStarted
from bocl.seeding import seed_for
from bocl.tasks.task import Task
from bocl.training.batches import DeviceTask
from bocl.training.evaluation import accuracy
from bocl.training.hooks import Hooks
from bocl.training.recipe import Recipe
from bocl.widths import Widths

MOST_EMBEDDING = 6.0
MOST_EXPONENT = 50.0  # of cosh, which float32 cannot hold beyond 88


@section("hat")
@dataclass(frozen=True)
class HATSettings:
    """Of the method `hat`.

    steepness  s_max, of the gates: the larger, the closer to 0 or 1, and the less old tasks drift
    sparsity   c, the price of units that no earlier task has open
    """

    steepness: Annotated[Number, Field(ge=1, le=1e6)] = 400.0
    sparsity: Annotated[NonNegative, Field(le=1e6)] = 0.75


class HAT(Learner):
    """Hard attention to the task: gates choose the units of every task, and hold them against later ones."""

    name: ClassVar[str] = "hat"
    forgets: ClassVar[bool] = True
    graph: Graph
    network: GatedNetwork

    def __init__(
        self,
        network: nn.Module | Graph,
        *,
        settings: HATSettings = HATSettings(),  # noqa: B008 - frozen
        recipe: Recipe = Recipe(),  # noqa: B008
        seed: int = 0,
        device: str | torch.device = "auto",
        guess: GuessSettings = GuessSettings(),  # noqa: B008
    ) -> None:
        """Take a network whose units are kept apart: without group norms and layer norms."""
        super().__init__(network, recipe=recipe, seed=seed, device=device, guess=guess)
        refuse_unheld(self.graph)
        self.settings = checked("settings", settings, HATSettings)
        self.network = GatedNetwork(self.graph, self.device)

    def _learn(self, task: Task, data: DeviceTask, callback: Callback, _trainer: RoundTrainer, /) -> Learned:
        """Train weights and gates together; earlier tasks may drift a little."""
        index, stored = data.index, self.parameters()
        stack = self.network.start(
            data.classes,
            steepness=self.settings.steepness,
            steps=self.recipe.steps(len(data.train)),
            seed=seed_for(self.seed, "base", index),
        )
        callback(RoundStarted("base", (self.graph.widths,)))
        recipe = replace(self.recipe, weight_decay=0.0)
        order, hooks = seed_for(self.seed, "order", index), gate_hooks(stack, self._taken(), self.settings.sparsity)
        fit = train_one(stack, [data], recipe, seed=order, callback=callback, hooks=hooks)
        self.network.commit(stack)
        return Learned(
            task.name,
            self.graph.no_units if index else self.graph.widths,
            accuracy(partial(self.network.predict, task=index), data.validation),
            {part: count - stored[part] for part, count in self.parameters().items()},
            effort=fit.effort,
            units={"open": _open(self.network.gates(index)), "taken": _open(self.network.taken())},
        )

    def _taken(self) -> Gates:
        """Return how far earlier tasks have every unit open; nothing before the first task."""
        return self.network.taken() if self.seen else {}


def gate_hooks(stack: GatedStack, taken: Gates, sparsity: float) -> Hooks:
    """Return what a step does besides the loss: price and compensation of the gates, and what earlier tasks hold.

    taken  A of every group (C,); empty where nothing was learnt before
    """
    shares = (
        {name: (1 - share).unsqueeze(0) for name, share in held(stack.children.graph, taken).items()} if taken else {}
    )
    before = {name: stack.parameters[name].detach().clone() for name in shares}
    free = {name: 1 - taken.get(name, torch.zeros_like(e[0])) for name, e in stack.embeddings.items()}
    total = torch.cat(list(free.values())).sum().clamp(min=1)

    def adjust_gradients(parameters: Mapping[str, Tensor]) -> None:
        sharpness = stack.sharpness()
        for name, units in free.items():
            embedding = parameters[f"gate/{name}/embedding"]
            e, gate = embedding.detach(), torch.sigmoid(sharpness * embedding.detach())
            price = sparsity * sharpness * gate * (1 - gate) * units / total
            steep = torch.cosh((sharpness * e).clamp(-MOST_EXPONENT, MOST_EXPONENT)) + 1
            assert embedding.grad is not None
            embedding.grad.add_(price).mul_(stack.steepness * steep / (sharpness * (torch.cosh(e) + 1)))
        for name, tensor in before.items():
            tensor.copy_(parameters[name].detach())
        stack.taken.add_(1)

    def hold(parameters: Mapping[str, Tensor], _step_size: Callable[[Tensor], Any]) -> None:
        for name, share in shares.items():
            parameters[name].copy_(before[name].lerp(parameters[name], share.expand_as(before[name])))
        for name in free:
            parameters[f"gate/{name}/embedding"].clamp_(-MOST_EMBEDDING, MOST_EMBEDDING)

    return Hooks(adjust_gradients=adjust_gradients, proximal=hold)


def _open(gates: Gates) -> Widths:
    return tuple(int((gate > 0.5).sum()) for gate in gates.values())

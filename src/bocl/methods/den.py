"""DEN: retrain what a task can use, grow where that is not enough, copy what would be forgotten.

The first task is trained whole, min L(W) + μ‖W‖₁. Task t then takes these steps, W' being its start:

1. selection     train only its head, min L + μ‖W_head‖₁; S is every unit reached from weights that are not zero
2. retraining    only within S: min L(W_S) + μ₂/2 ‖W_S‖² + λ/2 ‖W_S - W'_S‖²
3. expansion     if the training loss is still ≥ τ: k units more per layer, min L(W_N) + μ‖W_N‖₁ + γ Σ_g ‖W_g‖₂
                 with a group g per new unit (a filter of a convolution); units whose group is zero are removed
4. duplication   a unit whose incoming weights moved by more than σ (in ‖·‖₂) is copied: the copy is new and keeps them,
                 the original goes back to W'; then what is new is retrained, min L + μ₂/2 ‖·‖²
5. stamps        what is new is stamped t; a task never sees what is stamped later (``networks/stamped.py``)

All penalties are solved for after each step on the loss (``training/proximal.py``), the group lasso too, with a step
size for each weight (``networks/sparse.py``). So μ, γ, μ₂ and λ are coefficients of the loss, whatever the optimiser,
and zeros are exact.

Every weight is stored once, in one matrix per layer: what it holds of a task is the corner the task sees. Copies are
stored next to their originals, which old tasks keep using; new units and copies that the head does not reach are not.

Source: Lifelong Learning with Dynamically Expandable Networks (Yoon et al., 2018). Where this deviates:

- the published μ = 1e-5, γ = 1e-3 and σ = 0.05 are of code that takes μ and γ off in every step, not coefficients of
  the loss; the defaults here were chosen on validation samples of the preset `digits`;
- the penalties above stand in for the recipe's weight decay;
- connections between two units of S are retrained even where they are zero; raw input always belongs to S;
- steps 3 and 4 train all that is new to task t, its head and norms included, and nothing else, so that a unit never
  drifts by more than σ in one task; the paper retrains everything in step 4;
- where an old unit reads a copied one, the new connection starts at 0;
- norms (only batch norms are taken) are each task's own and, like biases, part of a unit's group, but not of ‖·‖₁.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from operator import sub
from typing import ClassVar

import torch
from torch import Tensor, nn

from bocl.checks import NonNegative, OneOrEach, checked, per_group, section
from bocl.methods.budget import Budget
from bocl.methods.guessing import GuessSettings
from bocl.methods.method import Learned, Learner
from bocl.methods.rounds import RoundTrainer
from bocl.methods.sparse_training import Penalties, train_part
from bocl.networks.graph import Graph
from bocl.networks.growth import GrowthSpace, count_tensors
from bocl.networks.sparse import Masks, masks_of_new, masks_within, reached_units, silent_units, unit_norms
from bocl.networks.stamped import StampedNetwork, duplicated, refuse_inseparable, restored, rewired, widened
from bocl.records.events import Callback
from bocl.search.lattice import largest
from bocl.search.settings import Units
from bocl.seeding import seed_for
from bocl.tasks.task import Task
from bocl.training.batches import DeviceTask
from bocl.training.evaluation import accuracy
from bocl.training.recipe import Recipe
from bocl.training.trainer import Effort
from bocl.widths import Widths


@section("den")
@dataclass(frozen=True)
class DENSettings:
    """Of the method `den`.

    l1           μ, of the size of weights: first task, head in the selection, what the expansion adds
    group_lasso  γ, of the norm of every new unit's weights
    l2           μ₂, of the square of what is retrained
    anchor       λ, of the square of how far retrained weights move
    expansion    k, units added where the loss is not small: one number, or one per hidden group
    loss         τ, the training loss that needs no expansion
    drift        σ, how far a unit's incoming weights may move before it is copied
    budget       most parameters stored: there is no expansion beyond it, and of the units that drifted only those are
                 copied that drifted furthest, as many as fit. Heads of later tasks come on top
    """

    l1: NonNegative = 3e-4
    group_lasso: NonNegative = 1e-3
    l2: NonNegative = 1e-4
    anchor: NonNegative = 0.5
    expansion: OneOrEach[Units] = 10
    loss: NonNegative = 0.01
    drift: NonNegative = 0.1
    budget: Budget | None = None


@dataclass
class _Draft:
    """A task's network while it is learnt.

    tensors  as they are now
    before   units there were
    effort   what its training took
    units    how many of each group were `selected`, `pruned` and `copied`
    """

    tensors: dict[str, Tensor]
    before: Widths
    effort: Effort
    units: dict[str, Widths] = field(default_factory=dict)


class DEN(Learner):
    """Dynamically expandable network: selective retraining, expansion and duplication, with stamps."""

    name: ClassVar[str] = "den"
    forgets: ClassVar[bool] = True
    if_out_of_memory: ClassVar[str] = "smaller den.expansion, recipe.batch_size or network"
    graph: Graph
    network: StampedNetwork

    def __init__(
        self,
        network: nn.Module | Graph,
        *,
        settings: DENSettings = DENSettings(),  # noqa: B008 - frozen
        recipe: Recipe = Recipe(),  # noqa: B008
        seed: int = 0,
        device: str | torch.device = "auto",
        guess: GuessSettings = GuessSettings(),  # noqa: B008
    ) -> None:
        """Take a network of linear and convolutional layers whose units can be told apart."""
        super().__init__(network, recipe=recipe, seed=seed, device=device, guess=guess)
        refuse_inseparable(self.graph)
        self.settings = checked("settings", settings, DENSettings)
        self.network = StampedNetwork(self.graph, self.device)
        self._expansion = per_group("den.expansion", self.settings.expansion, len(self.graph.groups))

    def _learn(self, task: Task, data: DeviceTask, callback: Callback, _trainer: RoundTrainer, /) -> Learned:
        """Take the five steps; tasks before may change a little."""
        index, stored = data.index, self.parameters()
        before = self.network.widths(index - 1)
        start = self.network.start(task.classes, seed=seed_for(self.seed, "base", index))
        draft = _Draft(start, before, Effort())
        if index:
            self._learn_later(draft, data, callback)
        else:
            self._train(draft, data, _all_of(start), Penalties(l1=self.settings.l1), "base", callback)
        added = _less(_widths(self.graph, draft.tensors), before)
        self.network.commit(draft.tensors, added)
        score = accuracy(partial(self.network.predict, task=index), data.validation)
        parameters = {part: count - stored[part] for part, count in self.parameters().items()}
        return Learned(task.name, added, score, parameters, effort=draft.effort, units=draft.units)

    def _learn_later(self, draft: _Draft, data: DeviceTask, callback: Callback) -> None:
        """Take the steps of every task but the first."""
        settings, graph = self.settings, self.graph
        old = {key: tensor for key, tensor in draft.tensors.items() if key.startswith("layer/")}
        self._train(draft, data, _all_of(draft.tensors, "head/"), Penalties(l1=settings.l1), "selection", callback)

        selected = reached_units(graph, draft.tensors)
        draft.units["selected"] = _counts(selected)
        penalties = Penalties(l2=settings.l2, anchor=settings.anchor, anchored=old)
        masks = masks_within(graph, draft.tensors, selected)
        loss = self._train(draft, data, masks, penalties, "retraining", callback)

        expands = loss >= settings.loss and any(self._expansion)
        if expands and self._fits(data.classes, draft.before, self._expansion):
            seed = seed_for(self.seed, "expansion", len(self.seen))
            classes = len(draft.tensors["head/weight"])
            draft.tensors = widened(
                graph, draft.tensors, draft.before, self._expansion, classes, seed=seed, device=self.device
            )
            masks = masks_of_new(graph, draft.tensors, draft.before)
            penalties = Penalties(l1=settings.l1, group_lasso=settings.group_lasso, grouped_after=draft.before)
            self._train(draft, data, masks, penalties, "expansion", callback)
            wide = _widths(graph, draft.tensors)
            draft.tensors = pruned(graph, draft.tensors, draft.before)
            draft.units["pruned"] = _less(wide, _widths(graph, draft.tensors))

        drift = drift_of_units(graph, draft.tensors, old)
        reached = reached_units(graph, draft.tensors)  # a copy of any other would do nothing for the task
        far = [moved > settings.drift for moved in drift]
        useful = [units & in_use[: len(units)] for units, in_use in zip(far, reached, strict=True)]
        wide = _widths(graph, draft.tensors)
        copies = furthest(drift, useful, lambda more: self._fits(data.classes, wide, more))
        back = [units & ~in_use | copy for units, in_use, copy in zip(far, useful, copies, strict=True)]
        draft.units["copied"] = _counts(copies)
        if any(_counts(back)):
            draft.tensors = duplicated(graph, draft.tensors, old, draft.before, _numbers(copies))
            draft.tensors = restored(graph, draft.tensors, old, _numbers(back))
            masks = masks_of_new(graph, draft.tensors, draft.before)
            self._train(draft, data, masks, Penalties(l2=settings.l2), "duplication", callback)

    def _fits(self, classes: int, widths: Widths, more: Widths) -> bool:
        """Whether the budget lets the network have ``more`` units than ``widths`` after a task of so many classes."""
        if self.settings.budget is None:
            return True
        others = sum(count_tensors(*self.network.own).values())
        space = GrowthSpace.first(self.graph, classes)
        return others + int(space.count_all(self.graph.total([widths, more]))) <= self.settings.budget

    def _train(
        self,
        draft: _Draft,
        data: DeviceTask,
        masks: Masks,
        penalties: Penalties,
        step: str,
        callback: Callback,
    ) -> float:
        """Train what is masked, keep it in the draft and return the training loss."""
        order = seed_for(self.seed, "order", data.index, step)
        recipe = replace(self.recipe, weight_decay=0.0)
        widths = _widths(self.graph, draft.tensors)
        draft.tensors, fit = train_part(
            self.graph,
            draft.tensors,
            widths,
            data,
            recipe,
            masks,
            penalties,
            step=step,
            seed=order,
            callback=callback,
        )
        draft.effort += fit.effort
        return fit.loss


def pruned(graph: Graph, tensors: dict[str, Tensor], before: Widths) -> dict[str, Tensor]:
    """Take out units whose group is all zero, or that the head does not reach: they do nothing for the task.

    The first ``before`` units of each group stay, because old tasks know them.
    """
    kept = []
    for group, (first, reached) in enumerate(zip(before, reached_units(graph, tensors), strict=True)):
        alive = reached & ~silent_units(graph, tensors, group)
        alive[:first] = True
        kept.append(alive.nonzero().squeeze(1))
    return rewired(graph, tensors, kept)


def drift_of_units(graph: Graph, tensors: dict[str, Tensor], old: dict[str, Tensor]) -> list[Tensor]:
    """Return how far the incoming weights and the bias of the old units of every group moved, (C,)."""
    moved = {name: tensors[name][tuple(map(slice, tensor.shape))] - tensor for name, tensor in old.items()}
    return [unit_norms(graph, moved, group) for group in range(len(graph.groups))]


def furthest(drift: list[Tensor], among: list[Tensor], fits: Callable[[Widths], bool]) -> list[Tensor]:
    """Return which units of every group drifted furthest, as many as fit: booleans (C,).

    among  which units of every group may be among them, booleans (C,)
    """
    ranked = torch.cat([moved[units] for moved, units in zip(drift, among, strict=True)]).sort(descending=True).values

    def first(count: int) -> list[Tensor]:
        least = ranked[count - 1] if count else torch.inf
        return [units & (moved >= least) for moved, units in zip(drift, among, strict=True)]

    return first(max(largest(len(ranked), lambda count: fits(_counts(first(count)))), 0))


def _all_of(tensors: dict[str, Tensor], prefix: str = "") -> Masks:
    return {key: torch.ones_like(tensor, dtype=torch.bool) for key, tensor in tensors.items() if key.startswith(prefix)}


def _less(widths: Widths, others: Widths) -> Widths:
    return tuple(map(sub, widths, others))


def _widths(graph: Graph, tensors: dict[str, Tensor]) -> Widths:
    return tuple(len(tensors[f"layer/{group.name}/rows"]) for group in graph.groups)


def _counts(units: list[Tensor]) -> Widths:
    return tuple(int(each.sum()) for each in units)


def _numbers(units: list[Tensor]) -> list[Tensor]:
    return [each.nonzero().squeeze(1) for each in units]

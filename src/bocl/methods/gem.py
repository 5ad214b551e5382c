"""GEM: one network that takes no step against the stored samples of an earlier task.

With g the gradient on the batch, and those on every earlier task's samples as the rows of G, a step against a row
raises that task's loss. Where one would, g gives way to the nearest gradient that raises none:

    min_g̃  ½ ‖g̃ - g‖²   subject to  G g̃ ≥ 0

Its dual has one number per earlier task, and g̃ = g + Gᵀ v:

    min_v  ½ vᵀ G Gᵀ v + gᵀ Gᵀ v   subject to  v ≥ margin

A margin above 0 turns the step further, to where the losses of earlier tasks fall. With the Cholesky factor G Gᵀ = Rᵀ R
and v = u + margin this is a least squares problem in u ≥ 0:  min_u ‖R u + R⁻ᵀ G g + margin R 1‖².

Source: Lopez-Paz and Ranzato, "Gradient Episodic Memory for Continual Learning", and its code for the memories per task
and the margin. Deviations:
- Memories are drawn at random from a task's training samples, not the last ones shown.
- g and G are over what all tasks share: the body, and the head where there is one for all. Other heads do not change.
- Memories pass through the network as it predicts: with running statistics of batch norms, which follow the newest task
  as in SN, and without dropout.
- The diagonal of G Gᵀ is raised by a millionth of itself, not by 0.001, so gradients may have any length.
- The optimiser is the recipe's: momentum, Adam and weight decay act on g̃ and bend the step again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn.utils.rnn import pad_sequence

from bocl.checks import NonNegative, PositiveInt, checked, section
from bocl.errors import NetworkError
from bocl.methods.guessing import GuessSettings
from bocl.methods.method import Learned, Learner, State
from bocl.methods.plain import fine_tune
from bocl.methods.rounds import RoundTrainer
from bocl.methods.seen import SeenTask
from bocl.networks.by_task import join_tensors, part_tensors
from bocl.networks.graph import Graph
from bocl.networks.plain import PlainNetwork, plain_logits
from bocl.networks.stacked import Children
from bocl.records.events import Callback
from bocl.seeding import seed_for
from bocl.tasks.task import Split, Task
from bocl.training.batches import DeviceTask, to_device
from bocl.training.hooks import Hooks, Part
from bocl.training.recipe import Recipe
from bocl.training.trainer import Effort

RIDGE = 1e-6  # of the squared length of each memory's gradient
NO_LABEL = -100  # of padding: left out of the loss


@section("gem")
@dataclass(frozen=True)
class GEMSettings:
    """What is remembered, and how it steers.

    memories     samples kept of every task
    margin       least weight of every memory's gradient in a step that is projected
    shared_head  one head for all tasks, or one each
    """

    memories: PositiveInt = 256
    margin: Annotated[NonNegative, Field(le=1e6)] = 0.5
    shared_head: bool = False


class GEM(Learner):
    """Gradient episodic memory: one network, no step against the stored samples of an earlier task."""

    name: ClassVar[str] = "gem"
    forgets: ClassVar[bool] = True
    if_out_of_memory: ClassVar[str] = "a smaller recipe.batch_size, gem.memories or network"
    graph: Graph
    network: PlainNetwork

    def __init__(
        self,
        network: nn.Module | Graph,
        *,
        settings: GEMSettings = GEMSettings(),  # noqa: B008 - frozen
        recipe: Recipe = Recipe(),  # noqa: B008
        seed: int = 0,
        device: str | torch.device = "auto",
        guess: GuessSettings = GuessSettings(),  # noqa: B008
    ) -> None:
        """Take any network BOCL takes."""
        super().__init__(network, recipe=recipe, seed=seed, device=device, guess=guess)
        self.settings = checked("settings", settings, GEMSettings)
        self.network = PlainNetwork(self.graph, shared_head=settings.shared_head, device=self.device)
        self.samples: list[Split] = []  # stored of every task learnt

    def _learn(self, task: Task, data: DeviceTask, callback: Callback, _trainer: RoundTrainer, /) -> Learned:
        """Fine-tune without a step against the stored samples, and keep samples of this task."""
        stored = StoredSamples(self.network, self.samples, self.settings.margin) if self.samples else None
        network, learned = fine_tune(
            self.network,
            data,
            self.recipe,
            seed=self.seed,
            callback=callback,
            hooks=lambda trained: Hooks(adjust_gradients=partial(stored.steer, trained) if stored else None),
        )
        steps = learned.effort.samples // min(self.recipe.batch_size, len(task.train))
        shown = Effort(steps * sum(map(len, self.samples)))
        draw = torch.Generator().manual_seed(seed_for(self.seed, "memory", data.index))
        kept = torch.randperm(len(task.train), generator=draw)[: self.settings.memories]
        self.samples.append(replace(task.train, raw=task.train.raw[kept], labels=task.train.labels[kept]))
        self.network = network
        return replace(learned, effort=learned.effort + shown)

    def _kept(self, _first: int = 0, /) -> State:
        return State({}, join_tensors([{"raw": split.raw, "labels": split.labels} for split in self.samples]))

    def _check_kept(self, kept: State, seen: Sequence[SeenTask], /) -> None:
        """Refuse saved samples that are not of the tasks seen."""
        wanted = {f"{task}/{name}" for task in range(len(seen)) for name in ("raw", "labels")}
        if kept.tensors.keys() != wanted:
            raise NetworkError(f"samples are kept of other tasks than the {len(seen)} that were learnt")
        for task, (part, entry) in enumerate(zip(part_tensors(kept.tensors, len(seen)), seen, strict=True)):
            raw, labels = part["raw"], part["labels"]
            like = raw.dtype == (torch.uint8 if entry.in_bytes else torch.float32) and labels.dtype == torch.int64
            sized = labels.dim() == 1 and 1 <= len(labels) <= self.settings.memories
            if not like or not sized or raw.shape != (len(labels), *entry.shape) or not raw.isfinite().all():
                raise NetworkError(f"the samples kept of task {task} are not samples of it")
            if labels.min() < 0 or labels.max() >= entry.classes:
                raise NetworkError(f"the samples kept of task {task} have labels beyond its {entry.classes} classes")

    def _restore_kept(self, kept: State, /) -> None:
        self.samples = [
            Split(part["raw"], part["labels"], entry.mean, entry.std)
            for part, entry in zip(part_tensors(kept.tensors, len(self.seen)), self.seen, strict=True)
        ]


class StoredSamples:
    """The samples of T earlier tasks, padded to one shape, so that one pass gives the gradients of all.

    inputs  (T, M, *shape)
    labels  (T, M)          NO_LABEL where a task has fewer
    heads   NAME → (T, …)   of the earlier tasks, padded to the most classes; empty where one head is shared
    absent  (T, classes)    added to logits: -∞ for classes a task does not have
    """

    def __init__(self, network: PlainNetwork, samples: Sequence[Split], margin: float) -> None:
        self.margin = margin
        pairs = [to_device(split, network.device).rows(slice(None)) for split in samples]
        self.inputs = pad_sequence([inputs for inputs, _ in pairs], batch_first=True)
        self.labels = pad_sequence([labels for _, labels in pairs], batch_first=True, padding_value=NO_LABEL)
        heads = [network.head_of(task) for task in range(len(pairs))]
        kinds = (
            [] if network.shared_head else [kind for kind in ("weight", "bias") if f"head0/{kind}" in network.tensors]
        )
        self.heads = {
            f"head/{kind}": pad_sequence([network.tensors[f"{head}/{kind}"] for head in heads], batch_first=True)
            for kind in kinds
        }
        present = [torch.zeros(classes, device=network.device) for classes in network.classes]
        self.absent = pad_sequence(present, batch_first=True, padding_value=-torch.inf)
        head = network.head_of(0) if network.shared_head else "head"

        def loss(
            shared: Mapping[str, Tensor],
            rest: Mapping[str, Tensor],
            own: Mapping[str, Tensor],
            x: Tensor,
            labels: Tensor,
            absent: Tensor,
        ) -> Tensor:
            logits = plain_logits(network.graph, {**rest, **own, **shared}, x, head)
            return F.cross_entropy(logits + absent, labels, ignore_index=NO_LABEL)

        self._is_shared = network.is_shared
        self._gradients = vmap(grad(loss), in_dims=(None, None, 0, 0, 0, 0))

    def gradients(self, trained: Children) -> dict[str, Tensor]:
        """Return the gradient of every earlier task's loss on its samples, NAME → (T, …)."""
        now = {name: tensor.detach()[0] for name, tensor in {**trained.parameters, **trained.buffers}.items()}
        shared = {name: now[name] for name in sorted(now) if self._is_shared(name)}  # sums keep their order once saved
        rest = {name: tensor for name, tensor in now.items() if name not in shared}
        found: dict[str, Tensor] = self._gradients(shared, rest, self.heads, self.inputs, self.labels, self.absent)
        return found

    def steer(self, trained: Children, parameters: Mapping[str, Tensor]) -> Iterator[Part]:
        """Project the gradients of the shared parameters if the samples of an earlier task are against them.

        The host solves the dual in between (``Hooks``). Numbers that are not finite stay so, and the training fails.
        """
        stored = self.gradients(trained)
        rows = torch.cat([gradient.flatten(1) for gradient in stored.values()], dim=1)  # G (T, P)
        own = {name: _gradient(parameters[name]) for name in stored}
        g = torch.cat([gradient.flatten() for gradient in own.values()])
        both = torch.cat([rows, g[None]]).double()  # sharp enough for a Cholesky factor, also where products are tf32
        facts = both[:-1] @ both.T  # (T, T + 1)
        weights = g.new_zeros(len(rows))  # v (T,)
        yield partial(self.weigh, facts, weights)
        for name, gradient in own.items():
            gradient += torch.tensordot(weights, stored[name], dims=1).view_as(gradient)

    def weigh(self, facts: Tensor, weights: Tensor) -> None:
        """Set the weights v (T,) by G Gᵀ and G g, the columns of facts (T, T + 1); they stay 0 if none is against g."""
        known = facts.cpu().numpy()
        products, along = known[:, :-1], known[:, -1]
        if np.isfinite(known).all() and (along < 0).any():
            weights.copy_(torch.from_numpy(dual(products, along, self.margin)))


def dual(products: NDArray[Any], along: NDArray[Any], margin: float) -> NDArray[Any]:
    """Return v (T,) that minimises ½ vᵀ P v + cᵀ v, v ≥ margin.

    products  P = G Gᵀ (T, T)
    along     c = G g (T,)
    """
    from scipy.linalg import cholesky, solve_triangular  # a third of a second, needed by GEM only
    from scipy.optimize import nnls

    ridge = np.maximum(RIDGE * products.diagonal(), np.finfo(float).tiny)  # a gradient may be zero
    factor = cholesky(products + np.diag(ridge))  # R, upper
    target = solve_triangular(factor, along, trans="T") + margin * factor.sum(1)
    found: NDArray[Any] = nnls(factor, -target, maxiter=100 * len(along))[0]
    return found + margin


def _gradient(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad

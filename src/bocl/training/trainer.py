"""The only training loop: K networks at once, on one task or several.

The loss is the sum of every network's own mean cross-entropy, so gradients never mix, and an elementwise
optimiser takes the same step for each network as if it were trained by itself.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from bocl.seeding import seed_for
from bocl.training.batches import DeviceTask, epoch_order
from bocl.training.cancellation import stop_if_cancelled
from bocl.training.draws import Draws
from bocl.training.evaluation import accuracies
from bocl.training.hooks import Hooks
from bocl.training.precision import repeatable_products
from bocl.training.recipe import Recipe
from bocl.training.steps import StepCache, copy_state, make_step
from bocl.training.threads import sensible_threads
from bocl.training.trainable import Trainable

OnEpoch = Callable[[int, int, tuple[float, ...], tuple[float, ...]], None]


@dataclass(frozen=True)
class Effort:
    """What training took: samples shown, and seconds; for networks trained together, each one's share."""

    samples: int = 0
    seconds: float = field(default=0.0, compare=False, repr=False)

    def __add__(self, other: Effort) -> Effort:
        return Effort(self.samples + other.samples, self.seconds + other.seconds)


@dataclass(frozen=True)
class Fit:
    """How one network's training ended.

    accuracy  on the validation samples (the mean over tasks, when there are several); NaN if the loss was not finite
    loss      mean training loss of the last epoch
    epochs    passes that were made
    effort    what it took
    """

    accuracy: float
    loss: float
    epochs: int
    effort: Effort


def train(
    network: Trainable,
    tasks: Sequence[DeviceTask],
    recipe: Recipe,
    *,
    seed: int,
    hooks: Hooks = Hooks(),  # noqa: B008 - frozen
    on_epoch: OnEpoch | None = None,
    cache: StepCache | None = None,
    graphed: bool = True,
) -> list[Fit]:
    """Train K networks on the same mini-batches and return one fit each.

    hooks     what else a step does
    on_epoch  called with (epochs done, epochs in all, losses, accuracies), the last two one per network; there are
              accuracies only where ``recipe.patience`` asks for them
    cache     steps captured before, for networks of one shape on the same task
    graphed   capture the step as a CUDA graph where that is possible

    The order of samples depends only on the seed, so networks trained separately with one seed see the same batches.
    """
    began = time.perf_counter()
    tasks = list(tasks)
    orders = [torch.Generator().manual_seed(seed_for(seed, "order", task.index)) for task in tasks]
    shuffle = torch.Generator().manual_seed(seed_for(seed, "tasks"))
    per_epoch = sum(-(-len(task.train) // min(recipe.batch_size, len(task.train))) for task in tasks)
    taken = samples = epoch = 0
    loss = torch.full((network.count,), math.nan, dtype=next(iter(network.parameters.values())).dtype)
    draws = Draws(network, tasks[0].device, seed_for(seed, "dropout"))
    with sensible_threads(network, tasks[0], recipe.batch_size):
        network.training = True
        with draws.in_use():
            step = make_step(network, tasks, recipe, hooks, cache=cache, graphed=graphed)
        trained = step.network
        best = _Best(trained, recipe.patience)
        for epoch in range(1, recipe.epochs + 1):
            trained.training = True
            step.total.zero_()
            batches = _interleave(tasks, orders, recipe.batch_size, shuffle)
            with draws.in_use(), step.sharing_gpu():
                for task, batch in batches:
                    step(task, batch, _learning_rate(recipe, taken, per_epoch * recipe.epochs))
                    taken += 1
                    samples += len(batch)
            trained.training = False
            loss = torch.where(best.waiting, step.total.cpu() / per_epoch, loss)
            stop_if_cancelled()
            scores = _validate(trained, tasks, recipe.precision) if recipe.patience else None
            if on_epoch is not None:
                on_epoch(epoch, recipe.epochs, tuple(loss.tolist()), () if scores is None else tuple(scores.tolist()))
            if scores is not None and best.is_over(scores, epoch):
                break
        best.restore()
        finite = torch.isfinite(loss)
        for tensor in trained.state.values():  # the last step may be the one that diverged
            finite &= torch.isfinite(tensor.detach()).flatten(1).all(1).cpu()
        scores = torch.where(finite, _validate(trained, tasks, recipe.precision), math.nan)
        if trained is not network:
            copy_state(trained.state, network.state)
    network.training = False
    effort = Effort(samples, (time.perf_counter() - began) / network.count)
    return [Fit(float(score), float(own), epoch, effort) for score, own in zip(scores, loss.tolist(), strict=True)]


class _Best:
    """Early stopping: each network's state at its own best epoch.

    A network that is out of patience has stopped: what it does while the others continue does not count.
    """

    def __init__(self, network: Trainable, patience: int) -> None:
        self.network = network
        self.patience = patience
        self.waiting = torch.ones(network.count, dtype=torch.bool)  # networks with patience left
        self.score = torch.full((network.count,), -math.inf, dtype=torch.float64)
        self.since = torch.zeros(network.count)  # the epoch each network last improved in
        self.state: dict[str, Tensor] = {}

    def is_over(self, scores: Tensor, epoch: int) -> bool:
        """Keep the networks that improved; return whether all have run out of patience."""
        improved = (scores > self.score) & self.waiting
        self.score[improved], self.since[improved] = scores[improved], epoch
        for name, tensor in self.network.state.items():
            if name not in self.state:
                self.state[name] = torch.zeros_like(tensor)
            chosen = improved.to(tensor.device)
            self.state[name][chosen] = tensor.detach()[chosen]
        self.waiting &= epoch - self.since < self.patience
        return not bool(self.waiting.any())

    def restore(self) -> None:
        copy_state(self.state, {name: self.network.state[name] for name in self.state})


def _learning_rate(recipe: Recipe, step: int, steps: int) -> float:
    if recipe.schedule == "constant":
        return recipe.learning_rate
    return recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * step / steps))


def _interleave(
    tasks: Sequence[DeviceTask], orders: Sequence[torch.Generator], batch_size: int, shuffle: torch.Generator
) -> Iterator[tuple[DeviceTask, Tensor]]:
    """Return one epoch of (task, places of its next batch), the tasks' batches mixed when there are several."""
    epochs = [epoch_order(len(task.train), batch_size, order) for task, order in zip(tasks, orders, strict=True)]
    batches = [task.train.batches(epoch) for task, epoch in zip(tasks, epochs, strict=True)]
    turns = torch.repeat_interleave(torch.tensor([len(epoch) for epoch in epochs]))
    if len(tasks) > 1:
        turns = turns[torch.randperm(len(turns), generator=shuffle)]
    return ((tasks[turn], next(batches[turn])) for turn in turns.tolist())


def _validate(network: Trainable, tasks: Sequence[DeviceTask], precision: str) -> Tensor:
    """Return (K,) validation accuracies, the mean over tasks."""
    with repeatable_products(precision):
        scores = [accuracies(partial(network, task=task.index), task.validation) for task in tasks]
        return torch.stack(scores).mean(0).cpu()

"""The only training loop: K networks at once, on one task or several.

The loss is the sum of every network's own mean cross-entropy, so gradients never mix and an elementwise
optimiser takes for each network the step it would take alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from bocl.seeding import seed_for
from bocl.training.batches import DeviceTask, epoch_order
from bocl.training.device import sensible_threads
from bocl.training.evaluation import accuracies
from bocl.training.recipe import Recipe


class Trainable(Protocol):
    """K networks that are trained together; every tensor of their state is (K, …)."""

    training: bool

    @property
    def count(self) -> int:
        """K."""
        ...

    @property
    def parameters(self) -> Mapping[str, Tensor]:
        """What the optimiser changes."""
        ...

    @property
    def state(self) -> Mapping[str, Tensor]:
        """Parameters and running statistics."""
        ...

    def __call__(self, x: Tensor, task: int) -> Tensor:
        """Return logits (K, n, classes) for shared inputs (n, *shape)."""
        ...


@dataclass(frozen=True)
class Fit:
    """How one network's training ended.

    accuracy  on the validation samples (the mean over tasks, when there are several); NaN if the loss was not finite
    loss      mean training loss of the last epoch
    epochs    passes that were made
    samples   training samples that were shown
    """

    accuracy: float
    loss: float
    epochs: int
    samples: int


def train(
    network: Trainable,
    tasks: Sequence[DeviceTask],
    recipe: Recipe,
    *,
    seed: int,
    penalty: Callable[[Mapping[str, Tensor]], Tensor] | None = None,
    adjust_gradients: Callable[[Mapping[str, Tensor]], None] | None = None,
    after_step: Callable[[Mapping[str, Tensor], float], None] | None = None,
    on_epoch: Callable[[int, int], None] | None = None,
) -> list[Fit]:
    """Train K networks on the same mini-batches and return one fit each.

    penalty           parameters → (K,) added to each network's loss
    adjust_gradients  called between backward and the step, may change ``.grad``
    after_step        called after each step with the parameters and the learning rate (proximal steps)
    on_epoch          called with (epochs done, epochs in all)

    The order of samples depends on the seed alone, so networks trained apart with one seed see the same batches.
    """
    device = tasks[0].device
    orders = [torch.Generator().manual_seed(seed_for(seed, "order", task.index)) for task in tasks]
    shuffle = torch.Generator().manual_seed(seed_for(seed, "tasks"))
    optimiser = _optimiser(network, recipe)
    steps = sum(-(-len(task.train) // min(recipe.batch_size, len(task.train))) for task in tasks) * recipe.epochs
    best = _Best(network, recipe.patience)
    taken = samples = epoch = 0
    loss = torch.full((network.count,), math.nan, dtype=tasks[0].train.inputs.dtype)
    weights = sum(tensor.numel() for tensor in network.parameters.values())
    with (
        sensible_threads(weights * recipe.batch_size),
        torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
    ):
        torch.manual_seed(seed_for(seed, "dropout"))
        for epoch in range(1, recipe.epochs + 1):
            network.training = True
            total = torch.zeros(network.count, device=device, dtype=tasks[0].train.inputs.dtype)
            schedule = _interleave(tasks, orders, recipe.batch_size, shuffle)
            for task, batch in schedule:
                rate = _learning_rate(recipe, taken, steps)
                for group in optimiser.param_groups:
                    group["lr"] = rate
                logits = network(task.train.inputs[batch], task.index)
                losses = _cross_entropy(logits, task.train.labels[batch])
                total += losses.detach()
                if penalty is not None:
                    losses = losses + penalty(network.parameters)
                optimiser.zero_grad(set_to_none=True)
                losses.sum().backward()
                if adjust_gradients is not None:
                    adjust_gradients(network.parameters)
                optimiser.step()
                if after_step is not None:
                    after_step(network.parameters, rate)
                taken += 1
                samples += len(batch)
            network.training = False
            loss = torch.where(best.waiting, total.cpu() / len(schedule), loss)
            if on_epoch is not None:
                on_epoch(epoch, recipe.epochs)
            if recipe.patience and best.is_over(_validate(network, tasks).cpu(), epoch):
                break
    best.restore()
    finite = torch.isfinite(loss)
    for tensor in network.state.values():  # the last step may be the one that diverged
        finite &= torch.isfinite(tensor.detach()).flatten(1).all(1).cpu()
    scores = torch.where(finite, _validate(network, tasks).cpu(), math.nan)
    return [Fit(float(score), float(own), epoch, samples) for score, own in zip(scores, loss.tolist(), strict=True)]


class _Best:
    """Early stopping: each network's state at its own best epoch.

    A network that is out of patience has stopped, though the others go on: what it does later is not looked at.
    """

    def __init__(self, network: Trainable, patience: int) -> None:
        self.network = network
        self.patience = patience
        self.waiting = torch.ones(network.count, dtype=torch.bool)  # networks with patience left
        self.score: Tensor | None = None
        self.since: Tensor | None = None  # the epoch each network last improved in
        self.state: dict[str, Tensor] = {}

    def is_over(self, scores: Tensor, epoch: int) -> bool:
        """Keep the networks that improved; return whether all have run out of patience."""
        if self.score is None or self.since is None:
            self.score, self.since = scores, torch.full_like(scores, epoch)
            self.state = {name: tensor.detach().clone() for name, tensor in self.network.state.items()}
            return False
        improved = (scores > self.score) & self.waiting
        self.score = torch.where(improved, scores, self.score)
        self.since = torch.where(improved, torch.full_like(self.since, epoch), self.since)
        for name, tensor in self.network.state.items():
            chosen = improved.to(tensor.device)
            self.state[name][chosen] = tensor.detach()[chosen]
        self.waiting &= epoch - self.since < self.patience
        return not bool(self.waiting.any())

    def restore(self) -> None:
        with torch.no_grad():
            for name, tensor in self.state.items():
                self.network.state[name].copy_(tensor)


def _optimiser(network: Trainable, recipe: Recipe) -> torch.optim.Optimizer:
    parameters = list(network.parameters.values())
    if recipe.optimiser == "sgd":
        return torch.optim.SGD(
            parameters, recipe.learning_rate, momentum=recipe.momentum, weight_decay=recipe.weight_decay
        )
    return torch.optim.Adam(parameters, recipe.learning_rate, weight_decay=recipe.weight_decay)


def _learning_rate(recipe: Recipe, step: int, steps: int) -> float:
    if recipe.schedule == "constant":
        return recipe.learning_rate
    return recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * step / steps))


def _interleave(
    tasks: Sequence[DeviceTask], orders: Sequence[torch.Generator], batch_size: int, shuffle: torch.Generator
) -> list[tuple[DeviceTask, Tensor]]:
    """Return one epoch of (task, sample indices), the tasks' batches mixed when there are several."""
    batches = [
        (task, batch)
        for task, order in zip(tasks, orders, strict=True)
        for batch in epoch_order(len(task.train), batch_size, order).to(task.device)
    ]
    if len(tasks) == 1:
        return batches
    return [batches[i] for i in torch.randperm(len(batches), generator=shuffle).tolist()]


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return (K,) mean losses for logits (K, n, classes) and shared labels (n,)."""
    count, samples, classes = logits.shape
    each = F.cross_entropy(logits.reshape(-1, classes), labels.repeat(count), reduction="none")
    return each.view(count, samples).mean(1)


def _validate(network: Trainable, tasks: Sequence[DeviceTask]) -> Tensor:
    """Return (K,) validation accuracies, the mean over tasks."""
    scores = [accuracies(partial(network, task=task.index), task.validation) for task in tasks]
    return torch.stack(scores).mean(0)

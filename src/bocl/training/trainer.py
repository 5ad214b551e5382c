"""The only training loop: K networks at once, on one task or several.

The loss is the sum of every network's own mean cross-entropy, so gradients never mix, and an elementwise
optimiser takes the same step for each network as if it were trained by itself.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

import torch
from torch import Tensor

from bocl.seeding import seed_for
from bocl.training.augment import check_images, draw_changes
from bocl.training.averaging import load_averages, weight_of_step
from bocl.training.batches import Batch, DeviceTask, epoch_order
from bocl.training.cancellation import stop_if_cancelled
from bocl.training.draws import Draws
from bocl.training.evaluation import Scores, scores
from bocl.training.hooks import Hooks
from bocl.training.precision import repeatable_products
from bocl.training.recipe import Recipe
from bocl.training.steps import (
    EagerStep,
    GraphedStep,
    Moments,
    StepCache,
    batch_logits,
    batch_samples,
    copy_state,
    kept_moments,
    make_step,
    read_moments,
    write_moments,
)
from bocl.training.threads import sensible_threads
from bocl.training.trainable import Divisible, Trainable

STATISTICS_STEPS = 100  # what a running statistic of momentum 0.1 held before counts less than 1e-4 after these

Network = TypeVar("Network", bound=Trainable)
Part = TypeVar("Part", bound=Divisible)
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

    accuracy    on the validation samples (the mean over tasks, when there are several); NaN if the loss was not finite
    loss        mean training loss of the last epoch
    epochs      passes that were made
    effort      what it took
    confidence  mean probability of the right class, on the same samples
    """

    accuracy: float
    loss: float
    epochs: int
    effort: Effort
    confidence: float = math.nan


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
    training = Training(network, tasks, recipe, seed=seed, hooks=hooks, on_epoch=on_epoch, cache=cache, graphed=graphed)
    return training.finish()


class Training(Generic[Network]):
    """A training that can pause after any epoch, and go on with some of its networks.

    It takes arguments as ``train`` does. The learning rate follows its schedule over all epochs of the recipe, wherever
    the training pauses and whoever leaves. The networks that stay take the steps that they would have taken.

    network  as it was at the last pause
    epoch    passes that were made
    """

    def __init__(
        self,
        network: Network,
        tasks: Sequence[DeviceTask],
        recipe: Recipe,
        *,
        seed: int,
        hooks: Hooks = Hooks(),  # noqa: B008 - frozen
        on_epoch: OnEpoch | None = None,
        cache: StepCache | None = None,
        graphed: bool = True,
    ) -> None:
        self.network, self.epoch = network, 0
        self._tasks, self._recipe, self._hooks, self._on_epoch = list(tasks), recipe, hooks, on_epoch
        self._cache, self._graphed = cache or StepCache(), graphed
        for task in tasks:
            check_images(recipe.augment, task.train.inputs.shape)
        self._seed, self._batches = seed, _Batches(self._tasks, recipe, seed)
        self._per_epoch = sum(recipe.steps(len(task.train)) for task in tasks)
        self._epochs = recipe.epochs_of(self._per_epoch)
        self._taken = self._samples = 0
        self._seconds = 0.0  # each network's share
        self._loss = torch.full((network.count,), math.nan, dtype=next(iter(network.parameters.values())).dtype)
        self._draws = Draws(network, self._tasks[0].device, seed_for(seed, "dropout"))
        self._best = _Best(network.count, recipe.patience)
        self._moments: Moments = {}
        self._averages: dict[str, Tensor] = {}  # of the weights, as they were at the last pause

    def advance(self: Training[Part], until: int) -> None:
        """Train until so many epochs are made in all, then pause; networks out of patience make none."""
        with self._at_work():
            # A captured step keeps the network that it was captured with, to compute on it for others too.
            on_gpu = self._tasks[0].device.type == "cuda"
            self._go_on(until, self.network.kept(range(self.network.count)) if on_gpu else self.network)
            for parameter in self.network.parameters.values():
                parameter.grad = None

    def fits(self) -> list[Fit]:
        """Return how each network's training would end now: at its best epoch so far, if the recipe has patience.

        Accuracy and confidence are NaN where the loss, or a weight, is not finite.
        """
        with self._at_work(), self._averaged(self.network, self._averages):
            scores = self._scores()
        return self._fits(scores)

    def keep(self: Training[Part], which: Sequence[int]) -> None:
        """Go on with the networks at these places, in this order; the others leave."""
        if list(which) == list(range(self.network.count)):
            return
        self.network = self.network.kept(which)
        self._moments = kept_moments(self._moments, which)
        self._averages = {name: average[list(which)] for name, average in self._averages.items()}
        self._loss = self._loss[list(which)]
        self._best = self._best.kept(which)

    def finish(self) -> list[Fit]:
        """Train to the end and return one fit per network, whose state is then in ``network``."""
        with self._at_work():
            self._go_on(self._epochs, self.network)
            if self._recipe.patience:
                self._best.restore(self.network)
            else:
                self._take_averages(self.network, self._averages)
            scores = self._scores()
        return self._fits(scores)

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        began = time.perf_counter()
        with sensible_threads(self.network, self._tasks[0], self._recipe.batch_size):
            yield
        self._seconds += (time.perf_counter() - began) / self.network.count

    def _go_on(self, until: int, network: Network) -> None:
        """Make epochs with a step for ``network``, which is the training's own or a copy of it."""
        if self.epoch >= until or not self._best.waiting.any():
            return
        recipe, device = self._recipe, self._tasks[0].device
        network.training = True
        # A capture takes steps, and they draw. After a pause this must not change what the training draws: whether a
        # step is captured again depends on the rounds before.
        with (Draws(network, device, seed=0) if self.epoch else self._draws).in_use():
            step = make_step(network, self._tasks, recipe, self._hooks, cache=self._cache, graphed=self._graphed)
        write_moments(self._moments, step)
        if self._averages:
            copy_state(self._averages, step.averages)
        trained = step.network
        while self.epoch < until and self._best.waiting.any():
            self._make_epoch(step)
        if until < self._epochs:
            self._moments = read_moments(step)
        self._averages = {name: average.clone() for name, average in step.averages.items()}
        if trained is not self.network:
            copy_state(trained.state, self.network.state)
        self.network.training = False

    def _make_epoch(self, step: EagerStep | GraphedStep) -> None:
        recipe, trained = self._recipe, step.network
        trained.training = True
        step.total.zero_()
        steps = self._per_epoch * self._epochs
        with self._draws.in_use(), step.sharing_gpu():
            for task, batch in self._batches.epoch():
                rate, weight = (of(recipe, self._taken, steps) for of in (_learning_rate, weight_of_step))
                step(task, batch, rate, weight)
                self._taken += 1
                self._samples += len(batch)
        trained.training = False
        self.epoch += 1
        self._loss = torch.where(self._best.waiting, step.total.cpu() / self._per_epoch, self._loss)
        stop_if_cancelled()
        if not recipe.patience:
            self._tell(())
            return
        with self._averaged(trained, step.averages):
            scores = _validate(trained, self._tasks, recipe.precision)
            self._tell(tuple(scores.accuracy.tolist()))
            self._best.note(trained, scores, self.epoch)

    def _tell(self, accuracies: tuple[float, ...]) -> None:
        if self._on_epoch is not None:
            self._on_epoch(self.epoch, self._epochs, tuple(self._loss.tolist()), accuracies)

    @contextmanager
    def _averaged(self, network: Trainable, averages: Mapping[str, Tensor]) -> Iterator[None]:
        """Let the network have its averaged weights meanwhile."""
        before = {name: tensor.detach().clone() for name, tensor in network.state.items()} if averages else {}
        self._take_averages(network, averages)
        yield
        copy_state(before, {name: network.state[name] for name in before})

    def _take_averages(self, network: Trainable, averages: Mapping[str, Tensor]) -> None:
        """Give the network its averaged weights, and the statistics of batch norms that belong to them.

        Does nothing where no step has been averaged yet.
        """
        if averages and weight_of_step(self._recipe, self._taken - 1, self._per_epoch * self._epochs):
            load_averages(averages, network.parameters)
            self._measure_statistics(network)

    def _measure_statistics(self, network: Trainable) -> None:
        """Show the network training samples until its running statistics are those of its weights."""
        running = [tensor for name, tensor in network.state.items() if name not in network.parameters]
        before = [tensor.clone() for tensor in running]
        batches, draws = (
            _Batches(self._tasks, self._recipe, seed_for(self._seed, "statistics")),
            Draws(network, self._tasks[0].device, seed_for(self._seed, "statistics of dropout")),
        )
        network.training, shown = True, 0
        with torch.no_grad(), repeatable_products(self._recipe.precision), draws.in_use():
            while shown < STATISTICS_STEPS:
                for task, batch in batches.epoch():
                    x, _ = batch_samples(task, batch)
                    batch_logits(network, task, batch, x, self._recipe.precision)
                    shown += 1
                    if shown == 1 and all(map(torch.equal, running, before)):
                        shown = STATISTICS_STEPS  # there are none
                        break
        network.training = False

    def _scores(self) -> Scores:
        finite = torch.isfinite(self._loss)
        for tensor in (self._best.state or self.network.state).values():  # the last step may be the one that diverged
            finite &= torch.isfinite(tensor.detach()).flatten(1).all(1).cpu()
        patient = self._recipe.patience > 0
        found = self._best.scores if patient else _validate(self.network, self._tasks, self._recipe.precision)
        return Scores(*(torch.where(finite, values, math.nan) for values in found))

    def _fits(self, scores: Scores) -> list[Fit]:
        effort = Effort(self._samples, self._seconds)
        each = zip(*(values.tolist() for values in (scores.accuracy, self._loss, scores.confidence)), strict=True)
        return [Fit(accuracy, loss, self.epoch, effort, confidence) for accuracy, loss, confidence in each]


class _Best:
    """Early stopping: each network's state at its own best epoch.

    A network that is out of patience has stopped: what it does while the others continue does not count.
    """

    def __init__(self, count: int, patience: int) -> None:
        self.patience = patience
        self.waiting = torch.ones(count, dtype=torch.bool)  # networks with patience left
        self.scores = Scores(*(torch.full((count,), -math.inf, dtype=torch.float64) for _ in Scores._fields))
        self.since = torch.zeros(count)  # the epoch each network last improved in
        self.state: dict[str, Tensor] = {}

    def note(self, network: Trainable, scores: Scores, epoch: int) -> None:
        """Keep the networks that became more accurate, and see which have run out of patience."""
        improved = (scores.accuracy > self.scores.accuracy) & self.waiting
        for kept, now in zip(self.scores, scores, strict=True):
            kept[improved] = now[improved]
        self.since[improved] = epoch
        for name, tensor in network.state.items():
            if name not in self.state:
                self.state[name] = torch.zeros_like(tensor)
            chosen = improved.to(tensor.device)
            self.state[name][chosen] = tensor.detach()[chosen]
        self.waiting &= epoch - self.since < self.patience

    def restore(self, network: Trainable) -> None:
        copy_state(self.state, {name: network.state[name] for name in self.state})

    def kept(self, which: Sequence[int]) -> _Best:
        places = list(which)
        made = _Best(len(places), self.patience)
        made.waiting, made.since = self.waiting[places], self.since[places]
        made.scores = Scores(*(values[places] for values in self.scores))
        made.state = {name: tensor[places] for name, tensor in self.state.items()}
        return made


def _learning_rate(recipe: Recipe, step: int, steps: int) -> float:
    if recipe.schedule == "constant":
        return recipe.learning_rate
    return recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * step / steps))


class _Batches:
    """The batches of a training, epoch by epoch; all that is drawn for them follows from the seed."""

    def __init__(self, tasks: Sequence[DeviceTask], recipe: Recipe, seed: int) -> None:
        self._tasks, self._recipe = tasks, recipe
        self._orders, self._changes = (
            [torch.Generator().manual_seed(seed_for(seed, what, task.index)) for task in tasks]
            for what in ("order", "augment")
        )
        self._shuffle = torch.Generator().manual_seed(seed_for(seed, "tasks"))

    def epoch(self) -> Iterator[tuple[DeviceTask, Batch]]:
        """Return one epoch of batches with their tasks, mixed when there are several tasks."""
        orders = [
            epoch_order(len(task.train), self._recipe.batch_size, order, task.train.lengths)
            for task, order in zip(self._tasks, self._orders, strict=True)
        ]
        batches = [
            self._of_task(task, order, changes)
            for task, order, changes in zip(self._tasks, orders, self._changes, strict=True)
        ]
        turns = torch.repeat_interleave(torch.tensor([len(order) for order in orders]))
        if len(self._tasks) > 1:
            turns = turns[torch.randperm(len(turns), generator=self._shuffle)]
        return ((self._tasks[turn], next(batches[turn])) for turn in turns.tolist())

    def _of_task(self, task: DeviceTask, order: Tensor, generator: torch.Generator) -> Iterator[Batch]:
        drawn = draw_changes(self._recipe.augment, order, task.train.inputs.shape, generator)
        changes = [None] * len(order) if drawn is None else drawn.to(task.device)
        return map(Batch, task.train.batches(order), task.train.columns(order), changes)


def _validate(network: Trainable, tasks: Sequence[DeviceTask], precision: str) -> Scores:
    """Return accuracies and confidences (K,) on validation samples, the mean over tasks."""
    with repeatable_products(precision):
        found = [scores(partial(network, task=task.index), task.validation) for task in tasks]
        return Scores(*(torch.stack(values).mean(0).cpu() for values in zip(*found, strict=True)))

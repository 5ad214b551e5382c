"""One training step: as Python calls, or as a CUDA graph that is captured once and replayed.

A step of a small network is a hundred kernels of a few microseconds each; calling them one by one from
Python costs far more than running them. A graph is launched by one call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bocl.training.augment import changed
from bocl.training.averaging import add_to_averages, new_averages
from bocl.training.batches import Batch, DeviceTask
from bocl.training.gpu_lock import gpu_released
from bocl.training.hooks import Hooks, Part
from bocl.training.optimisers import SGD, Adam
from bocl.training.precision import repeatable_products
from bocl.training.recipe import Recipe
from bocl.training.trainable import Trainable

log = logging.getLogger("bocl")

WARM_UP_STEPS = 3
MOST_PRECOMPUTED = 4 << 30  # bytes
PRECOMPUTE_BATCH = 5000

#: What an optimiser remembers of every parameter, by name: tensors (K, …), and the number of its steps.
Moments = dict[str, dict[str, Tensor]]


class EagerStep:
    """A step as Python calls; works everywhere."""

    def __init__(self, network: Trainable, recipe: Recipe, hooks: Hooks, *, one_task: bool = True) -> None:
        self.network, self.recipe, self.hooks = network, recipe, hooks
        self.optimiser = make_optimiser(network, recipe, fused=one_task)
        self.averages = {} if recipe.average == "off" else new_averages(network.parameters)
        first = next(iter(network.parameters.values()))
        self.total = torch.zeros(network.count, device=first.device, dtype=first.dtype)
        self.precomputed: dict[int, tuple[Tensor | None, Tensor | None]] = {}  # by task, made in its first step

    def __call__(self, task: DeviceTask, batch: Batch, rate: float, weight: float = 0.0) -> None:
        """Take one step on a batch and add every network's loss to ``total`` (K,).

        rate    the learning rate
        weight  that the step's result has in the averages
        """
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        with repeatable_products(self.recipe.precision):
            if task.index not in self.precomputed:
                self.precomputed[task.index] = precompute(self.network, task, self.recipe)
            losses = batch_losses(self.network, task, batch, self.recipe.precision, *self.precomputed[task.index])
            self.total += losses.detach()
            self.optimiser.zero_grad(set_to_none=True)
            losses.sum().backward()
            self.hooks.update(self.optimiser, self.network.parameters)  # the optimiser's step, and the method's own
            if weight:
                add_to_averages(self.averages, self.network.parameters, weight)

    def sharing_gpu(self) -> AbstractContextManager[None]:
        """Take steps inside, while no other run does anything."""
        return nullcontext()


class GraphedStep:
    """The same step as a CUDA graph for every task, for one network shape and these tasks' samples.

    Where hooks give the host something to do within a step, the step is several graphs with the host's parts between.
    It computes on the tensors of the network it was captured with; ``load`` copies in those of another.
    """

    def __init__(self, network: Trainable, tasks: Sequence[DeviceTask], recipe: Recipe, hooks: Hooks) -> None:
        self.network, self.recipe, self.hooks = network, recipe, hooks
        self.tasks = {task.index: task for task in tasks}
        self.device = tasks[0].device
        self.rate = torch.tensor(recipe.learning_rate, device=self.device)
        self.weight = torch.zeros((), device=self.device)
        self._last_rate, self._last_weight = recipe.learning_rate, 0.0
        self.optimiser = make_optimiser(network, recipe, rate=self.rate)
        self.averages = {} if recipe.average == "off" else new_averages(network.parameters)
        first = next(iter(network.parameters.values()))
        self.total = torch.zeros(network.count, device=first.device, dtype=first.dtype)
        before = {name: tensor.detach().clone() for name, tensor in network.state.items()}
        # A graph reads memory by address: what it reads must live as long as it does.
        self.batches = {task.index: self._first_batch(task) for task in tasks}
        self.parts: dict[tuple[int, int | None], list[Part]] = {}
        with repeatable_products(recipe.precision):
            self.precomputed = {task.index: precompute(network, task, recipe) for task in tasks}
            try:
                self._capture()
            finally:
                self.load(before)

    def _first_batch(self, task: DeviceTask) -> Batch:
        places = torch.arange(min(self.recipe.batch_size, len(task.train)), device=self.device)
        return Batch(places, changes=None if self.recipe.augment == "off" else places.new_zeros(len(places), 3))

    def _capture(self) -> None:
        """Capture a step on every task; where samples have lengths, a step of each length when it first comes."""
        stream = _capture_stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_STEPS):
                self.optimiser.zero_grad(set_to_none=True)
                for index in self.tasks:  # all tasks in one step: a fused optimiser begins with all tensors at once
                    self._backward(index, None)
                self.hooks.update(self.optimiser, self.network.parameters)
        torch.cuda.current_stream(self.device).wait_stream(stream)
        for index, task in self.tasks.items():
            if task.train.lengths is None:
                self.parts[index, None] = self._capture_step(index, None, stream)

    def _capture_columns(self, index: int, columns: int) -> None:
        """Capture a step on samples cut down to so many columns; what the network and its optimiser hold stays."""
        before = {name: tensor.detach().clone() for name, tensor in self.network.state.items()}
        total = self.total.clone()
        stream = _capture_stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with repeatable_products(self.recipe.precision):
            with torch.cuda.stream(stream):
                self.optimiser.zero_grad(set_to_none=True)
                self._backward(index, columns)  # products of a new shape set up what a capture cannot
            torch.cuda.current_stream(self.device).wait_stream(stream)
            self.parts[index, columns] = self._capture_step(index, columns, stream)
        copy_state(before, self.network.state)
        self.total.copy_(total)

    def _capture_step(self, index: int, columns: int | None, stream: torch.cuda.Stream) -> list[Part]:
        """Return what to call for a step on a task: graphs, and between them what the host does.

        Each graph has its own memory, so that what one leaves for the next is not overwritten.
        """

        def step() -> Iterator[Part]:
            self._backward(index, columns)
            yield from self.hooks.parts_of_update(self.optimiser, self.network.parameters)
            if self.averages:
                add_to_averages(self.averages, self.network.parameters, self.weight)

        self.optimiser.zero_grad(set_to_none=True)
        going, parts = step(), []
        while True:
            graph = torch.cuda.CUDAGraph()
            # Other runs may replay their steps meanwhile; that must not disturb this capture.
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                host_part = next(going, None)
            parts.append(graph.replay)
            if host_part is None:
                return parts
            parts.append(host_part)

    def _backward(self, index: int, columns: int | None) -> None:
        batch = replace(self.batches[index], columns=columns)
        losses = batch_losses(self.network, self.tasks[index], batch, self.recipe.precision, *self.precomputed[index])
        self.total.add_(losses.detach())
        losses.sum().backward()

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Start again from these tensors, with a fresh optimiser."""
        copy_state(state, self.network.state)
        with torch.no_grad():
            for values in self.optimiser.state.values():
                for value in values.values():
                    if isinstance(value, Tensor):
                        value.zero_()
            for average in self.averages.values():
                average.zero_()
            self.total.zero_()

    def __call__(self, task: DeviceTask, batch: Batch, rate: float, weight: float = 0.0) -> None:
        """Take one step on a batch and add every network's loss to ``total`` (K,); see ``EagerStep``."""
        if rate != self._last_rate:
            self.rate.fill_(rate)
            self._last_rate = rate
        if weight != self._last_weight:
            self.weight.fill_(weight)
            self._last_weight = weight
        if (task.index, batch.columns) not in self.parts:
            assert batch.columns is not None
            self._capture_columns(task.index, batch.columns)
        kept = self.batches[task.index]
        kept.places.copy_(batch.places)
        if kept.changes is not None and batch.changes is not None:
            kept.changes.copy_(batch.changes)
        for part in self.parts[task.index, batch.columns]:
            part()

    @contextmanager
    def sharing_gpu(self) -> Iterator[None]:
        """Take steps inside, while other runs use the GPU too, and wait until the steps are done."""
        if any(task.train.feed is not None for task in self.tasks.values()):
            yield
            return
        with gpu_released():
            yield
            torch.cuda.current_stream(self.device).synchronize()


def _capture_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream to capture on: the run's own where it has one.

    PyTorch hands out the same few streams again and again. A new stream for every capture would in time be one that
    another run works on, and that run's work would end up in this graph.
    """
    current = torch.cuda.current_stream(device)
    return current if current != torch.cuda.default_stream(device) else _stream_next_to_the_default(device)


@cache
def _stream_next_to_the_default(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


class StepCache:
    """Captured steps of one task, so that every round of its search after the first starts at once.

    Keys contain addresses: ``id()`` in a network's signature and of a teacher, ``data_ptr()`` of samples. Nothing else
    can get such an address while the entry is there, because the step keeps the network and the tasks alive.
    """

    def __init__(self) -> None:
        self._steps: dict[Any, GraphedStep] = {}

    def step(self, network: Trainable, tasks: Sequence[DeviceTask], recipe: Recipe, hooks: Hooks) -> GraphedStep:
        """Return a graphed step loaded with the network's tensors."""
        samples = tuple((task.train.inputs.data_ptr(), id(task.teacher)) for task in tasks)
        key = (network.signature, samples, recipe, hooks)
        found = self._steps.get(key)
        if found is None:
            found = self._steps[key] = GraphedStep(network, tasks, recipe, hooks)
        else:
            found.load(network.state)
        return found


def make_step(
    network: Trainable,
    tasks: list[DeviceTask],
    recipe: Recipe,
    hooks: Hooks,
    *,
    cache: StepCache | None = None,
    graphed: bool = True,
) -> EagerStep | GraphedStep:
    """Return a graphed step on a GPU, or an eager one: on a CPU, if ``graphed`` is false, or if the capture fails."""
    if graphed and tasks[0].device.type == "cuda":
        try:
            return (cache or StepCache()).step(network, tasks, recipe, hooks)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            log.info("training without a CUDA graph: the capture failed: %s", str(error).splitlines()[0])
    return EagerStep(network, recipe, hooks, one_task=len(tasks) == 1)


def copy_state(source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> None:
    """Copy into every tensor of the target the source's tensor of that name."""
    with torch.no_grad():
        for name, tensor in target.items():
            tensor.copy_(source[name])


def read_moments(step: EagerStep | GraphedStep) -> Moments:
    """Return what a step's optimiser remembers, as copies."""
    remembered = step.optimiser.state
    return {
        name: {what: value.clone() for what, value in remembered[parameter].items() if isinstance(value, Tensor)}
        for name, parameter in step.network.parameters.items()
        if parameter in remembered
    }


def write_moments(moments: Moments, step: EagerStep | GraphedStep) -> None:
    """Let a step's optimiser go on from these."""
    for name, values in moments.items():
        remembered = step.optimiser.state[step.network.parameters[name]]
        for what, value in values.items():
            if isinstance(remembered.get(what), Tensor):
                remembered[what].copy_(value)  # a captured step reads memory by address
            else:
                remembered[what] = value.clone()


def kept_moments(moments: Moments, which: Sequence[int]) -> Moments:
    """Return the moments of some of the K networks; a number of steps is that of all."""
    return {
        name: {what: value[list(which)] if value.dim() else value for what, value in values.items()}
        for name, values in moments.items()
    }


def precompute(network: Trainable, task: DeviceTask, recipe: Recipe) -> tuple[Tensor | None, Tensor | None]:
    """Return what is the same in every step: a part of what the network computes, and what the task's teacher says."""
    targets = None if task.teacher is None else _of_all_samples(partial(soft_targets, task.teacher), task, recipe)
    return _of_all_samples(network.precompute, task, recipe), targets


def _of_all_samples(compute: Callable[[Tensor], Tensor | None], task: DeviceTask, recipe: Recipe) -> Tensor | None:
    """Return what is computed of inputs, for all training samples.

    None where that is nothing, because samples change or are not all on the device, or would take too much memory.
    """
    split = task.train
    if split.feed or recipe.augment != "off":
        return None
    first = compute(split.take(torch.zeros(1, dtype=torch.int64, device=task.device))[0])
    if first is None or first.nbytes * len(split) > MOST_PRECOMPUTED:
        return None
    found = first.new_zeros(len(split), *first.shape[1:])
    for part in split.parts(PRECOMPUTE_BATCH):
        values = compute(split.rows(part)[0])
        assert values is not None
        if values.shape[1:] == found.shape[1:]:
            found[part] = values
        else:  # of shorter texts
            found[part, : values.shape[1]] = values
    return found


def soft_targets(teacher: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return the probabilities (n, classes) that a teacher gives to inputs (n, *shape)."""
    with torch.no_grad():
        return teacher(x).softmax(1)


def batch_losses(
    network: Trainable,
    task: DeviceTask,
    batch: Batch,
    precision: str,
    precomputed: Tensor | None = None,
    targets: Tensor | None = None,
) -> Tensor:
    """Return every network's mean cross-entropy, (K,), on the shared samples of a batch (n).

    L = 1/n Σ_i w(y_i) · (-log p(y_i | x_i)), where the task has weights w
    L = 1/n Σ_i w(y_i) · (-Σ_c q(c | x_i) log p(c | x_i)), where it has a teacher q: KL(q ‖ p) and a constant

    precomputed, targets  from ``precompute``
    """
    x, labels = batch_samples(task, batch)
    logits = batch_logits(network, task, batch, x, precision, precomputed)
    count, samples, classes = logits.shape
    flat = logits.reshape(-1, classes).to(next(iter(network.parameters.values())).dtype)
    wanted = labels
    if targets is not None:
        wanted = targets.index_select(0, batch.places)
    elif task.teacher is not None:
        wanted = soft_targets(task.teacher, x)
    each = F.cross_entropy(flat, wanted.expand(count, *wanted.shape).flatten(0, 1), reduction="none")
    each = each.view(count, samples)
    if task.class_weights is not None:
        each = each * task.class_weights.index_select(0, labels)
    return each.mean(1)


def batch_samples(task: DeviceTask, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the samples of a batch as they are shown (n, *shape), and their labels (n,)."""
    x, labels = task.train.take(batch.places, batch.columns)
    return x if batch.changes is None else changed(x, batch.changes), labels


def batch_logits(
    network: Trainable, task: DeviceTask, batch: Batch, x: Tensor, precision: str, precomputed: Tensor | None = None
) -> Tensor:
    """Return every network's logits (K, n, classes) for the samples x of a batch."""
    part = None if precomputed is None else precomputed.index_select(0, batch.places)
    with torch.autocast(task.device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
        return network(x, task.index, part)


def make_optimiser(
    network: Trainable, recipe: Recipe, *, fused: bool = True, rate: Tensor | None = None
) -> torch.optim.Optimizer:
    """Return the recipe's optimiser over all networks.

    fused  one kernel for all tensors; they must all get their first gradient in the same step
    rate   the learning rate as a tensor, so that a captured step can still change it
    """
    parameters = [parameter for parameter in network.parameters.values() if parameter.numel()]
    options: dict[str, Any] = {"weight_decay": recipe.weight_decay, "fused": fused or None}
    first: Any = recipe.learning_rate if rate is None else rate
    if recipe.optimiser == "sgd":
        return SGD(parameters, first, momentum=recipe.momentum, **options)
    decoupled = recipe.optimiser == "adamw"
    return Adam(parameters, first, capturable=rate is not None, decoupled_weight_decay=decoupled, **options)

"""What training children costs: a plain loop, an eager loop on the device, and ours, side by side in one run.

All train the same growth of the same frozen network on the same samples with the same recipe. Times are per
child and epoch, so that a stack of K counts for K.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from bocl.benchmarks.peak import forget_peak_memory, peak_memory_mb
from bocl.methods.rounds import padding
from bocl.networks.architectures import lenet, mlp, resnet
from bocl.networks.compact import CompactNetwork
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.graph import Norm
from bocl.networks.growth import PAPERS_WAY, GrowthSettings, is_parameter
from bocl.networks.trace import trace
from bocl.training.batches import DeviceSplit, DeviceTask
from bocl.training.recipe import Recipe
from bocl.training.steps import StepCache
from bocl.training.trainer import train
from bocl.widths import Widths
from bocl.wording import counted


@dataclass(frozen=True)
class Case:
    """A network, the growth it is measured at, and the shape of its task.

    module  the known network, not yet traced
    grown   an ordinary network of a child's whole size; None where there is no such
    """

    network: str
    module: Callable[[], nn.Module]
    grown: Callable[[], nn.Module] | None
    widths: Widths  # z of every child
    bounds: Widths  # what children are padded to
    shape: tuple[int, ...]
    samples: int
    recipe: Recipe
    in_bf16: bool = False  # whether ours is also measured with products, and values between layers, in bf16


@dataclass(frozen=True)
class Row:
    """One measurement; ``bocl bench --json`` prints these.

    mode  plain, eager, compiled, ours, or bf16: ours in that precision, and not in TF32
    """

    network: str
    mode: str
    children: int
    seconds_per_child_epoch: float
    samples_per_second: float
    peak_memory_mb: float
    speedup_over_plain: float

    def describe(self) -> str:
        """Say it in one line."""
        return (
            f"{self.network:6} {self.mode:8} {counted(self.children, 'child', 'children'):>12}  "
            f"{1e3 * self.seconds_per_child_epoch:10.2f} ms per child and epoch  "
            f"{self.samples_per_second:12,.0f} samples/s  {self.speedup_over_plain:7.2f} x plain"
        )


def counts(device: torch.device, quick: bool) -> tuple[int, ...]:
    """Return how many children are trained together: fewer if a CPU would take long."""
    return (1, 8) if quick else (1, 4, 8, 16) if device.type == "cpu" else (1, 4, 16, 64)


def cases(device: torch.device, quick: bool) -> list[Case]:
    """Return what is measured: the paper's MLP and LeNet, and a ResNet, on fewer samples if a CPU would take long."""
    gpu = device.type == "cuda" and not quick
    epochs = 10 if gpu else 2 if quick else 5
    return [
        Case(
            "mlp",
            module=partial(mlp, 784, [312, 128]),
            grown=partial(mlp, 784, [342, 158]),
            widths=(30, 30),
            bounds=(30, 30),
            shape=(784,),
            samples=60_000 if gpu else 2_560 if quick else 6_400,
            recipe=Recipe("sgd", 0.05, batch_size=128, epochs=epochs),
        ),
        Case(
            "lenet",
            module=lenet,
            grown=None,
            widths=(4, 8, 15, 15),
            bounds=(8, 16, 29, 29),
            shape=(3, 32, 32),
            samples=4_480 if gpu else 640 if quick else 960,
            recipe=Recipe("adam", 1e-3, batch_size=64 if device.type == "cuda" else 32, epochs=epochs),
        ),
        Case(
            "resnet",
            module=partial(resnet, 3, (16, 32, 64)),
            grown=partial(resnet, 3, (20, 40, 80)),
            widths=(4, 4, 8, 8, 16, 16),
            bounds=(4, 4, 8, 8, 16, 16),
            shape=(3, 32, 32),
            samples=4_480 if gpu else 64 if quick else 320,
            recipe=Recipe("adam", 1e-3, batch_size=64 if device.type == "cuda" else 32, epochs=epochs),
            in_bf16=device.type == "cuda",
        ),
    ]


def measure(
    device: torch.device,
    *,
    quick: bool = False,
    compiled: bool = False,
    children: Sequence[int] = (),
    tell: Callable[[Row], None],
) -> list[Row]:
    """Measure every case in every mode; ``tell`` is called with each row as it is done.

    compiled  also train an ordinary network of a child's whole size, compiled by PyTorch; compiling is not timed
    children  how many are trained together, one measurement for each; default: ``counts``

    Plain and eager loops are timed over one epoch. Ours is timed over a whole training of several epochs, including
    making and scoring the children, as in a search.
    """
    rows: list[Row] = []

    def add(case: Case, mode: str, count: int, epoch: Callable[[], None], epochs: int) -> None:
        seconds, memory = seconds_and_memory(epoch, device)
        per_child = seconds / count / epochs
        plain = next((row.seconds_per_child_epoch for row in rows if row.network == case.network), per_child)
        rows.append(Row(case.network, mode, count, per_child, case.samples / per_child, memory, plain / per_child))
        tell(rows[-1])

    for case in cases(device, quick):
        network, task = known_network(case, device)
        add(case, "plain", 1, partial(_plain_epoch, case, network, task), 1)
        add(case, "eager", 1, partial(_eager_epoch, case, network, task), 1)
        if compiled and case.grown is not None:
            add(case, "compiled", 1, _compiled_epoch(case, case.grown(), task), 1)
        epochs = case.recipe.epochs_of(case.recipe.steps(case.samples))
        in_bf16 = replace(case, recipe=replace(case.recipe, precision="bf16"))
        for mode, ours in (("ours", case), ("bf16", in_bf16))[: 1 + case.in_bf16]:
            for count in children or counts(device, quick):
                add(ours, mode, count, partial(train_together, ours, network, task, count, StepCache()), epochs)
    return rows


def known_network(
    case: Case, device: torch.device, settings: GrowthSettings = PAPERS_WAY
) -> tuple[ExpandableNetwork, DeviceTask]:
    """Make a network with one task in it, and random samples of the case's shape."""
    graph = trace(case.module())
    network = ExpandableNetwork(graph, settings, device)
    network.commit(network.grow([graph.widths], 10, seeds=[0]).growth(0))
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(case.samples, *case.shape, generator=generator).to(device)
    labels = torch.randint(10, (case.samples,), generator=generator).to(device)
    few = DeviceSplit(inputs[:100], labels[:100])
    return network, DeviceTask(case.network, 1, 10, DeviceSplit(inputs, labels), few)


def seconds_and_memory(epoch: Callable[[], None], device: torch.device) -> tuple[float, float]:
    """Return (seconds, peak megabytes) of one epoch, after one that warms up."""
    epoch()
    best = float("inf")
    forget_peak_memory(device)
    for _ in range(2):
        wait(device)
        began = time.perf_counter()
        epoch()
        wait(device)
        best = min(best, time.perf_counter() - began)
    return best, peak_memory_mb(device)


def wait(device: torch.device) -> None:
    """Wait for what a GPU was given to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def train_together(case: Case, network: ExpandableNetwork, task: DeviceTask, count: int, cache: StepCache) -> None:
    """Make K children and train them as a search does."""
    children = network.grow([case.widths] * count, 10, seeds=range(count), pad_to=padding([case.widths], case.bounds))
    train(children, [task], case.recipe, seed=0, cache=cache)


def _child(
    case: Case, network: ExpandableNetwork, device: torch.device
) -> tuple[dict[str, Tensor], Callable[..., Any]]:
    """Return one child as a tutorial would write it: its own tensors, and a forward pass that joins it all."""
    growth = network.grow([case.widths], 10, seeds=[0]).growth(0)
    own = {name: tensor.to(device).requires_grad_(is_parameter(name)) for name, tensor in growth.tensors.items()}
    frozen = network.frozen()
    assert frozen is not None

    def forward(x: Tensor) -> Tensor:
        weights = {name: tensor for name, tensor in own.items() if not name.startswith("layer/")}
        biases = {name for name in frozen.weights if name.endswith("/bias")}
        for layer in network.graph.layers:
            prefix = f"layer/{layer.name}"
            top = frozen.weights[f"{prefix}/weight"]
            if f"{prefix}/columns" in own:
                top = torch.cat([top, own[f"{prefix}/columns"]], 1)
            weights[f"{prefix}/weight"] = torch.cat([top, own[f"{prefix}/rows"]], 0)
            if f"{prefix}/bias" in biases:
                weights[f"{prefix}/bias"] = torch.cat([frozen.weights[f"{prefix}/bias"], own[f"{prefix}/bias"]])
        return _InTraining(network.graph, weights, (*frozen.blocks, case.widths))(x)

    return own, forward


_PARTS_OF_NORM = ("mean", "var", "weight", "bias")


class _InTraining(CompactNetwork):
    """A network whose batch norms normalise by the batch."""

    def norm(self, norm: Norm, x: Tensor) -> Tensor:
        mean, var, weight, bias = (self.weights[f"norm/{norm.name}/{part}"] for part in _PARTS_OF_NORM)
        return F.batch_norm(x, mean, var, weight, bias, training=True, momentum=norm.momentum, eps=norm.eps)


def _optimiser(case: Case, weights: Iterable[Tensor]) -> torch.optim.Optimizer:
    recipe = case.recipe
    trained = [weight for weight in weights if weight.requires_grad]
    if recipe.optimiser == "sgd":
        return torch.optim.SGD(
            trained, recipe.learning_rate, momentum=recipe.momentum, weight_decay=recipe.weight_decay
        )
    return torch.optim.Adam(trained, recipe.learning_rate, weight_decay=recipe.weight_decay)


def _plain_epoch(case: Case, network: ExpandableNetwork, task: DeviceTask) -> None:
    """The loop of a tutorial: samples in host memory, a DataLoader, one child."""
    device = task.device
    own, forward = _child(case, network, device)
    optimiser = _optimiser(case, own.values())
    data = TensorDataset(task.train.inputs.cpu(), task.train.labels.cpu())
    for x, y in DataLoader(data, batch_size=case.recipe.batch_size, shuffle=True):
        optimiser.zero_grad()
        F.cross_entropy(forward(x.to(device)), y.to(device)).backward()
        optimiser.step()


def _eager_epoch(case: Case, network: ExpandableNetwork, task: DeviceTask) -> None:
    """The same with the samples on the device and batches cut by index."""
    own, forward = _child(case, network, task.device)
    _train_epoch(forward, _optimiser(case, own.values()), case, task)


def _compiled_epoch(case: Case, module: nn.Module, task: DeviceTask) -> Callable[[], None]:
    """The same loop for an ordinary module, compiled by PyTorch, with images that have their channels last."""
    image = len(case.shape) == 3
    form = torch.channels_last if image else torch.contiguous_format
    module = module.to(task.device)
    module.to(memory_format=form)  # type: ignore[call-overload]
    inputs = task.train.inputs.contiguous(memory_format=form)
    task = replace(task, train=replace(task.train, inputs=inputs))
    optimiser = _optimiser(case, module.parameters())
    return partial(_train_epoch, torch.compile(module), optimiser, case, task)


def _train_epoch(forward: Callable[..., Any], optimiser: torch.optim.Optimizer, case: Case, task: DeviceTask) -> None:
    for batch in torch.randperm(len(task.train), device=task.device).split(case.recipe.batch_size):
        optimiser.zero_grad()
        F.cross_entropy(forward(task.train.inputs[batch]), task.train.labels[batch]).backward()
        optimiser.step()

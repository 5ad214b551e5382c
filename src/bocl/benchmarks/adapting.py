"""What training children of a large frozen network costs: an eager loop of one child, and ours, in one run.

All train the same growth on the same samples. Times are per child and step, so that a stack of K counts for K. Weights
are random: what a step costs does not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bocl.benchmarks.speed import seconds_and_memory
from bocl.networks.compact import CompactNetwork, grown_weight
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.growing import GrowingNetwork
from bocl.networks.growth import Growth, GrowthSettings, is_parameter
from bocl.networks.low_rank.backbone import Backbone
from bocl.networks.low_rank.modules import copied, replace_parts
from bocl.networks.low_rank.network import FactoredNetwork
from bocl.networks.mobile import efficientnet_lite0
from bocl.networks.pretrained import Pretrained
from bocl.networks.text_encoder import text_encoder
from bocl.training.batches import DeviceSplit, DeviceTask
from bocl.training.recipe import Recipe
from bocl.training.steps import StepCache
from bocl.training.trainer import train
from bocl.wording import counted

CLASSES, RANK, UNITS = 10, 4, 4
ASIDE = GrowthSettings(wiring="forward", attention=False, norms="frozen")


@dataclass(frozen=True)
class AdaptingCase:
    """A network, how it grows, and the shape of its task.

    name     what is measured
    network  makes the network on a device
    inputs   makes so many samples
    """

    name: str
    network: Callable[[torch.device], GrowingNetwork]
    inputs: Callable[[int, torch.Generator], Tensor]
    samples: int
    recipe: Recipe


@dataclass(frozen=True)
class AdaptingRow:
    """One measurement; ``bocl bench --pretrained --json`` prints these."""

    network: str
    mode: str
    children: int
    milliseconds_per_child_step: float
    peak_memory_mb: float
    speedup_over_eager: float

    def describe(self) -> str:
        """Say it in one line."""
        return (
            f"{self.network:24} {self.mode:10} {counted(self.children, 'child', 'children'):>12}  "
            f"{self.milliseconds_per_child_step:9.3f} ms per child and step  {self.speedup_over_eager:7.2f} x eager"
        )


def cases(device: torch.device, quick: bool) -> list[AdaptingCase]:
    """Return what is measured: a text encoder by low-rank factors, and EfficientNet-Lite0 by units."""
    gpu = device.type == "cuda" and not quick
    samples = 1024 if gpu else 64
    epochs = 10 if gpu else 1  # about as many steps as a task takes
    recipe = Recipe("adam", 1e-3, batch_size=32, epochs=epochs)
    size, tokens = (96, 32) if gpu else (32, 16)

    def ids(count: int, generator: torch.Generator) -> Tensor:
        return torch.randint(1, 30_000, (count, tokens), generator=generator, dtype=torch.int32)

    def images(count: int, generator: torch.Generator) -> Tensor:
        return torch.randn(count, 3, 32, 32, generator=generator)

    return [
        AdaptingCase("encoder, all layers", partial(_encoder, 1.0), ids, samples, recipe),
        AdaptingCase("encoder, bf16", partial(_encoder, 1.0), ids, samples, replace(recipe, precision="bf16")),
        AdaptingCase("encoder, upper third", partial(_encoder, 1 / 3), ids, samples, recipe),
        AdaptingCase("efficientnet, units", partial(_mobile, size), images, samples, recipe),
        AdaptingCase("efficientnet, low-rank", partial(_mobile_factors, size), images, samples, recipe),
    ]


def measure_adapting(
    device: torch.device,
    *,
    quick: bool = False,
    children: Sequence[int] = (),
    tell: Callable[[AdaptingRow], None],
) -> list[AdaptingRow]:
    """Measure every case; ``tell`` is called with each row as it is done.

    children  how many are trained together, one measurement for each; default: 1 and 16, on a CPU 1 and 4
    """
    rows: list[AdaptingRow] = []
    for case in cases(device, quick):
        network = case.network(device)
        task = _task(case, device)
        if isinstance(network, FactoredNetwork):
            network.graph.fit(task.train.inputs[:4])
        steps = case.recipe.steps(case.samples)
        eager = 0.0
        for mode, count, epochs, epoch in (
            ("eager", 1, 1, partial(_eager_epoch, case, network, task)),
            *(
                ("ours", count, case.recipe.epochs or 1, partial(_ours, case, network, task, count, StepCache()))
                for count in children or ((1, 16) if device.type == "cuda" else (1, 4))
            ),
        ):
            seconds, memory = seconds_and_memory(epoch, device)
            each = 1e3 * seconds / (count * steps * epochs)
            eager = each if mode == "eager" else eager
            rows.append(AdaptingRow(case.name, mode, count, each, memory, eager / each))
            tell(rows[-1])
    return rows


def _encoder(depth: float, device: torch.device) -> FactoredNetwork:
    growth = GrowthSettings(form="low-rank", depth=depth)
    return FactoredNetwork(Backbone(text_encoder(), growth, device))


def _mobile(size: int, device: torch.device) -> ExpandableNetwork:
    known = Pretrained.of(efficientnet_lite0(size).eval())
    return ExpandableNetwork(known.graph, ASIDE, device, pretrained=True, base=known.tensors)


def _mobile_factors(size: int, device: torch.device) -> FactoredNetwork:
    return FactoredNetwork(Backbone(efficientnet_lite0(size), GrowthSettings(form="low-rank"), device))


def _task(case: AdaptingCase, device: torch.device) -> DeviceTask:
    generator = torch.Generator().manual_seed(0)
    inputs = case.inputs(case.samples, generator).to(device)
    labels = torch.randint(CLASSES, (case.samples,), generator=generator).to(device)
    few = DeviceSplit(inputs[:32], labels[:32])
    return DeviceTask(case.name, 0, CLASSES, DeviceSplit(inputs, labels), few)


def _widths(network: GrowingNetwork) -> tuple[int, ...]:
    return (RANK if isinstance(network, FactoredNetwork) else UNITS,) * len(network.graph.groups)


def _ours(case: AdaptingCase, network: GrowingNetwork, task: DeviceTask, count: int, cache: StepCache) -> None:
    children = network.grow([_widths(network)] * count, CLASSES, seeds=range(count), reads=())
    train(children, [task], case.recipe, seed=0, cache=cache)


def _eager_epoch(case: AdaptingCase, network: GrowingNetwork, task: DeviceTask) -> None:
    """One child as anybody would write it: samples on the device, PyTorch's own loop."""
    growth = network.grow([_widths(network)], CLASSES, seeds=[0], reads=()).growth(0)
    own = {name: tensor.requires_grad_(is_parameter(name)) for name, tensor in growth.tensors.items()}
    forward = (
        factored_child(network, own) if isinstance(network, FactoredNetwork) else grown_child(network, growth, own)
    )
    trained = [tensor for tensor in own.values() if tensor.requires_grad]
    optimiser = torch.optim.Adam(trained, case.recipe.learning_rate)
    precise = case.recipe.precision != "bf16"
    for batch in torch.randperm(len(task.train), device=task.device).split(case.recipe.batch_size):
        optimiser.zero_grad()
        with torch.autocast(task.device.type, dtype=torch.bfloat16, enabled=not precise):
            loss = F.cross_entropy(forward(task.train.inputs[batch]), task.train.labels[batch])
        loss.backward()
        optimiser.step()


class _Factors(nn.Module):
    """A linear layer or 1 × 1 convolution with trainable factors."""

    def __init__(self, base: nn.Module, down: Tensor, up: Tensor, scale: float) -> None:
        super().__init__()
        self.base, self.tensors, self.scale = base, (down, up), scale

    def forward(self, x: Tensor) -> Tensor:
        down, up = self.tensors
        out: Tensor = self.base(x)
        if down.dim() == 2:
            return out + self.scale * F.linear(F.linear(x, down), up)
        base: Any = self.base
        inner = F.conv2d(x, down, None, base.stride, base.padding)
        return out + self.scale * F.conv2d(inner, up[..., None, None])


def factored_child(network: FactoredNetwork, own: dict[str, Tensor]) -> Callable[[Tensor], Tensor]:
    """Return the forward pass of one child with factors."""
    module = copied(network.graph.module)
    scale = network.settings.scale / RANK**0.5
    parts = {
        layer.name: _Factors(
            module.get_submodule(layer.name), own[f"factor/{layer.name}/down"], own[f"factor/{layer.name}/up"], scale
        )
        for layer in network.graph.plan.layers
    }
    replace_parts(module, parts)
    return lambda x: F.linear(module(x), own["head/weight"], own["head/bias"])


def grown_child(network: ExpandableNetwork, growth: Growth, own: dict[str, Tensor]) -> Callable[[Tensor], Tensor]:
    """Return the forward pass of one child with new units, which joins their weights with the frozen ones."""
    frozen, graph = network.frozen(()), network.graph
    assert frozen is not None

    def forward(x: Tensor) -> Tensor:
        weights = {name: own[name] for name in ("head/weight", "head/bias")}
        weights |= {
            name: torch.cat([frozen.weights[name], tensor]) for name, tensor in own.items() if name.startswith("norm/")
        }
        for layer in graph.layers:
            prefix = f"layer/{layer.name}"
            rows = own[f"{prefix}/rows"]
            if layer.separate:
                parts = [*frozen.separate_weights(layer), rows]
                weights |= {f"{prefix}/weight.{block}": part for block, part in enumerate(parts)}
            else:
                weights[f"{prefix}/weight"] = grown_weight(frozen.weights[f"{prefix}/weight"], None, rows)
        return CompactNetwork(graph, weights, (*frozen.blocks, growth.widths), frozen.roots)(x)

    return forward

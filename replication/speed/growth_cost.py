"""How cost grows with the number of tasks: a long stream, the same small growth for every task.

Ours (full wiring with attention) against progressive-style columns of the same growth (forward wiring without
attention: new units read all earlier ones, nothing reads back). No search; only the training of each task.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from bocl.benchmarks.peak import forget_peak_memory, peak_memory_mb
from bocl.networks.architectures import mlp
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.growth import GrowthSettings
from bocl.networks.trace import trace
from bocl.training.batches import DeviceSplit, DeviceTask
from bocl.training.recipe import Recipe
from bocl.training.trainer import train

WIRINGS = {
    "ours": GrowthSettings(),
    "columns": GrowthSettings(wiring="forward", attention=False),
}


@dataclass(frozen=True)
class TaskCost:
    """What one task of the stream cost."""

    mode: str
    task: int  # from 1
    seconds: float
    peak_memory_mb: float
    parameters: int

    def describe(self) -> str:
        """Say it in one line."""
        return f"{self.mode:8} task {self.task:3}  {self.seconds:8.3f} s  {self.parameters:10,} parameters stored"


def measure_growth(
    device: torch.device, *, tasks: int = 50, growth: int = 4, samples: int = 6_400, tell: Callable[[TaskCost], None]
) -> list[TaskCost]:
    """Train ``tasks`` permutations of the same random samples, ``growth`` units a layer each."""
    graph = trace(mlp(784, [312, 128]))
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(samples, 784, generator=generator).to(device)
    labels = torch.randint(10, (samples,), generator=generator).to(device)
    recipe = Recipe("sgd", 0.05, batch_size=128, epochs=2)
    costs: list[TaskCost] = []
    for mode, settings in WIRINGS.items():
        network = ExpandableNetwork(graph, settings, device)
        for index in range(tasks):
            order = torch.randperm(784, generator=generator).to(device)
            shown = DeviceSplit(inputs[:, order], labels)
            task = DeviceTask(f"task {index}", index, 10, shown, DeviceSplit(shown.inputs[:100], labels[:100]))
            z = graph.widths if index == 0 else (growth,) * len(graph.groups)
            seconds = []
            for _ in range(2):
                forget_peak_memory(device)
                children = network.grow([z], 10, seeds=[index])
                began = time.perf_counter()
                train(children, [task], recipe, seed=0)
                seconds.append(time.perf_counter() - began)
            network.commit(children.growth(0))
            stored = sum(sum(parts.values()) for parts in network.parameters_by_task())
            costs.append(TaskCost(mode, index + 1, min(seconds), peak_memory_mb(device), stored))
            tell(costs[-1])
    return costs

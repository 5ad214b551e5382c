"""Does the fast way train as well? Children stacked, captured and in the recipe's precision, against a plain loop.

The plain loop takes the same children one by one, call by call, in float32. Both are scored on the validation
samples of a benchmark's second task, over several seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean, stdev

import torch

from bocl.experiment.build import build_network, build_stream
from bocl.experiment.config import load_config
from bocl.networks.expandable import ExpandableNetwork
from bocl.training.batches import task_to_device
from bocl.training.trainer import train
from bocl.widths import Widths

CASES: dict[str, Widths] = {"permuted-mnist": (30, 15), "split-cifar100": (4, 4, 10, 8)}  # preset → z


@dataclass(frozen=True)
class Agreement:
    """Validation accuracies of the same children trained both ways, one per seed."""

    preset: str
    plain: tuple[float, ...]
    ours: tuple[float, ...]

    def describe(self) -> str:
        """Say it in one line."""
        sides = (f"{100 * fmean(side):.2f} ± {100 * stdev(side):.2f} %" for side in (self.plain, self.ours))
        return f"{self.preset}: one by one in float32 {next(sides)}, together {next(sides)}"


def measure_agreement(
    device: torch.device, *, data: str | None = None, seeds: int = 4, tell: Callable[[Agreement], None]
) -> list[Agreement]:
    """Train the second task of both benchmarks' presets both ways."""
    found = []
    for preset, z in CASES.items():
        config = load_config(preset, ["stream.tasks=2"])
        stream = build_stream(config, data)
        graph = build_network(config.network)
        network = ExpandableNetwork(graph, config.growth, device)
        base = network.grow([graph.widths], stream[0].classes, seeds=[0])
        train(base, [task_to_device(stream[0], 0, device)], config.recipe, seed=0)
        network.commit(base.growth(0))
        task = task_to_device(stream[1], 1, device)
        classes = stream[1].classes
        together = network.grow([z] * seeds, classes, seeds=range(seeds), pad_to=config.search.bounds_for(graph.widths))
        ours = [fit.accuracy for fit in train(together, [task], config.recipe, seed=0)]
        exact = replace(config.recipe, precision="float32")
        plain = []
        for seed in range(seeds):
            child = network.grow([z], classes, seeds=[seed])
            plain.append(train(child, [task], exact, seed=0, graphed=False)[0].accuracy)
        found.append(Agreement(preset, tuple(plain), tuple(ours)))
        tell(found[-1])
    return found

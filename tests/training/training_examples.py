"""Tasks and networks to train, as small as can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from bocl.networks.architectures import mlp
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.stacked import Children
from bocl.networks.trace import trace
from bocl.training.batches import DeviceSplit, DeviceTask


def easy_task(index: int = 0, classes: int = 3, samples: int = 60, dtype: torch.dtype = torch.float32) -> DeviceTask:
    """Return clouds around one point per class, in 4 dimensions."""
    generator = torch.Generator().manual_seed(index)
    centres = 3 * torch.randn(classes, 4, generator=generator, dtype=torch.float64)

    def split(size: int) -> DeviceSplit:
        labels = torch.arange(size) % classes
        noise = torch.randn(size, 4, generator=generator, dtype=torch.float64)
        return DeviceSplit((centres[labels] + noise).to(dtype), labels)

    return DeviceTask(f"task {index}", index, classes, split(samples), split(30))


def children(count: int = 1, dtype: torch.dtype = torch.float32, module: nn.Module | None = None) -> Children:
    """Return ``count`` untrained base networks."""
    network = ExpandableNetwork(trace(module or mlp(4, [6], 3)))
    return network.grow([network.graph.widths] * count, 3, seeds=range(count), dtype=dtype)


def state_of(network: Children, index: int = 0) -> dict[str, Tensor]:
    """Return the tensors of one child."""
    return network.growth(index).tensors


class Scripted:
    """Networks whose validation accuracy in every epoch is written down: ``script[epoch][child]`` of 10 right.

    The one weight counts steps, so it tells which epoch a state is of: with one batch an epoch and a gradient of
    -1 from SGD of rate 1, it is the number of epochs.
    """

    def __init__(self, script: Sequence[Sequence[int]], *, nan_from: Mapping[int, int] | None = None) -> None:
        self.script = script
        self.nan_from = nan_from or {}
        self.training = True
        self.count = len(script[0])
        self.weight = nn.Parameter(torch.zeros(self.count, 1))
        self.statistic = torch.zeros(self.count, 1)

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The counter."""
        return {"weight": self.weight}

    @property
    def state(self) -> dict[str, Tensor]:
        """The counter, and a running statistic that counts too."""
        return {"weight": self.weight, "statistic": self.statistic}

    signature = "scripted"
    draws = False

    def precompute(self, inputs: Tensor) -> None:
        """Nothing stays the same."""

    def __call__(self, x: Tensor, task: int = 0, precomputed: Tensor | None = None) -> Tensor:
        """Return logits that are right for the scripted number of samples."""
        if self.training:
            self.statistic += 1
            logits = torch.zeros(self.count, len(x), 2) + 0 * self.weight[:, :, None]
            for child, epoch in self.nan_from.items():
                if self.weight[child].item() + 1 >= epoch:
                    logits[child] += torch.nan
            return logits
        logits = torch.zeros(self.count, len(x), 2)
        for child in range(self.count):
            epoch = int(self.weight[child].item())
            if epoch:
                logits[child, : self.script[epoch - 1][child], 0] = 1
                logits[child, self.script[epoch - 1][child] :, 1] = 1
        return logits


def count_epochs(parameters: Mapping[str, Tensor]) -> None:
    """Set the gradient that lets a Scripted network count its steps."""
    parameters["weight"].grad = -torch.ones_like(parameters["weight"])


def scripted_task() -> DeviceTask:
    """Return ten samples of class 0."""
    split = DeviceSplit(torch.zeros(10, 1), torch.zeros(10, dtype=torch.int64))
    return DeviceTask("scripted", 0, 2, split, split)

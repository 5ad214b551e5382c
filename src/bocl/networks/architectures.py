"""Networks to start from: ordinary modules."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from bocl.checks import PositiveInt, checked
from bocl.errors import NetworkError
from bocl.wording import shown

MOST_LAYERS = 1000  # far beyond what can be trained


@contextmanager
def leaving_random_numbers() -> Iterator[None]:
    """Draw first weights, which nobody uses, and leave the random numbers of the process as they were."""
    device = torch.get_default_device()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield


@leaving_random_numbers()
def mlp(inputs: int, hidden: Sequence[int], classes: int = 10) -> nn.Sequential:
    """A multilayer perceptron with ReLU on flattened inputs: ``mlp(784, [312, 128])``."""
    inputs, classes = checked("mlp.inputs", inputs, PositiveInt), checked("mlp.classes", classes, PositiveInt)
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    for number, width in enumerate(_sizes("mlp.hidden", hidden), start=1):
        layers[f"fc{number}"] = nn.Linear(inputs, width)
        layers[f"relu{number}"] = nn.ReLU()
        inputs = width
    layers["head"] = nn.Linear(inputs, classes)
    return nn.Sequential(layers)


class LeNet(nn.Module):
    """LeNet-5 on 32 x 32 images: two 5 x 5 convolutions without padding, two hidden linear layers."""

    def __init__(self, channels: int, classes: int, widths: Sequence[int]) -> None:
        super().__init__()
        conv1, conv2, fc1, fc2 = widths
        self.conv1 = nn.Conv2d(channels, conv1, 5)
        self.conv2 = nn.Conv2d(conv1, conv2, 5)
        self.fc1 = nn.Linear(conv2 * 5 * 5, fc1)
        self.fc2 = nn.Linear(fc1, fc2)
        self.head = nn.Linear(fc2, classes)
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, channels, 32, 32) to (n, classes)."""
        x = self.pool(self.relu(self.conv1(x)))
        x = self.pool(self.relu(self.conv2(x))).flatten(1)
        return self.head(self.relu(self.fc2(self.relu(self.fc1(x)))))  # type: ignore[no-any-return]


@leaving_random_numbers()
def lenet(channels: int = 3, classes: int = 10, widths: Sequence[int] = (6, 16, 120, 84)) -> LeNet:
    """LeNet-5 for 32 x 32 images: 62,006 parameters with 3 channels and 10 classes.

    widths  units of its hidden layers: two convolutions, two linear layers
    """
    sizes = _sizes("lenet.widths", widths)
    if len(sizes) != 4:
        raise NetworkError(
            f"lenet.widths is {shown(widths)}; it must be four numbers of units, such as [6, 16, 120, 84]"
        )
    channels = checked("lenet.channels", channels, PositiveInt)
    return LeNet(channels, checked("lenet.classes", classes, PositiveInt), sizes)


@leaving_random_numbers()
def convnet(channels: int = 3, widths: Sequence[int] = (16, 32), hidden: int = 64, classes: int = 10) -> nn.Sequential:
    """A small convolutional network for images of any size: 3 x 3 convolutions, pools, and one hidden linear layer."""
    before = checked("convnet.channels", channels, PositiveInt)
    hidden, classes = (
        checked(f"convnet.{name}", value, PositiveInt) for name, value in (("hidden", hidden), ("classes", classes))
    )
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for number, width in enumerate(_sizes("convnet.widths", widths), start=1):
        layers[f"conv{number}"] = nn.Conv2d(before, width, 3, padding=1)
        layers[f"relu{number}"] = nn.ReLU()
        layers[f"pool{number}"] = nn.MaxPool2d(2, ceil_mode=True)
        before = width
    layers["pool"] = nn.AdaptiveAvgPool2d(4)
    layers["flatten"] = nn.Flatten()
    layers["fc"] = nn.Linear(16 * before, hidden)
    layers["relu"] = nn.ReLU()
    layers["head"] = nn.Linear(hidden, classes)
    return nn.Sequential(layers)


class _Residual(nn.Module):
    """Two 3 x 3 convolutions with batch norm, added to their input (projected where the shape changes)."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        changes = stride != 1 or channels != width
        self.shortcut = nn.Conv2d(channels, width, 1, stride, bias=False) if changes else nn.Identity()
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, channels, h, w) to (n, width, h/stride, w/stride)."""
        residual = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        return self.relu(residual + self.shortcut(x))  # type: ignore[no-any-return]


@leaving_random_numbers()
def resnet(
    channels: int = 3, widths: Sequence[int] = (16, 32, 64), blocks: int = 1, classes: int = 10
) -> nn.Sequential:
    """A small residual network with batch norm, for images of any size."""
    widths = _sizes("resnet.widths", widths)
    blocks = checked("resnet.blocks", blocks, Annotated[PositiveInt, Field(le=MOST_LAYERS // len(widths))])
    channels = checked("resnet.channels", channels, PositiveInt)
    classes = checked("resnet.classes", classes, PositiveInt)
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        stem=nn.Conv2d(channels, widths[0], 3, padding=1, bias=False),
        norm=nn.BatchNorm2d(widths[0]),
        relu=nn.ReLU(),
    )
    before = widths[0]
    for stage, width in enumerate(widths):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            layers[f"stage{stage + 1}_{block + 1}"] = _Residual(before, width, stride)
            before = width
    layers["pool"] = nn.AdaptiveAvgPool2d(1)
    layers["flatten"] = nn.Flatten()
    layers["head"] = nn.Linear(before, classes)
    return nn.Sequential(layers)


def _sizes(name: str, sizes: Sequence[int]) -> list[int]:
    """Check that there are one or more sizes, none of them zero."""
    if isinstance(sizes, str) or not isinstance(sizes, Sequence) or not 1 <= len(sizes) <= MOST_LAYERS:
        raise NetworkError(
            f"{name} is {shown(sizes)}; it must be a list of 1 to {MOST_LAYERS} numbers of units, such as [48, 24]"
        )
    return [checked(f"{name}[{position}]", size, PositiveInt) for position, size in enumerate(sizes)]

"""MobileNetV2 and EfficientNet-Lite0: stacks of inverted residual blocks, for which pretrained weights are published.

A block widens its input by a 1 × 1 convolution, convolves every channel by itself, and narrows the result by another
1 × 1 convolution; where the shape stays the same, its input is added.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Annotated

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from bocl.checks import PositiveInt, checked
from bocl.errors import NetworkError
from bocl.networks.architectures import leaving_random_numbers

FACTOR = 32  # by which both networks make an image smaller
LARGEST = 1024  # pixels
# Of every stage: how far blocks widen their input, their kernel, channels, number, and the stride of the first.
_MOBILENET = (
    (1, 3, 16, 1, 1),
    (6, 3, 24, 2, 2),
    (6, 3, 32, 3, 2),
    (6, 3, 64, 4, 2),
    (6, 3, 96, 3, 1),
    (6, 3, 160, 3, 2),
    (6, 3, 320, 1, 1),
)
_LITE0 = (
    (1, 3, 16, 1, 1),
    (6, 3, 24, 2, 2),
    (6, 5, 40, 2, 2),
    (6, 3, 80, 3, 2),
    (6, 5, 112, 3, 1),
    (6, 5, 192, 4, 2),
    (6, 3, 320, 1, 1),
)


class Resize(nn.Module):
    """Brings images (n, channels, h, w) to ``size`` × ``size`` pixels, on whatever device they are."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, channels, size, size)."""
        return F.interpolate(x, size=(self.size, self.size), mode="bilinear")


def _convolution(
    inputs: int, outputs: int, kernel: int, stride: int, *, same: bool, groups: int, eps: float
) -> nn.Sequential:
    """Return convolution and batch norm.

    same  pad as TensorFlow does for images of an even size: with a stride of 2 less before than behind
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    padding = kernel // 2
    if same and stride == 2:
        before = (kernel - 2) // 2
        layers["pad"] = nn.ZeroPad2d((before, kernel - 2 - before) * 2)
        padding = 0
    layers["conv"] = nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False)
    layers["norm"] = nn.BatchNorm2d(outputs, eps=eps, momentum=0.01 if same else 0.1)
    return nn.Sequential(layers)


class InvertedResidual(nn.Module):
    """One block."""

    def __init__(
        self, inputs: int, outputs: int, widening: int, kernel: int, stride: int, *, same: bool, eps: float
    ) -> None:
        super().__init__()
        inner = inputs * widening
        self.expand = _convolution(inputs, inner, 1, 1, same=same, groups=1, eps=eps) if widening > 1 else None
        self.depthwise = _convolution(inner, inner, kernel, stride, same=same, groups=inner, eps=eps)
        self.project = _convolution(inner, outputs, 1, 1, same=same, groups=1, eps=eps)
        self.activation = nn.ReLU6()
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, inputs, h, w) to (n, outputs, h/stride, w/stride)."""
        inner = x if self.expand is None else self.activation(self.expand(x))
        result: Tensor = self.project(self.activation(self.depthwise(inner)))
        return x + result if self.adds else result


class MobileNetwork(nn.Module):
    """Stem, blocks, a last 1 × 1 convolution, a mean over space, and a head."""

    def __init__(
        self, stages: tuple[tuple[int, ...], ...], size: int | None, classes: int, *, same: bool, eps: float
    ) -> None:
        super().__init__()
        self.resize = nn.Identity() if size is None else Resize(size)
        self.stem = _convolution(3, 32, 3, 2, same=same, groups=1, eps=eps)
        blocks: list[nn.Module] = []
        inputs = 32
        for widening, kernel, outputs, count, stride in stages:
            for number in range(count):
                first = stride if number == 0 else 1
                blocks.append(InvertedResidual(inputs, outputs, widening, kernel, first, same=same, eps=eps))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.last = _convolution(inputs, 1280, 1, 1, same=same, groups=1, eps=eps)
        self.activation = nn.ReLU6()
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(1280, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, 3, h, w) to (n, classes)."""
        x = self.blocks(self.activation(self.stem(self.resize(x))))
        features = self.activation(self.last(x)).mean((2, 3))
        return self.head(self.dropout(features))  # type: ignore[no-any-return]


@leaving_random_numbers()
def efficientnet_lite0(size: int | None = None, classes: int = 1000) -> MobileNetwork:
    """EfficientNet-Lite0 for colour images; 4,652,008 parameters with 1000 classes.

    size     images are brought to so many pixels on the device, a multiple of 32; None: they are such already
    classes  of its head, which every task replaces by its own

    The published weights expect bytes as (x - 127) / 128.
    """
    return MobileNetwork(
        _LITE0, _checked_size("efficientnet-lite0", size), _classes("efficientnet-lite0", classes), same=True, eps=1e-3
    )


@leaving_random_numbers()
def mobilenet_v2(size: int | None = None, classes: int = 1000) -> MobileNetwork:
    """MobileNetV2 for colour images; 3,504,872 parameters with 1000 classes.

    size, classes  as in ``efficientnet_lite0``

    The published weights expect images scaled by the mean (0.485, 0.456, 0.406) and deviation (0.229, 0.224, 0.225).
    """
    return MobileNetwork(
        _MOBILENET, _checked_size("mobilenet-v2", size), _classes("mobilenet-v2", classes), same=False, eps=1e-5
    )


def _checked_size(name: str, size: int | None) -> int | None:
    if size is None:
        return None
    size = checked(f"{name}.size", size, Annotated[PositiveInt, Field(le=LARGEST)])
    if size % FACTOR:
        raise NetworkError(
            f"{name}.size is {size}; it must be a multiple of {FACTOR}, such as {FACTOR * max(1, size // FACTOR)}"
        )
    return size


def _classes(name: str, classes: int) -> int:
    return checked(f"{name}.classes", classes, PositiveInt)

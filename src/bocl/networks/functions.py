"""The parameterless functions a traced network may use: activations, pools, dropout, flatten.

Each acts on every channel alone (or only reshapes), so it works at any width and needs no growing.
A function is named as in ``torch.nn.functional``; a saved network names functions, never code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

_SPATIAL = ("1d", "2d", "3d")

#: Arguments that are kept, in the order the functional form takes them after its input.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "relu": (),
    "relu6": (),
    "tanh": (),
    "sigmoid": (),
    "silu": (),
    "mish": (),
    "softsign": (),
    "hardswish": (),
    "gelu": ("approximate",),
    "elu": ("alpha",),
    "celu": ("alpha",),
    "selu": (),
    "leaky_relu": ("negative_slope",),
    "softplus": ("beta", "threshold"),
    "hardtanh": ("min_val", "max_val"),
    "dropout": ("p",),
    "identity": (),
    "flatten": (),
    "global_average": (),
    **{f"max_pool{d}": ("kernel_size", "stride", "padding", "dilation", "ceil_mode") for d in _SPATIAL},
    **{f"avg_pool{d}": ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad") for d in _SPATIAL},
    **{f"adaptive_avg_pool{d}": ("output_size",) for d in _SPATIAL},
    **{f"adaptive_max_pool{d}": ("output_size",) for d in _SPATIAL},
}

#: Functions that turn 0 into something else, so that padded units must be set back to 0 after them.
MOVES_ZERO = frozenset({"sigmoid", "softplus", "hardtanh"})

#: Functions whose result is a vector per sample.
FLATTENS = frozenset({"flatten", "global_average"})

MODULES: dict[type[nn.Module], str] = {
    nn.ReLU: "relu",
    nn.ReLU6: "relu6",
    nn.Tanh: "tanh",
    nn.Sigmoid: "sigmoid",
    nn.SiLU: "silu",
    nn.Mish: "mish",
    nn.Softsign: "softsign",
    nn.Hardswish: "hardswish",
    nn.GELU: "gelu",
    nn.ELU: "elu",
    nn.CELU: "celu",
    nn.SELU: "selu",
    nn.LeakyReLU: "leaky_relu",
    nn.Softplus: "softplus",
    nn.Hardtanh: "hardtanh",
    nn.Dropout: "dropout",
    nn.Identity: "identity",
    nn.MaxPool1d: "max_pool1d",
    nn.MaxPool2d: "max_pool2d",
    nn.MaxPool3d: "max_pool3d",
    nn.AvgPool1d: "avg_pool1d",
    nn.AvgPool2d: "avg_pool2d",
    nn.AvgPool3d: "avg_pool3d",
    nn.AdaptiveAvgPool1d: "adaptive_avg_pool1d",
    nn.AdaptiveAvgPool2d: "adaptive_avg_pool2d",
    nn.AdaptiveAvgPool3d: "adaptive_avg_pool3d",
    nn.AdaptiveMaxPool1d: "adaptive_max_pool1d",
    nn.AdaptiveMaxPool2d: "adaptive_max_pool2d",
    nn.AdaptiveMaxPool3d: "adaptive_max_pool3d",
}


def _flatten(x: Tensor) -> Tensor:
    return x.flatten(1)


def _global_average(x: Tensor) -> Tensor:
    return x.flatten(2).mean(2)


def _identity(x: Tensor) -> Tensor:
    return x


_OWN: dict[str, Callable[..., Tensor]] = {
    "flatten": _flatten,
    "global_average": _global_average,
    "identity": _identity,
}


def apply(name: str, x: Tensor, arguments: Mapping[str, Any], *, training: bool) -> Tensor:
    """Apply a function of the table to x, (n, channels, …)."""
    if name == "dropout":
        return F.dropout(x, arguments["p"], training)
    function: Callable[..., Tensor] = _OWN.get(name) or getattr(F, name)
    return function(x, **arguments)

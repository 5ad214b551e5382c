"""The parameterless functions a traced network may use: activations, pools, dropout, flatten.

Each acts on every channel by itself (or only reshapes), so it works at any width and needs no growing.
A function is named as in ``torch.nn.functional``; a saved network names functions, never code.
"""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from bocl.networks.graph import DRAWING, Function

_SPATIAL = ("1d", "2d", "3d")

#: Arguments that are kept, in the order the functional form takes them after its input.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("relu", "relu6", "tanh", "sigmoid", "silu", "mish", "softsign", "hardswish", "selu"), ()),
    "gelu": ("approximate",),
    "elu": ("alpha",),
    "celu": ("alpha",),
    "leaky_relu": ("negative_slope",),
    "softplus": ("beta", "threshold"),
    "hardtanh": ("min_val", "max_val"),
    "dropout": ("p",),
    "stochastic_depth": ("p",),
    "zero_pad2d": ("padding",),
    "interpolate": ("size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias"),
    **dict.fromkeys(("identity", "flatten", "global_average"), ()),
    **{f"max_pool{d}": ("kernel_size", "stride", "padding", "dilation", "ceil_mode") for d in _SPATIAL},
    **{f"avg_pool{d}": ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad") for d in _SPATIAL},
    **{f"adaptive_{kind}_pool{d}": ("output_size",) for kind in ("avg", "max") for d in _SPATIAL},
}

#: Functions that turn 0 into something else, so that padded units must be set back to 0 after them.
MOVES_ZERO = frozenset({"sigmoid", "softplus", "hardtanh"})

#: Functions whose result is a vector per sample.
FLATTENS = frozenset({"flatten", "global_average"})

#: Modules by their functions, which PyTorch names alike: nn.LeakyReLU is leaky_relu, nn.MaxPool2d is max_pool2d.
_BY_MODULE = {name.replace("_", ""): name for name in ARGUMENTS}
MODULES: dict[type[nn.Module], str] = {
    kind: _BY_MODULE[name.lower()]
    for name, kind in vars(nn).items()
    if isinstance(kind, type) and name.lower() in _BY_MODULE
}

_OWN: dict[str, Callable[..., Tensor]] = {
    "flatten": lambda x: x.flatten(1),
    "global_average": lambda x: x.flatten(2).mean(2),
    "identity": lambda x: x,
    "zero_pad2d": lambda x, padding: F.pad(x, padding),
    "stochastic_depth": lambda x, p, training: (
        x * F.dropout(x.new_ones(x.shape[0], *(1,) * (x.dim() - 1)), p, training)
    ),
}


def apply(step: Function, x: Tensor, *, training: bool) -> Tensor:
    """Return what a step of the graph makes of x, (n, channels, …)."""
    function: Callable[..., Tensor] = _OWN.get(step.function) or getattr(F, step.function)
    mode = {"training": training} if step.function in DRAWING else {}
    return function(x, **step.arguments, **mode)

"""Which layers of a module get factors, and in which groups they do.

A layer W of a group grows by factors of the group's rank r, of which a task has its own:

    linear        W x + α/√r · up (down x)              down (r, in),          up (out, r)
    convolution   W * x + α/√r · up (down * x)          down (r, in, *kernel), up (out, r), a 1 × 1 convolution

Groups are named by patterns of the user's, or found: what a layer is for, by its name, and the third of the depth it
is in. ``attention-in upper`` are the queries, keys and values of the last third.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from bocl.checks import Natural, PositiveInt
from bocl.errors import NetworkError, did_you_mean
from bocl.networks.graph import Group, Layer, Source
from bocl.wording import shown

FIRST_RANK = 8  # the largest that a search tries before it widens its bounds
THIRDS = ("lower", "middle", "upper")
#: What a linear layer is for, by the last words of its name.
_PURPOSES = {
    "attention-in": r"query|key|value|query_key_value|in_proj|c_attn|(to_)?(q|k|v|qkv)(_proj|_lin)?",
    "attention-out": r"(o|out)(_proj|_lin)?|to_out(\.0)?|(attn|attention|self_attn)\.(proj|c_proj|output\.dense|dense)",
}
#: nn.MultiheadAttention computes with the weights of its layer, without calling it; a lazy layer has no shape yet.
_NEVER_CALLED = (NonDynamicallyQuantizableLinear, LazyModuleMixin)
_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class FactoredLayer:
    """A layer that gets factors.

    name     of the module
    group    number of its group
    inputs   columns of a linear layer, channels of a convolution
    outputs  rows, or channels
    """

    name: str
    group: Natural
    inputs: PositiveInt
    outputs: PositiveInt
    kernel: tuple[PositiveInt, ...] = ()
    stride: tuple[PositiveInt, ...] = ()
    padding: tuple[Natural, ...] | Literal["same", "valid"] = ()
    dilation: tuple[PositiveInt, ...] = ()

    @property
    def most(self) -> int:
        """The largest rank of use: factors of this rank add up to any weight that the layer can have."""
        return min(self.inputs * prod(self.kernel), self.outputs)

    @property
    def down(self) -> Layer:
        """The factor that reads the layer's input, as a layer of a graph."""
        sizes = (self.kernel, self.stride, self.padding, self.dilation)
        return Layer(self.name, (0,), Source(None, self.inputs), self.group, False, *sizes)


@dataclass(frozen=True)
class Plan:
    """The layers that get factors and their groups; every group has a layer."""

    layers: tuple[FactoredLayer, ...]
    groups: tuple[Group, ...]

    def most(self, group: int) -> int:
        """Return the largest rank of use in a group, that of the layer which can use most."""
        return max((layer.most for layer in self.layers if layer.group == group), default=0)


def make_plan(
    module: nn.Module, *, groups: Mapping[str, str], depth: float, head: str | None, unused: Sequence[str] = ()
) -> Plan:
    """Find the layers of a module that can have factors, and put them into groups.

    groups  {name of a group: pattern of the names of its layers}; none: found by name and depth
    depth   share of the layers, from the end, that may have factors
    head    name of the layer that every task replaces by its own
    unused  layers that do not take part in what the module computes: they count for the depth, but get no factors
    """
    found = {name: part for name, part in module.named_modules() if _can_have_factors(part) and name != head}
    if not found:
        raise NetworkError(
            f"{type(module).__name__} has no layer that can have low-rank factors: no nn.Linear, and no convolution "
            "with groups=1, besides its head"
        )
    reachable = list(found)[len(found) - max(1, round(depth * len(found))) :]
    named = _by_pattern(reachable, groups, list(found), depth) if groups else _by_purpose(found, reachable)
    named = [(name, group) for name, group in named if name not in unused]
    names = list(dict.fromkeys(group for _, group in named))
    if groups:
        names = [name for name in groups if name in names]
    layers = tuple(_factored(name, found[name], names.index(group)) for name, group in named)
    return Plan(layers, tuple(Group(name, FIRST_RANK) for name in names))


def _can_have_factors(part: nn.Module) -> bool:
    if not isinstance(part, _LAYERS) or isinstance(part, _NEVER_CALLED):
        return False
    # A convolution of another class may pad in its own way, which does not matter to a kernel of one pixel.
    plain = isinstance(part, nn.Linear) or type(part) in _LAYERS or set(part.kernel_size) == {1}
    return plain and getattr(part, "groups", 1) == 1


def _by_pattern(
    names: Sequence[str], groups: Mapping[str, str], known: Sequence[str], depth: float
) -> list[tuple[str, str]]:
    """Return (layer, group) by patterns that the user gave; the first that is found in a layer's name counts.

    names  of the layers that ``depth`` lets have factors
    known  of all layers that can have factors
    """
    compiled = {}
    for group, pattern in groups.items():
        try:
            compiled[group] = re.compile(pattern)
        except re.error as error:
            raise NetworkError(f"growth.groups.{group} is {shown(pattern)}, which is no pattern: {error}") from error
    found: dict[str, str] = {}
    for name in names:
        fitting = [group for group, pattern in compiled.items() if pattern.search(name)]
        if fitting:
            found[name] = fitting[0]
    for group in [name for name in groups if name not in found.values()]:
        fits = [name for name in known if compiled[group].search(name)]
        taken = [name for name in fits if name in found]
        begin = f"growth.groups.{group}: "
        if taken:
            raise NetworkError(
                f"{begin}'{taken[0]}' is in the group '{found[taken[0]]}' already, because the first pattern that fits "
                f"a layer counts; put {shown(groups[group])} before it, or make the patterns differ"
            )
        if fits:
            raise NetworkError(
                f"{begin}growth.depth = {depth:g} leaves out '{fits[0]}', and all others that are named like "
                f"{shown(groups[group])}; raise it"
            )
        raise NetworkError(f"{begin}no layer is named like {shown(groups[group])}{did_you_mean(groups[group], known)}")
    return list(found.items())


def _by_purpose(found: Mapping[str, nn.Module], reachable: Sequence[str]) -> list[tuple[str, str]]:
    """Return (layer, group) by what a layer is for and the third of the depth it is in."""
    place = {name: at for at, name in enumerate(found)}
    return [(name, f"{_purpose(name, found[name])} {THIRDS[3 * place[name] // len(found)]}") for name in reachable]


def _purpose(name: str, part: Any) -> str:
    if not isinstance(part, nn.Linear):
        return "expand" if part.out_channels > part.in_channels else "project"
    for purpose, pattern in _PURPOSES.items():
        if re.search(rf"(^|\.)({pattern})$", name):
            return purpose
    return "mlp"


def _factored(name: str, part: Any, group: int) -> FactoredLayer:
    if isinstance(part, nn.Linear):
        return FactoredLayer(name, group, part.in_features, part.out_features)
    if part.padding_mode != "zeros":
        raise NetworkError(f"'{name}' has padding_mode='{part.padding_mode}'; only 'zeros' is supported")
    padding: Any = part.padding if isinstance(part.padding, str) else tuple(part.padding)
    sizes = (tuple(part.kernel_size), tuple(part.stride), padding, tuple(part.dilation))
    return FactoredLayer(name, group, part.in_channels, part.out_channels, *sizes)

"""Modules that take the place of a trained module's layers: its layer, and factors around it.

A copy of the module shares all tensors with it. Only the modules that are replaced are its own. K children run as one
copy on K · n samples, the first child's n samples first:

    name     shape                  meaning
    x        (K·n, …, in)           input of a linear layer; (K·n, in, *space) of a convolution
    down     (K, r, in, *kernel)    factor that reads the input
    up       (K, out, r)            factor that writes the output, 0 at first
    scale    (K, r)                 α/√r of each child's own rank r; gates stand in it where factors of others are read
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bocl.errors import NetworkError
from bocl.networks.compact import CONVOLUTIONS
from bocl.networks.graph import Norm, Source
from bocl.networks.low_rank.fused import can_fuse, fused
from bocl.networks.low_rank.plan import FactoredLayer
from bocl.networks.norms import normalise_batch
from bocl.networks.products import own_product

NORMS = (nn.LayerNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def copied(module: nn.Module) -> nn.Module:
    """Return a copy of a module that shares its parameters and buffers."""
    shared = {id(tensor): tensor for tensor in chain(module.parameters(), module.buffers())}
    try:
        return deepcopy(module, shared)
    except (TypeError, RuntimeError, AttributeError, NotImplementedError) as error:
        reason = " ".join(str(error).split())
        raise NetworkError(
            f"{type(module).__name__} cannot be copied, which low-rank growth needs: {reason}"
        ) from error


def replace_parts(module: nn.Module, parts: Mapping[str, nn.Module]) -> None:
    """Put other modules into the places of these names."""
    for name, part in parts.items():
        place, _, attribute = name.rpartition(".")
        setattr(module.get_submodule(place), attribute, part)


@contextmanager
def every_part_called() -> Iterator[None]:
    """Keep PyTorch's own transformer layers from computing past the modules inside them."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


class _InPlaceOf(nn.Module):
    """A part that stands where ``base`` stood: the code around it may ask for what ``base`` has, such as its weight."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base = base

    def __getattr__(self, name: str) -> Any:
        """Return what this part has, else what ``base`` has."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("base"), name)


class WithFactors(_InPlaceOf):
    """A layer with the factors of one task: W x + up (down x), what scales them being part of ``up``."""

    def __init__(self, base: nn.Module, layer: FactoredLayer, down: Tensor, up: Tensor) -> None:
        super().__init__(base)
        self.layer = layer
        self.down: Tensor
        self.up: Tensor
        self.register_buffer("down", down)
        self.register_buffer("up", up)

    def forward(self, input: Tensor) -> Tensor:
        """Return the layer's output."""
        out: Tensor = self.base(input)
        layer, down, up = self.layer, self.down, self.up
        if not layer.kernel:
            return out + F.linear(F.linear(input, down), up)
        convolve: Any = CONVOLUTIONS[len(layer.kernel)]
        inner = convolve(input, down, None, layer.stride, layer.padding, layer.dilation)
        return out + convolve(inner, up.view(*up.shape, *(1,) * len(layer.kernel)))  # type: ignore[no-any-return]


class WithStackedFactors(_InPlaceOf):
    """A layer with the factors of K children; what they read of earlier tasks stands before their own.

    read_down (R, in, *kernel), read_up (out, R)  factors of earlier tasks, scaled; None where none are read
    gates (K, R)                                  the logits of their gates; None where they are not gated
    """

    def __init__(
        self,
        base: nn.Module,
        layer: FactoredLayer,
        down: Tensor,
        up: Tensor,
        scale: Tensor,
        read: tuple[Tensor, Tensor] | None = None,
        gates: Tensor | None = None,
    ) -> None:
        super().__init__(base)
        self.layer = layer
        self.tensors = (down, up, scale, read, gates)  # in a tuple, so that they stay the children's own

    def forward(self, input: Tensor) -> Tensor:
        """Return the layer's output for K · n samples."""
        x, layer = input, self.layer
        down, up, scale, read, gates = self.tensors
        if read is not None:
            read_down, read_up = read
            beta = scale.new_ones(len(down), len(read_down)) if gates is None else gates.sigmoid()
            down = torch.cat([read_down.expand(len(down), *read_down.shape), down], 1)
            up = torch.cat([read_up.expand(len(up), *read_up.shape), up], 2)
            scale = torch.cat([beta, scale], 1)
        count = len(down)
        if can_fuse(self.base, x) and down.shape[1] and len(x) % count == 0:
            return fused(self.base, x, down, up, scale)
        out: Tensor = self.base(x)
        if not down.shape[1]:
            return out
        if not layer.kernel:
            inner = torch.bmm(x.reshape(count, -1, x.shape[-1]), down.mT) * scale.unsqueeze(1)
            return torch.baddbmm(out.view(count, -1, out.shape[-1]), inner, up.mT).view(out.shape)
        per_child = x.reshape(count, -1, *x.shape[1:])
        inner = own_product(layer.down, per_child, down, None)
        inner = inner * scale.view(count, 1, -1, *(1,) * len(layer.kernel))
        outer = up.unsqueeze(1) @ inner.flatten(3)  # (K, n, out, space)
        return out + outer.reshape(out.shape)


class WithOwnNorm(nn.Module):
    """A norm with the scale, shift and statistics of one task."""

    def __init__(self, base: nn.Module, own: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.base = base
        self.weight: Tensor | None
        self.bias: Tensor | None
        self.mean: Tensor | None
        self.var: Tensor | None
        for name in ("weight", "bias", "mean", "var"):
            self.register_buffer(name, own.get(name))

    def forward(self, input: Tensor) -> Tensor:
        """Return the normalised input."""
        x: Tensor = input
        base: Any = self.base
        if isinstance(base, nn.LayerNorm):
            return F.layer_norm(x, base.normalized_shape, self.weight, self.bias, base.eps)
        if isinstance(base, nn.GroupNorm):
            return F.group_norm(x, base.num_groups, self.weight, self.bias, base.eps)
        return F.batch_norm(x, self.mean, self.var, self.weight, self.bias, False, 0.0, base.eps)


class WithStackedNorms(_InPlaceOf):
    """A norm with scales, shifts and statistics of K children: (K, C) each.

    owner  the children, which know whether they are in training
    """

    def __init__(self, base: nn.Module, own: Mapping[str, Tensor], owner: Any) -> None:
        super().__init__(base)
        self.own = dict(own)
        self.owner: Any
        object.__setattr__(self, "owner", owner)  # no submodule

    def forward(self, input: Tensor) -> Tensor:
        """Return the normalised input for K · n samples."""
        x: Tensor = input
        base: Any = self.base
        weight, bias = self.own.get("weight"), self.own.get("bias")
        count = len(next(iter(self.own.values())))
        stacked = x.view(count, -1, *x.shape[1:])
        if isinstance(base, nn.LayerNorm):
            plain = F.layer_norm(stacked, base.normalized_shape, None, None, base.eps)
            shape = (count, *(1,) * (plain.dim() - 1 - len(base.normalized_shape)), *base.normalized_shape)
        else:
            if isinstance(base, nn.GroupNorm):
                plain = F.group_norm(x, base.num_groups, None, None, base.eps).view(stacked.shape)
            else:
                norm = Norm("", (0,), Source(None, 1), "batch", base.affine, base.eps, momentum=base.momentum)
                mean, var = self.own["mean"], self.own["var"]
                plain = normalise_batch(norm, stacked, mean, var, weight, bias, training=self.owner.training)
                return plain.reshape(x.shape)
            shape = (count, 1, stacked.shape[2], *(1,) * (stacked.dim() - 3))
        if weight is not None:
            plain = plain * weight.view(shape)
        if bias is not None:
            plain = plain + bias.view(shape)
        return plain.reshape(x.shape)


class Instead(nn.Module):
    """Takes the place of a part that was computed before: it returns what it is given."""

    def __init__(self, *, wrapped: bool = False) -> None:
        super().__init__()
        self.value: Tensor | None = None
        self.wrapped = wrapped

    def forward(self, *_: Any, **__: Any) -> Any:
        """Return what was computed before, in a tuple of one where the part returns such."""
        return (self.value,) if self.wrapped else self.value


def own_tensors(norm: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a norm that a task may have for itself: weight, bias, and of a batch norm mean and var."""
    named = {"weight": "weight", "bias": "bias", "running_mean": "mean", "running_var": "var"}
    found = {short: getattr(norm, name, None) for name, short in named.items()}
    return {name: tensor.detach() for name, tensor in found.items() if isinstance(tensor, Tensor)}

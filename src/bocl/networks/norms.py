"""Batch and group normalisation of units that grow."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from bocl.networks.graph import Norm
from bocl.networks.own_kernels import kernels_of
from bocl.networks.stack_layout import children_first, children_in_channels


def normalise_batch(
    norm: Norm,
    x: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    *,
    training: bool,
) -> Tensor:
    """Normalise x (K, n, C, *space) by running statistics, then scale and shift it, each (K, C).

    In training the batch's own statistics take their place, and update them.
    """
    if not x.is_cuda and x.dim() == 5 and x.numel() > x.shape[0] * x.shape[2]:
        # One kernel for the images of all children. A GPU has ours, see below, or these few operations.
        scale, shift = (None if part is None else part.reshape(-1) for part in (weight, bias))
        mean, var = running_mean.view(-1), running_var.view(-1)
        flat = children_in_channels(x)
        out = torch.batch_norm(flat, scale, shift, mean, var, training, norm.momentum, norm.eps, cudnn_enabled=False)
        return children_first(out, len(x))
    mean, var = running_mean, running_var
    x = x.to(mean.dtype)  # products in bf16 give bf16, statistics stay float32
    if training:
        over = (1, *range(3, x.dim()))
        var, mean = torch.var_mean(x, over, correction=0)
        samples = x.shape[1] * x[0, 0, 0].numel()
        with torch.no_grad():
            running_mean.lerp_(mean, norm.momentum)
            running_var.lerp_(var * (samples / max(samples - 1, 1)), norm.momentum)
    return scale_and_shift((x - per_channel(mean, x)) * per_channel((var + norm.eps).rsqrt(), x), weight, bias)


def normalise_batch_chain(
    norm: Norm,
    x: Tensor,
    other: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    *,
    rectifies: bool,
    training: bool,
) -> tuple[Tensor, Tensor | None]:
    """Return relu(batch norm of x + other), and where they cost nothing its means over space, (K, n, C)."""
    alike = other is None or other.shape == x.shape  # otherwise PyTorch spreads the smaller over the other
    without_gradients = not training and not torch.is_grad_enabled()
    kernels = kernels_of("batch_norm", x) if alike and (training or without_gradients) else None
    if kernels is None:
        y = normalise_batch(norm, x, running_mean, running_var, weight, bias, training=training)
        y = y if other is None else y + other
        return y.relu() if rectifies else y, None
    found: tuple[Tensor, Tensor]
    if training:
        running, options = (running_mean, running_var), (norm.momentum, norm.eps, rectifies)
        found = kernels.BatchNorm.apply(x, other, weight, bias, running, *options)
    else:
        factor = (running_var + norm.eps).rsqrt()
        found = kernels.normalise(x, other, running_mean, factor, weight, bias, rectifies=rectifies)
    return found


def normalise_blocks(norm: Norm, x: Tensor, sizes: Sequence[int], roots: Collection[int] = (0,)) -> Tensor:
    """Group-normalise x (n, C, *space), whose channels are blocks of these sizes.

    The base network's block, and that of every other network of its own, is normalised in the base network's groups
    where they divide it; any other block as one group.

    roots  places of those blocks

    Of a layer norm (n, C), every block is normalised by the mean and deviation of the first: a single unit that a task
    adds would have none of its own.
    """
    if norm.kind == "layer":
        return normalise_by_first(norm, x, x[:, : sizes[0]])
    parts = [
        torch.group_norm(part, _groups(norm, part.shape[1], index in roots), eps=norm.eps)  # F's refuses one value
        for index, part in enumerate(x.split(list(sizes), dim=1))
        if part.shape[1]
    ]
    return torch.cat(parts, dim=1)


def normalise_by_first(norm: Norm, x: Tensor, first: Tensor) -> Tensor:
    """Normalise x (…, C) by the mean and deviation of each sample's first units (…, C')."""
    var, mean = torch.var_mean(first, -1, correction=0, keepdim=True)
    return (x - mean) * (var + norm.eps).rsqrt()


def normalise_masked(norm: Norm, x: Tensor, mask: Tensor) -> Tensor:
    """Normalise x (K, n, C, *space) as one group of each sample, without the padding, where ``mask`` is 0."""
    x = x * mask  # padding is zero already; this keeps the mean's gradient from it
    over = tuple(range(2, x.dim()))
    own = mask.expand(-1, -1, -1, *x.shape[3:]).sum(over, keepdim=True).clamp(min=1)
    centred = (x - x.sum(over, keepdim=True) / own) * mask
    var = centred.square().sum(over, keepdim=True) / own
    return centred * (var + norm.eps).rsqrt()


def _groups(norm: Norm, units: int, is_root: bool) -> int:
    return norm.num_groups if is_root and units % norm.num_groups == 0 else 1


def scale_and_shift(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Return x · weight + bias by channel; a norm may have neither, or a weight alone."""
    if weight is not None:
        x = x * per_channel(weight, x)
    return x if bias is None else x + per_channel(bias, x)


def per_channel(values: Tensor, x: Tensor) -> Tensor:
    """Shape values (C,) so that they broadcast over x (n, C, *space); or (K, C) over (K, n, C, *space)."""
    *stack, channels = values.shape
    return values.view(*stack, 1, channels, *(1,) * (x.dim() - len(stack) - 2))

"""A frozen layer and the factors of K children as one product, without copies between the two.

    out = W x + b + up (scale ⊙ down x)            dx = Wᵀ dy + downᵀ (scale ⊙ upᵀ dy)

The part of the factors is added to that of the layer where it lies, forward and backward. As a product of its own it
would pass over x and out once more, and such passes are most of what a step costs.

    x      (K·n, …, in) of a linear layer, (K·n, in, *space) of a convolution of kernel 1
    down   (K, R, in), up (K, out, R), scale (K, R), as in ``modules.py``
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def can_fuse(base: nn.Module, x: Tensor) -> bool:
    """Whether a layer computes nothing but its product, and the product is over one number of every sample or pixel."""
    if any(getattr(base, hooks) for hooks in _HOOKS):
        return False
    if type(base) is nn.Linear:
        return True
    if type(base) is not nn.Conv2d or x.dim() != 4 or not base.weight.is_contiguous():
        return False
    sizes = (base.kernel_size, base.stride, base.groups)
    return sizes == ((1, 1), (1, 1), 1) and base.padding in ("valid", (0, 0))


def fused(base: nn.Module, x: Tensor, down: Tensor, up: Tensor, scale: Tensor) -> Tensor:
    """Return the layer's output for K · n samples."""
    kind = x.device.type
    tensors: list[Any] = [x, base.weight, base.bias, down.flatten(2), up, scale]
    if torch.is_autocast_enabled(kind):  # which does not reach into the backward pass
        dtype = torch.get_autocast_dtype(kind)
        tensors = [tensor if tensor is None else tensor.to(dtype) for tensor in tensors]
    product: Any = _Linear if isinstance(base, nn.Linear) else _Pointwise
    with torch.autocast(kind, enabled=False):
        out: Tensor = product.apply(*tensors)
    return out


class _Linear(torch.autograd.Function):
    """A linear layer with factors."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, down: Tensor, up: Tensor, scale: Tensor
    ) -> Tensor:
        count = len(down)
        out = F.linear(x, weight, bias)
        inner = torch.bmm(x.reshape(count, -1, x.shape[-1]), down.mT)  # (K, rows, R)
        out.view(count, -1, out.shape[-1]).baddbmm_(inner * scale.unsqueeze(1), up.mT)
        ctx.save_for_backward(x, weight, down, up, scale, inner)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, down, up, scale, inner = ctx.saved_tensors
        count = len(down)
        out_rows = grad.reshape(count, -1, grad.shape[-1])
        d_scaled = torch.bmm(out_rows, up)
        d_inner = d_scaled * scale.unsqueeze(1)
        d_up = torch.bmm(out_rows.mT, inner * scale.unsqueeze(1))
        d_down = torch.bmm(d_inner.mT, x.reshape(count, -1, x.shape[-1]))
        d_scale = (d_scaled * inner).sum(1) if ctx.needs_input_grad[5] else None
        d_x = None
        if ctx.needs_input_grad[0]:
            d_x = grad.matmul(weight)
            d_x.view(count, -1, d_x.shape[-1]).baddbmm_(d_inner, down)
        return d_x, None, None, d_down, d_up, d_scale


class _Pointwise(torch.autograd.Function):
    """A convolution of kernel 1 with factors; every sample is a product of its own, (channels, pixels)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, down: Tensor, up: Tensor, scale: Tensor
    ) -> Tensor:
        x = x.contiguous()
        out = F.conv2d(x, weight, bias)
        pixels = x.flatten(2)
        inner = torch.bmm(_for_samples(down, len(x)), pixels)  # (K·n, R, pixels)
        scales = _for_samples(scale.unsqueeze(2), len(x))
        out.flatten(2).baddbmm_(_for_samples(up, len(x)), inner * scales)
        ctx.save_for_backward(x, weight, down, up, scale, inner)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, down, up, scale, inner = ctx.saved_tensors
        count, samples = len(down), len(x)
        grad = grad.contiguous()
        out_pixels, scales = grad.flatten(2), _for_samples(scale.unsqueeze(2), samples)
        d_scaled = torch.bmm(_for_samples(up, samples).mT, out_pixels)
        d_inner = d_scaled * scales
        d_up = torch.bmm(out_pixels, (inner * scales).mT).view(count, -1, *up.shape[1:]).sum(1)
        d_down = torch.bmm(d_inner, x.flatten(2).mT).view(count, -1, *down.shape[1:]).sum(1)
        d_scale = (d_scaled * inner).sum(2).view(count, -1, scale.shape[1]).sum(1) if ctx.needs_input_grad[5] else None
        d_x = None
        if ctx.needs_input_grad[0]:
            sizes = [1, 1], [0, 0], [1, 1], False, [0, 0], 1
            d_x = torch.ops.aten.convolution_backward(grad, x, weight, None, *sizes, [True, False, False])[0]
            d_x = d_x.contiguous()
            d_x.flatten(2).baddbmm_(_for_samples(down, samples).mT, d_inner)
        return d_x, None, None, d_down, d_up, d_scale


def _for_samples(tensor: Tensor, samples: int) -> Tensor:
    """Turn (K, …) into (K·n, …): each child's for every of its samples."""
    each = samples // len(tensor)
    return tensor.unsqueeze(1).expand(len(tensor), each, *tensor.shape[1:]).flatten(0, 1)

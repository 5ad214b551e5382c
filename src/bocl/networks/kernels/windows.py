"""Two GPU kernels for convolutions of many children: lay windows out, and add them up again.

Triton comes with PyTorch's GPU builds. Where it is missing, ``products.py`` does the same with PyTorch's own
operations, three to six times slower.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from bocl.networks.graph import Layer
from bocl.networks.kernels.layout import launch

BLOCK = 512


@triton.jit  # type: ignore[untyped-decorator]
def _windows_kernel(  # type: ignore[no-untyped-def]
    source,
    target,
    total,
    height: tl.constexpr,
    width: tl.constexpr,
    high: tl.constexpr,
    wide: tl.constexpr,
    kernel_h: tl.constexpr,
    kernel_w: tl.constexpr,
    stride_h: tl.constexpr,
    stride_w: tl.constexpr,
    pad_h: tl.constexpr,
    pad_w: tl.constexpr,
    block: tl.constexpr,
):
    """One element of the windows per lane: (plane, kh, kw, H', W') reads (plane, H, W)."""
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = at < total
    column = at % wide
    row = (at // wide) % high
    shift_w = (at // (wide * high)) % kernel_w
    shift_h = (at // (wide * high * kernel_w)) % kernel_h
    plane = at // (wide * high * kernel_w * kernel_h)
    y = row * stride_h + shift_h - pad_h
    x = column * stride_w + shift_w - pad_w
    read = inside & (y >= 0) & (y < height) & (x >= 0) & (x < width)
    value = tl.load(source + (plane * height + y) * width + x, mask=read, other=0.0)
    tl.store(target + at, value, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _fold_kernel(  # type: ignore[no-untyped-def]
    source,
    target,
    total,
    height: tl.constexpr,
    width: tl.constexpr,
    high: tl.constexpr,
    wide: tl.constexpr,
    kernel_h: tl.constexpr,
    kernel_w: tl.constexpr,
    stride_h: tl.constexpr,
    stride_w: tl.constexpr,
    pad_h: tl.constexpr,
    pad_w: tl.constexpr,
    block: tl.constexpr,
):
    """One element of the image per lane: (plane, H, W) adds up every window it is part of, always in one order."""
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = at < total
    x = at % width
    y = (at // width) % height
    plane = at // (width * height)
    value = tl.zeros((block,), dtype=tl.float32)
    for shift_h in tl.static_range(kernel_h):
        for shift_w in tl.static_range(kernel_w):
            down = y + pad_h - shift_h
            right = x + pad_w - shift_w
            row = down // stride_h
            column = right // stride_w
            read = inside & (down >= 0) & (right >= 0) & (row < high) & (column < wide)
            read = read & (down % stride_h == 0) & (right % stride_w == 0)
            place = (((plane * kernel_h + shift_h) * kernel_w + shift_w) * high + row) * wide + column
            value += tl.load(source + place, mask=read, other=0.0).to(tl.float32)
    tl.store(target + at, value, mask=inside)


def windows(x: Tensor, out: tuple[int, int], layer: Layer) -> Tensor:
    """Lay out the windows of x (n, in, H, W): (n, in·kh·kw, H'·W')."""
    samples, channels, height, width = x.shape
    laid_out = torch.empty(
        samples, channels * layer.kernel[0] * layer.kernel[1], out[0] * out[1], device=x.device, dtype=x.dtype
    )
    _launch(_windows_kernel, x.contiguous(), laid_out, (height, width), out, layer)
    return laid_out


def fold(laid_out: Tensor, shape: tuple[int, ...], out: tuple[int, ...], layer: Layer) -> Tensor:
    """Add windows (n, in·kh·kw, H'·W') up where they came from: ``shape`` (n, in, H, W)."""
    folded = torch.empty(shape, device=laid_out.device, dtype=laid_out.dtype)
    _launch(_fold_kernel, laid_out.contiguous(), folded, shape[2:], out, layer)
    return folded


def _launch(
    kernel: Any, source: Tensor, target: Tensor, size: tuple[int, ...], out: tuple[int, ...], layer: Layer
) -> None:
    total = target.numel()
    if total:
        shape = (*size, *out, *layer.kernel, *layer.stride, *layer.padding)
        launch(kernel, (triton.cdiv(total, BLOCK),), source, target, total, *shape, BLOCK)


def try_out(device: torch.device) -> None:
    """Lay out one window, which is one number, or raise what is in the way of that."""
    one = torch.zeros(1, 1, 1, 1, device=device)
    launch(_windows_kernel, (1,), one, torch.empty_like(one), 1, *(1,) * 8, 0, 0, BLOCK)

"""Convolutions of K children as products whose windows are read where they lie, and never written out.

    x (K, n, in, H, W), gates β (K, n, in), weight (K, out, in, kh, kw), bias (K, out) → (K, n, out, H', W')

    y = (x ⊙ β) * weight + bias

Gates are multiplied in while x is read. Every sum has one fixed order, so results repeat to the bit.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from bocl.networks.graph import Layer

_FORWARD = {"units": 64, "pixels": 128, "inner": 32, "warps": 4, "stages": 3}
_INPUT = {"units": 64, "pixels": 128, "inner": 32, "warps": 4, "stages": 3}
_WEIGHT = {"units": 64, "columns": 64, "inner": 32, "warps": 4, "stages": 3}
_SPLITS = 1024  # programs that a weight's gradient is divided among


@triton.jit  # type: ignore[untyped-decorator]
def _forward_kernel(  # type: ignore[no-untyped-def]
    x, gates, weight, bias, out,
    samples,
    channels: tl.constexpr, units: tl.constexpr,
    height: tl.constexpr, width: tl.constexpr, high: tl.constexpr, wide: tl.constexpr,
    kernel_h: tl.constexpr, kernel_w: tl.constexpr, stride_h: tl.constexpr, stride_w: tl.constexpr,
    pad_h: tl.constexpr, pad_w: tl.constexpr,
    gated: tl.constexpr, biased: tl.constexpr, products: tl.constexpr,
    block_p: tl.constexpr, block_u: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    """Some pixels of one sample, and some units, of one child; weight (K, kh, out, kw·in)."""
    child = tl.program_id(2)
    image = child.to(tl.int64) * samples + tl.program_id(1)
    unit_blocks: tl.constexpr = (units + block_u - 1) // block_u
    unit = (tl.program_id(0) % unit_blocks) * block_u + tl.arange(0, block_u)
    pixel = (tl.program_id(0) // unit_blocks) * block_p + tl.arange(0, block_p)
    top, left = (pixel // wide) * stride_h - pad_h, (pixel % wide) * stride_w - pad_w
    corner = top * width + left
    x += image * channels * height * width
    line: tl.constexpr = kernel_w * channels
    blocks: tl.constexpr = (line + block_k - 1) // block_k
    weight += child.to(tl.int64) * kernel_h * units * line
    total = tl.zeros((block_u, block_p), dtype=tl.float32)
    for number in range(kernel_h * blocks):
        tap_h = number // blocks
        k = number % blocks * block_k + tl.arange(0, block_k)
        tap_w, channel = k // channels, k % channels
        column = left[None, :] + tap_w[:, None]
        read = (k < line)[:, None] & ((pixel < high * wide) & (top + tap_h >= 0) & (top + tap_h < height))[None, :]
        read = read & (column >= 0) & (column < width)
        offset = channel * (height * width) + tap_w + tap_h * width
        seen = tl.load(x + offset[:, None] + corner[None, :], mask=read, other=0.0)
        of_weight = weight + tap_h * (units * line) + unit[:, None] * line + k[None, :]
        factors = tl.load(of_weight, mask=(unit < units)[:, None] & (k < line)[None, :], other=0.0)
        if gated:  # all pixels are of one sample, so the gates may as well be multiplied into the weight
            factors *= tl.load(gates + image * channels + channel)[None, :]
        total = _add_product(factors, seen, total, products)
    if biased:
        total += tl.load(bias + child * units + unit, mask=unit < units, other=0.0)[:, None]
    out += image * units * high * wide
    kept = (unit < units)[:, None] & (pixel < high * wide)[None, :]
    tl.store(out + unit[:, None] * (high * wide) + pixel[None, :], total, mask=kept)


@triton.jit  # type: ignore[untyped-decorator]
def _input_kernel(  # type: ignore[no-untyped-def]
    gradient, x, gates, weight, for_x, for_gates,
    samples,
    channels: tl.constexpr, units: tl.constexpr,
    height: tl.constexpr, width: tl.constexpr, high: tl.constexpr, wide: tl.constexpr,
    kernel_h: tl.constexpr, kernel_w: tl.constexpr, stride_h: tl.constexpr, stride_w: tl.constexpr,
    pad_h: tl.constexpr, pad_w: tl.constexpr,
    gated: tl.constexpr, products: tl.constexpr,
    block_p: tl.constexpr, block_c: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    """The gradient of some pixels of one sample, and some channels, of one child; weight (K, kh, in, kw·out).

    Rows whose places differ by a multiple of the stride are read by the same taps of the kernel, and are one class.
    """
    child = tl.program_id(2)
    image = child.to(tl.int64) * samples + tl.program_id(1)
    channel_blocks: tl.constexpr = (channels + block_c - 1) // block_c
    pixel_blocks: tl.constexpr = ((height + stride_h - 1) // stride_h * width + block_p - 1) // block_p
    channel = (tl.program_id(0) % channel_blocks) * block_c + tl.arange(0, block_c)
    block = tl.program_id(0) // channel_blocks
    of_class = block // pixel_blocks
    pixel = (block % pixel_blocks) * block_p + tl.arange(0, block_p)
    y, x_ = pixel // width * stride_h + of_class, pixel % width
    first = (of_class + pad_h) % stride_h
    taps = (kernel_h - first + stride_h - 1) // stride_h  # none where the kernel is smaller than the stride
    bottom, right = (y + pad_h - first) // stride_h, x_ + pad_w
    inside = y < height
    gradient += image * units * high * wide
    line: tl.constexpr = kernel_w * units
    blocks: tl.constexpr = (line + block_k - 1) // block_k
    weight += child.to(tl.int64) * kernel_h * channels * line
    total = tl.zeros((block_c, block_p), dtype=tl.float32)
    for number in range(taps * blocks):
        tap_h = number // blocks
        k = number % blocks * block_k + tl.arange(0, block_k)
        tap_w, unit = k // units, k % units
        row = bottom - tap_h
        column = right[None, :] - tap_w[:, None]
        read = (k < line)[:, None] & (inside & (row >= 0) & (row < high))[None, :]
        read = read & (column >= 0) & (column < wide * stride_w)
        if stride_w > 1:
            read = read & (column % stride_w == 0)
            column = column // stride_w
        place = gradient + (unit * (high * wide))[:, None] + (row * wide)[None, :] + column
        seen = tl.load(place, mask=read, other=0.0)
        of_weight = weight + (first + tap_h * stride_h) * (channels * line) + channel[:, None] * line + k[None, :]
        factors = tl.load(of_weight, mask=(channel < channels)[:, None] & (k < line)[None, :], other=0.0)
        total = _add_product(factors, seen, total, products)
    kept = (channel < channels)[:, None] & inside[None, :]
    place = (channel * (height * width))[:, None] + (y * width + x_)[None, :]
    if gated:
        values = tl.load(x + image * channels * height * width + place, mask=kept, other=0.0).to(tl.float32)
        of_gates = for_gates + (image * pixel_blocks * stride_h + block) * channels + channel
        tl.store(of_gates, tl.sum(total * values, axis=1), mask=channel < channels)
        total *= tl.load(gates + image * channels + channel, mask=channel < channels, other=0.0)[:, None]
    tl.store(for_x + image * channels * height * width + place, total, mask=kept)


@triton.jit  # type: ignore[untyped-decorator]
def _weight_kernel(  # type: ignore[no-untyped-def]
    gradient, x, gates, parts,
    samples, per_split,
    channels: tl.constexpr, units: tl.constexpr,
    height: tl.constexpr, width: tl.constexpr, high: tl.constexpr, wide: tl.constexpr,
    kernel_h: tl.constexpr, kernel_w: tl.constexpr, stride_h: tl.constexpr, stride_w: tl.constexpr,
    pad_h: tl.constexpr, pad_w: tl.constexpr,
    gated: tl.constexpr, biased: tl.constexpr, products: tl.constexpr,
    block_u: tl.constexpr, block_i: tl.constexpr, block_p: tl.constexpr,
):  # fmt: skip
    """The gradient of a part of one line of one child's kernels, (K, splits, kh, out, kw·in + 1), from some samples.

    The bias is one more input, which is always 1.
    """
    child, split = tl.program_id(2), tl.program_id(1)
    line: tl.constexpr = kernel_w * channels
    columns: tl.constexpr = line + biased
    unit_blocks: tl.constexpr = (units + block_u - 1) // block_u
    column_blocks: tl.constexpr = (columns + block_i - 1) // block_i
    unit = (tl.program_id(0) % unit_blocks) * block_u + tl.arange(0, block_u)
    i = (tl.program_id(0) // unit_blocks % column_blocks) * block_i + tl.arange(0, block_i)
    tap_h = tl.program_id(0) // unit_blocks // column_blocks
    tap_w, channel = i // channels, i % channels
    offset = channel * (height * width) + tap_w + tap_h * width
    total = tl.zeros((block_u, block_i), dtype=tl.float32)
    for sample in range(split * per_split, min(samples, (split + 1) * per_split)):
        image = child.to(tl.int64) * samples + sample
        change_of, seen_of = gradient + image * units * high * wide, x + image * channels * height * width
        of_one = tl.zeros((block_u, block_i), dtype=tl.float32)
        for start in range(0, high * wide, block_p):
            pixel = start + tl.arange(0, block_p)
            given = (unit < units)[:, None] & (pixel < high * wide)[None, :]
            change = tl.load(change_of + (unit * (high * wide))[:, None] + pixel[None, :], mask=given, other=0.0)
            row, left = pixel // wide * stride_h - pad_h, pixel % wide * stride_w - pad_w
            column = left[:, None] + tap_w[None, :]
            read = ((pixel < high * wide) & (row + tap_h >= 0) & (row + tap_h < height))[:, None] & (i < line)[None, :]
            read = read & (column >= 0) & (column < width)
            seen = tl.load(seen_of + (row * width + left)[:, None] + offset[None, :], mask=read, other=0.0)
            if biased:
                seen = tl.where((i == line)[None, :], 1.0, seen).to(seen.dtype)
            of_one = _add_product(change, seen, of_one, products)
        if gated:
            of_one *= tl.load(gates + image * channels + channel, mask=i < line, other=1.0)[None, :]
        total += of_one
    parts += ((child * tl.num_programs(1) + split) * kernel_h + tap_h) * units * columns
    tl.store(parts + unit[:, None] * columns + i[None, :], total, mask=(unit < units)[:, None] & (i < columns)[None, :])


@triton.jit  # type: ignore[untyped-decorator]
def _add_product(one, other, total, products: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return total + one @ other, with inputs rounded as ``products`` says."""
    if products == "bf16":
        return tl.dot(one.to(tl.bfloat16), other.to(tl.bfloat16), total)
    return tl.dot(one.to(tl.float32), other.to(tl.float32), total, input_precision=products)


class GatedConvolution(torch.autograd.Function):
    """The convolution above; ``products`` is `tf32`, `ieee` or `bf16`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, gates: Tensor | None, weight: Tensor, bias: Tensor | None, layer: Layer, products: str
    ) -> Tensor:
        """Return (K, n, out, H', W')."""
        x = x.contiguous()
        gates = None if gates is None else gates.expand(*x.shape[:3]).contiguous()
        bias = None if bias is None else bias.contiguous()
        count, samples, _, height, width = x.shape
        units = weight.shape[1]
        high, wide = _out_size(layer, height, width)
        out = x.new_empty(count, samples, units, high, wide, dtype=torch.bfloat16 if products == "bf16" else x.dtype)
        lines = weight.permute(0, 3, 1, 4, 2).contiguous()
        block_p, block_u = _block(high * wide, _FORWARD["pixels"]), _block(units, _FORWARD["units"])
        grid = (triton.cdiv(high * wide, block_p) * triton.cdiv(units, block_u), samples, count)
        _forward_kernel[grid](
            x, _or(gates, x), lines, _or(bias, x), out,
            samples, *_shape(layer, x, units, (high, wide)),
            gates is not None, bias is not None, products, block_p, block_u, _FORWARD["inner"],
            num_warps=_FORWARD["warps"], num_stages=_FORWARD["stages"],
        )  # fmt: skip
        ctx.save_for_backward(x, gates, weight)
        ctx.layer, ctx.products = layer, products
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, gates, weight and bias."""
        x, gates, weight = ctx.saved_tensors
        layer, gradient = ctx.layer, gradients[0].contiguous()
        for_x = for_gates = None
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            for_x, for_gates = _for_input(gradient, x, gates, weight, layer, ctx.products)
        for_weight, for_bias = _for_weight(
            gradient, x, gates, weight, layer, ctx.products, biased=ctx.needs_input_grad[3]
        )
        return for_x, for_gates, for_weight, for_bias, None, None


def _for_input(
    gradient: Tensor, x: Tensor, gates: Tensor | None, weight: Tensor, layer: Layer, products: str
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of x and of its gates."""
    count, samples, channels, height, width = x.shape
    units, stride_h = weight.shape[1], layer.stride[0]
    pixels = triton.cdiv(height, stride_h) * width
    block_p, block_c = _block(pixels, _INPUT["pixels"]), _block(channels, _INPUT["units"])
    blocks = triton.cdiv(pixels, block_p) * stride_h
    for_x = torch.empty_like(x)
    parts = None if gates is None else gates.new_empty(count, samples, blocks, channels)
    lines = weight.permute(0, 3, 2, 4, 1).contiguous()
    _input_kernel[(triton.cdiv(channels, block_c) * blocks, samples, count)](
        gradient, x, _or(gates, x), lines, for_x, _or(parts, x),
        samples, *_shape(layer, x, units, gradient.shape[3:]),
        gates is not None, products, block_p, block_c, _INPUT["inner"],
        num_warps=_INPUT["warps"], num_stages=_INPUT["stages"],
    )  # fmt: skip
    return for_x, None if parts is None else parts.sum(2)


def _for_weight(
    gradient: Tensor, x: Tensor, gates: Tensor | None, weight: Tensor, layer: Layer, products: str, *, biased: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of the weight and of the bias."""
    count, samples, channels = x.shape[:3]
    units, (kernel_h, kernel_w) = weight.shape[1], layer.kernel
    columns = kernel_w * channels + biased
    block_u, block_i = _block(units, _WEIGHT["units"]), _block(columns, _WEIGHT["columns"])
    tiles = triton.cdiv(units, block_u) * triton.cdiv(columns, block_i) * kernel_h
    per_split = triton.cdiv(samples, max(1, min(samples, _SPLITS // (tiles * count))))
    splits = triton.cdiv(samples, per_split)
    parts = weight.new_empty(count, splits, kernel_h, units, columns)
    _weight_kernel[(tiles, splits, count)](
        gradient, x, _or(gates, x), parts,
        samples, per_split, *_shape(layer, x, units, gradient.shape[3:]),
        gates is not None, int(biased), products, block_u, block_i, _WEIGHT["inner"],
        num_warps=_WEIGHT["warps"], num_stages=_WEIGHT["stages"],
    )  # fmt: skip
    found = parts.sum(1)
    for_bias = found[:, 0, :, -1] if biased else None
    lines = found[..., : kernel_w * channels].unflatten(3, (kernel_w, channels))
    return lines.permute(0, 2, 4, 1, 3), for_bias


def convolution(
    layer: Layer, x: Tensor, gates: Tensor | None, weight: Tensor, bias: Tensor | None, products: str
) -> Tensor:
    """Return the convolution above, with gradients."""
    out: Tensor = GatedConvolution.apply(x, gates, weight, bias, layer, products)  # type: ignore[no-untyped-call]
    return out


def _out_size(layer: Layer, height: int, width: int) -> tuple[int, int]:
    pad_h, pad_w = (int(pad) for pad in layer.padding)
    return (
        (height + 2 * pad_h - layer.kernel[0]) // layer.stride[0] + 1,
        (width + 2 * pad_w - layer.kernel[1]) // layer.stride[1] + 1,
    )


def _shape(layer: Layer, x: Tensor, units: int, out: tuple[int, int]) -> tuple[int, ...]:
    """Return what all kernels take of a layer's shape, in their order."""
    return x.shape[2], units, *x.shape[3:], *out, *layer.kernel, *layer.stride, *(int(pad) for pad in layer.padding)


def _block(size: int, most: int) -> int:
    """Return a power of two that a block of ``size`` fits in, from 16, which a product needs, to ``most``."""
    return min(most, max(16, triton.next_power_of_2(size)))


def _or(given: Tensor | None, instead: Tensor) -> Tensor:
    """Return a tensor for a kernel that does not read it where there is none."""
    return instead if given is None else given

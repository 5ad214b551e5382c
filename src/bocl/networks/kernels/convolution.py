"""Convolutions of K children as products whose windows are read where they lie, and never written out.

    x (K, n, in, H, W) or, shared, (1, n, in, H, W); gates β (K, n, in), weight (K, out, in, kh, kw), bias (K, out)

    y = (x ⊙ β) * weight + bias                                                       (K, n, out, H', W')

Forward and backward are sums of one kind: over the lines l of a window, and over what lies side by side in a line, its
pixels j and their channels c,

    y[p, u] = Σ_l Σ_j Σ_c  x[base_p + back_l + j, c] · w[tap_lj, c, u]        where that pixel lies inside the image

No shape is compiled in, so the kernels of one task serve the next. Gates are multiplied in on the way. Every sum has
one fixed order, so results repeat to the bit.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from bocl.networks.graph import Layer
from bocl.networks.kernels import layout
from bocl.networks.kernels.layout import as_values, launch, stored, stored_channels, tensor_or, with_all_channels

_AT_ONCE = tl.constexpr(layout.AT_ONCE)
_NO_BIT = tl.constexpr(31)  # of the taps that lie inside the image, the one that is never set
_MOST_UNITS = 128  # that a program computes
_PROGRAMS = 1024  # that a weight's gradient is divided among
_SHAPE = ["samples", "samples_of_x", "per_part", "pixels_of_x", "groups", "unit_groups", "pixels", "taps", "kernel_w"]


@dataclass(frozen=True)
class _Blocks:
    """What a program holds at once, at most: the fastest of those measured on an H200, at shapes of a small ResNet.

    Four warps multiply by wgmma, whose TF32 operands must be transposed first; two by mma, whose need not. Loading
    ahead (more stages) was slower in nearly all cases.
    """

    pixels: int
    terms: int
    warps: int


_SUMS = {"bf16": _Blocks(128, 64, 4), "tf32": _Blocks(64, 32, 2), "ieee": _Blocks(64, 32, 2)}
_OF_WEIGHT = {"bf16": _Blocks(64, 64, 4), "tf32": _Blocks(32, 64, 2), "ieee": _Blocks(32, 64, 2)}
_MOST_UNITS_OF_WEIGHT = 64


@triton.jit(do_not_specialize=_SHAPE)  # type: ignore[untyped-decorator]
def _sums_kernel(  # type: ignore[no-untyped-def]
    x, gates, weight, bias, y, gated_values, for_gates,
    of_pixels, of_blocks,
    samples, samples_of_x, pixels_of_x, groups, unit_groups, pixels, taps,
    gates_input: tl.constexpr, gates_output: tl.constexpr, biased: tl.constexpr, products: tl.constexpr,
    block_p: tl.constexpr, block_u: tl.constexpr, block_t: tl.constexpr,
):  # fmt: skip
    """Some pixels and units of one sample of one child, from x (…, pixels, in) and weight (K, taps, in, out).

    samples_of_x  from one child's to the next one's: 0 where children share x
    gated_values  where gates multiply the output, what they multiplied in the forward pass, for their own gradient
    of_pixels     (blocks, 3, p): base, bits of the taps inside the image, place
    of_blocks     (blocks, 7): a ``_Window``
    """
    channels, units = groups * _AT_ONCE, unit_groups * _AT_ONCE
    unit_blocks = tl.cdiv(units, block_u)
    tiles = tl.num_programs(0) // samples  # of one sample
    sample, tile, child = tl.program_id(0) // tiles, tl.program_id(0) % tiles, tl.program_id(1)
    image, block = child.to(tl.int64) * samples + sample, tile // unit_blocks
    unit = tile % unit_blocks * block_u + tl.arange(0, block_u)
    is_unit = unit < units
    table = of_pixels + block * (3 * block_p) + tl.arange(0, block_p)
    base, inside, place = tl.load(table), tl.load(table + block_p), tl.load(table + 2 * block_p)
    of_blocks += 7 * block
    lines, across, back, line_back = (
        tl.load(of_blocks),
        tl.load(of_blocks + 1),
        tl.load(of_blocks + 2),
        tl.load(of_blocks + 3),
    )
    first_tap, line_tap, pixel_tap = tl.load(of_blocks + 4), tl.load(of_blocks + 5), tl.load(of_blocks + 6)
    x += (child.to(tl.int64) * samples_of_x + sample) * pixels_of_x * channels
    weight += child.to(tl.int64) * taps * channels * units
    total = tl.zeros((block_p, block_u), dtype=tl.float32)
    for start in range(0, across * channels, block_t):
        term = start + tl.arange(0, block_t)
        is_term = term < across * channels
        pixel = term // channels
        channel = term - pixel * channels
        row = (first_tap + pixel * pixel_tap) * channels + channel
        bit = tl.where(is_term, pixel, _NO_BIT)
        beta = tl.zeros((block_t,), dtype=tl.float32)
        if gates_input:
            beta = tl.load(gates + image * channels + channel, mask=is_term, other=0.0).to(tl.float32)
        for line in range(lines):
            is_inside = (((inside >> (line * across))[:, None] >> bit[None, :]) & 1) != 0
            begin = (base + back + line * line_back) * channels
            values = tl.load(x + begin[:, None] + term[None, :], mask=is_inside, other=0.0)
            of_weight = weight + (row + line * line_tap * channels)[:, None] * units + unit[None, :]
            factors = tl.load(of_weight, mask=is_term[:, None] & is_unit[None, :], other=0.0)
            if gates_input:  # all pixels are of one sample, so the gates may as well be multiplied into the weight
                factors = (factors * beta[:, None]).to(factors.dtype)
            total = _add_product(values, factors, total, products)
    if biased:
        total += tl.load(bias + child * units + unit, mask=is_unit, other=0.0)[None, :]
    is_result = (place >= 0)[:, None] & is_unit[None, :]
    result = (image * pixels + place)[:, None] * units + unit[None, :]
    if gates_output:
        values = tl.load(gated_values + result, mask=is_result, other=0.0).to(tl.float32)
        for_gates += (image * (tiles // unit_blocks) + block) * units
        tl.store(for_gates + unit, tl.sum(total * values, axis=0), mask=is_unit)
        total *= tl.load(gates + image * units + unit, mask=is_unit, other=0.0)[None, :]
    tl.store(y + result, total, mask=is_result)


@triton.jit(do_not_specialize=_SHAPE)  # type: ignore[untyped-decorator]
def _weight_kernel(  # type: ignore[no-untyped-def]
    gradient, x, gates, sums,
    of_pixels, of_blocks,
    samples, samples_of_x, per_part, pixels_of_x, groups, unit_groups, pixels, taps, kernel_w,
    gated: tl.constexpr, products: tl.constexpr,
    block_t: tl.constexpr, block_u: tl.constexpr, block_p: tl.constexpr,
):  # fmt: skip
    """The gradient of some terms (tap, channel) and units of one child's weight, (K, parts, taps·in, out)."""
    child, part, channels, units = tl.program_id(1), tl.program_id(2), groups * _AT_ONCE, unit_groups * _AT_ONCE
    unit_blocks = tl.cdiv(units, block_u)
    unit = tl.program_id(0) % unit_blocks * block_u + tl.arange(0, block_u)
    term = tl.program_id(0) // unit_blocks * block_t + tl.arange(0, block_t)
    is_unit, is_term = unit < units, term < taps * channels
    tap = term // channels
    line, channel = tap // kernel_w, term - tap * channels
    line_back = tl.load(of_blocks + 3)  # as in a ``_Window``; the forward pass has one for all pixels
    offset = line * line_back * channels + term - line * kernel_w * channels
    bit = tl.where(is_term, tap, _NO_BIT)
    total = tl.zeros((block_t, block_u), dtype=tl.float32)
    first, last = part * per_part, min(samples, (part + 1) * per_part)
    for start in range(0, pixels, block_p):
        pixel = start + tl.arange(0, block_p)
        table = of_pixels + 3 * start + tl.arange(0, block_p)  # blocks of 3 · block_p numbers
        base, inside = tl.load(table), tl.load(table + block_p)
        is_inside = ((inside[:, None] >> bit[None, :]) & 1) != 0
        place = (base * channels)[:, None] + offset[None, :]
        is_given, given = (pixel < pixels)[:, None] & is_unit[None, :], pixel[:, None] * units + unit[None, :]
        for sample in range(first, last):
            image = child.to(tl.int64) * samples + sample
            of_x = x + (child.to(tl.int64) * samples_of_x + sample) * pixels_of_x * channels
            values = tl.load(of_x + place, mask=is_inside, other=0.0)
            change = tl.load(gradient + image * pixels * units + given, mask=is_given, other=0.0)
            if gated:
                beta = tl.load(gates + image * channels + channel, mask=is_term, other=0.0).to(tl.float32)
                of_one = tl.zeros((block_t, block_u), dtype=tl.float32)
                total += _add_product(tl.trans(values), change, of_one, products) * beta[:, None]
            else:
                total = _add_product(tl.trans(values), change, total, products)
    sums += (child * tl.num_programs(2) + part).to(tl.int64) * taps * channels * units
    tl.store(sums + term[:, None] * units + unit[None, :], total, mask=is_term[:, None] & is_unit[None, :])


@triton.jit  # type: ignore[untyped-decorator]
def _add_product(one, other, total, products: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return total + one @ other, with inputs rounded as ``products`` says."""
    if products == "bf16":
        total = tl.dot(one.to(tl.bfloat16), other.to(tl.bfloat16), total)
    else:
        total = tl.dot(one.to(tl.float32), other.to(tl.float32), total, input_precision=products)
    return total


@dataclass(frozen=True)
class Shape:
    """A convolution's shape, apart from its channels."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    size: tuple[int, int]  # of the images

    @property
    def out(self) -> tuple[int, int]:
        """Return the size of what comes out."""
        high, wide = (
            (size + 2 * pad - kernel) // stride + 1
            for size, pad, kernel, stride in zip(self.size, self.padding, self.kernel, self.stride, strict=True)
        )
        return high, wide


@dataclass(frozen=True)
class _Window:
    """What the pixels of a block are sums over: lines of pixels that lie side by side.

    back      of the first line; ``line_back`` of each further one
    tap       of the kernel at the first pixel; ``line_tap`` and ``pixel_tap`` are added for further ones
    """

    lines: int
    wide: int
    back: int
    line_back: int
    tap: int
    line_tap: int
    pixel_tap: int


@dataclass(frozen=True)
class _Part:
    """Pixels that are sums over the same taps.

    base    (pixels,)                 what ``back`` is added to
    row     (pixels, lines),          of the pixels that are read, which may lie outside the image
    column  (pixels, pixels of a line)
    place   (pixels,)                 where the sum is written
    """

    window: _Window
    base: Any
    row: Any
    column: Any
    place: Any


def _forward(shape: Shape) -> list[_Part]:
    """Return how the convolution itself reads its input."""
    (high, wide), width = shape.out, shape.size[1]
    y, x = np.divmod(np.arange(high * wide), wide)
    top, left = y * shape.stride[0] - shape.padding[0], x * shape.stride[1] - shape.padding[1]
    row, column = top[:, None] + np.arange(shape.kernel[0]), left[:, None] + np.arange(shape.kernel[1])
    window = _Window(*shape.kernel, 0, width, 0, shape.kernel[1], 1)
    return [_Part(window, top * width + left, row, column, np.arange(high * wide))]


def _backward(shape: Shape) -> list[_Part]:
    """Return how the gradient of its input reads the gradient.

    Pixels whose places differ by multiples of the stride are read by the same taps of the kernel, and are one part.
    """
    (height, width), (_, wide) = shape.size, shape.out
    (step_h, step_w), (kernel_h, kernel_w) = shape.stride, shape.kernel
    parts = []
    for first_y in range(min(step_h, height)):
        for first_x in range(min(step_w, width)):
            y, x = np.meshgrid(np.arange(first_y, height, step_h), np.arange(first_x, width, step_w), indexing="ij")
            from_y, from_x = y.ravel() + shape.padding[0], x.ravel() + shape.padding[1]
            tap_h, tap_w = from_y[0] % step_h, from_x[0] % step_w  # the first that reads these pixels
            lines, across = len(range(tap_h, kernel_h, step_h)), len(range(tap_w, kernel_w, step_w))
            row = from_y[:, None] // step_h - np.arange(lines)
            column = from_x[:, None] // step_w - np.arange(across)[::-1]  # left to right, so the last tap first
            tap = tap_h * kernel_w + tap_w + (across - 1) * step_w
            window = _Window(lines, across, 1 - across, -wide, tap, step_h * kernel_w, -step_w)
            base = from_y // step_h * wide + from_x // step_w
            parts.append(_Part(window, base, row, column, y.ravel() * width + x.ravel()))
    return parts


@dataclass(frozen=True)
class _Places:
    """Tables of where sums are read, as the kernels take them; ``block`` is how many pixels a block has."""

    pixels: Tensor
    blocks: Tensor
    block: int


# Captured steps read tables by address, so none is ever given up. There is one for every shape of a layer, made when a
# step is run before it is captured: within a capture nothing can be copied from the host.
@cache
def _places(shape: Shape, most: int, device: torch.device, *, forward: bool) -> _Places:
    """Return the tables of a layer; a block has at most so many pixels."""
    parts, (height, width) = (_forward(shape), shape.size) if forward else (_backward(shape), shape.out)
    block = _block(max(len(part.base) for part in parts), most)
    pixels, blocks = [], []
    for part in parts:
        is_in_row, is_in_column = (part.row >= 0) & (part.row < height), (part.column >= 0) & (part.column < width)
        inside = (is_in_row[:, :, None] & is_in_column[:, None]).reshape(len(part.base), -1).astype(np.int64)
        own = np.stack([part.base, (inside << np.arange(inside.shape[1])).sum(1), part.place])
        own = np.pad(own, ((0, 0), (0, -own.shape[1] % block)))
        own[2, len(part.place) :] = -1
        pixels.append(own.reshape(3, -1, block).swapaxes(0, 1))
        blocks += [astuple(part.window)] * len(pixels[-1])
    tables = (np.concatenate(pixels), np.array(blocks))
    of_pixels, of_blocks = (torch.from_numpy(table.astype(np.int32, order="C")).to(device) for table in tables)
    return _Places(of_pixels, of_blocks, block)


class GatedConvolution(torch.autograd.Function):
    """The convolution above; ``products`` is `tf32`, `bf16` or, for float32, `ieee`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, gates: Tensor | None, weight: Tensor, bias: Tensor | None, layer: Layer, products: str
    ) -> Tensor:
        """Return (K, n, out, H', W')."""
        shape, x = _shape_of(layer, x), stored(x)
        if len(x) < len(weight) and (gates is not None or ctx.needs_input_grad[0]):
            raise ValueError("what children share has no gates and no gradient")
        samples, units = x.shape[1], weight.shape[1]
        gates = None if gates is None else with_all_channels(gates.expand(-1, samples, -1))
        wide_bias = None if bias is None else with_all_channels(bias)
        dtype = torch.bfloat16 if products == "bf16" else weight.dtype
        y = weight.new_empty(len(weight), samples, *shape.out, stored_channels(units), dtype=dtype)
        places = _places(shape, _SUMS[products].pixels, x.device, forward=True)
        _sum_up(x, _lines(weight.permute(0, 3, 4, 2, 1), dtype), y, places, products, gates=gates, bias=wide_bias)
        ctx.save_for_backward(x, gates, weight)
        ctx.shape, ctx.products = shape, products
        return as_values(y, units)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, gates, weight and bias; of gates that all samples share, one for each."""
        x, gates, weight = ctx.saved_tensors
        gradient, (units, channels) = stored(gradients[0]), weight.shape[1:3]
        for_x = for_gates = for_weight = for_bias = None
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            wide_x, wide_gates = _for_input(gradient, x, gates, weight, ctx.shape, ctx.products)
            for_x, for_gates = as_values(wide_x, channels), None if gates is None else wide_gates[..., :channels]
        if ctx.needs_input_grad[2]:
            for_weight = _for_weight(gradient, x, gates, weight, ctx.shape, ctx.products)
        if ctx.needs_input_grad[3]:
            for_bias = gradient[..., :units].sum((1, 2, 3), dtype=weight.dtype)
        return for_x, for_gates, for_weight, for_bias, None, None


def _for_input(
    gradient: Tensor, x: Tensor, gates: Tensor | None, weight: Tensor, shape: Shape, products: str
) -> tuple[Tensor, Tensor]:
    """Return the gradients of x and of its gates, with all channels that are stored."""
    for_x, places = torch.empty_like(x), _places(shape, _SUMS[products].pixels, x.device, forward=False)
    lines = _lines(weight.permute(0, 3, 4, 1, 2), gradient.dtype)
    if gates is None:
        _sum_up(gradient, lines, for_x, places, products)
        return for_x, for_x
    of_blocks = gates.new_empty(*gates.shape[:2], len(places.blocks), gates.shape[2], dtype=torch.float32)
    _sum_up(gradient, lines, for_x, places, products, gated=(gates, x, of_blocks))
    return for_x, of_blocks.sum(2).to(gates.dtype)


def _sum_up(
    x: Tensor,
    weight: Tensor,
    y: Tensor,
    places: _Places,
    products: str,
    *,
    gates: Tensor | None = None,
    bias: Tensor | None = None,
    gated: tuple[Tensor, Tensor, Tensor] | None = None,
) -> None:
    """Write sums over windows of x (K or 1, n, H, W, in), weighted by (K, kh, kw, in, out), into y (K, n, H', W', out).

    gates  of x
    gated  gates of y, what they multiplied in the forward pass, and where their gradient goes
    """
    count, samples, high, wide, units = y.shape
    _, kernel_h, kernel_w, channels, _ = weight.shape
    block_u, block_t = _block(units, _MOST_UNITS), _block(kernel_w * channels, _SUMS[products].terms)
    tiles = len(places.blocks) * -(-units // block_u)
    some_gates, values, for_gates = (gates, None, None) if gated is None else gated
    launch(
        _sums_kernel, (tiles * samples, count),
        x, tensor_or(some_gates, x), weight, tensor_or(bias, x), y, tensor_or(values, x), tensor_or(for_gates, x),
        places.pixels, places.blocks,
        samples, 0 if len(x) < count else samples, x.shape[2] * x.shape[3],
        channels // layout.AT_ONCE, units // layout.AT_ONCE, high * wide, kernel_h * kernel_w,
        gates is not None, gated is not None, bias is not None, products, places.block, block_u, block_t,
        num_warps=_SUMS[products].warps, num_stages=1,
    )  # fmt: skip


def _for_weight(
    gradient: Tensor, x: Tensor, gates: Tensor | None, weight: Tensor, shape: Shape, products: str
) -> Tensor:
    """Return the gradient of the weight."""
    count, samples, high, wide, units = gradient.shape
    channels, taps, most = x.shape[4], shape.kernel[0] * shape.kernel[1], _OF_WEIGHT[products]
    places = _places(shape, most.pixels, x.device, forward=True)
    block_t, block_u = _block(taps * channels, most.terms), _block(units, _MOST_UNITS_OF_WEIGHT)
    tiles = -(-taps * channels // block_t) * -(-units // block_u)
    per_part = -(-samples // max(1, min(samples, _PROGRAMS // (tiles * count))))
    parts = -(-samples // per_part)
    sums = weight.new_empty(count, parts, taps * channels, units, dtype=torch.float32)
    launch(
        _weight_kernel, (tiles, count, parts),
        gradient, x, tensor_or(gates, x), sums,
        places.pixels, places.blocks,
        samples, 0 if len(x) < count else samples, per_part, x.shape[2] * x.shape[3],
        channels // layout.AT_ONCE, units // layout.AT_ONCE, high * wide, taps, shape.kernel[1],
        gates is not None, products, block_t, block_u, places.block,
        num_warps=most.warps, num_stages=1,
    )  # fmt: skip
    lines = sums.sum(1).view(count, *shape.kernel, channels, units)
    return lines.permute(0, 4, 3, 1, 2)[:, : weight.shape[1], : weight.shape[2]].to(weight.dtype)


def convolution(
    layer: Layer, x: Tensor, gates: Tensor | None, weight: Tensor, bias: Tensor | None, products: str
) -> Tensor:
    """Return the convolution above, with gradients."""
    y: Tensor = GatedConvolution.apply(x, gates, weight, bias, layer, products)  # type: ignore[no-untyped-call]
    return y


def _shape_of(layer: Layer, x: Tensor) -> Shape:
    (kernel_h, kernel_w), (stride_h, stride_w) = layer.kernel, layer.stride
    pad_h, pad_w = (int(size) for size in layer.padding)
    return Shape((kernel_h, kernel_w), (stride_h, stride_w), (pad_h, pad_w), (x.shape[3], x.shape[4]))


def _lines(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a weight (K, kh, kw, in, out) with all channels that are stored."""
    *lead, channels, units = weight.shape
    if weight.shape[3:] == (stored_channels(channels), stored_channels(units)):
        return weight.to(dtype).contiguous()
    lines = weight.new_zeros(*lead, stored_channels(channels), stored_channels(units), dtype=dtype)
    lines[..., :channels, :units] = weight
    return lines


def _block(size: int, most: int) -> int:
    """Return a power of two that a block of ``size`` fits in, from 16, which a product needs, to ``most``."""
    return max(16, min(most, 1 << (size - 1).bit_length()))

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

from bocl.networks.graph import Layer
from bocl.networks.kernels.layout import AT_ONCE, empty_values, stored, stored_channels, tensor_or, with_all_channels

MOST_TAPS = 31  # of a kernel: there is a bit for each that says whether it lies inside the image
_UNITS = 128  # that a program computes, at most
_PROGRAMS = 1024  # that a weight's gradient is divided among


@dataclass(frozen=True)
class _Blocks:
    """What a program holds at once, at most: the fastest of those measured on an H200, at the shapes of a small ResNet.

    Two warps multiply by other instructions than four, which in TF32 need no transposed copy. Loading ahead (more
    stages) was slower in nearly all cases.
    """

    pixels: int
    terms: int
    warps: int


_SUMS = {"bf16": _Blocks(128, 64, 4), "tf32": _Blocks(64, 32, 2), "ieee": _Blocks(64, 32, 2)}
_OF_WEIGHT = {"bf16": _Blocks(64, 64, 4), "tf32": _Blocks(32, 64, 2), "ieee": _Blocks(32, 64, 2)}
_UNITS_OF_WEIGHT = 64
_SHAPE = ["samples", "sources", "per_split", "source_pixels", "in_4", "out_4", "pixels", "taps", "kernel_w"]


@triton.jit(do_not_specialize=_SHAPE)  # type: ignore[untyped-decorator]
def _sums_kernel(  # type: ignore[no-untyped-def]
    source, gates, weight, bias, target, x, of_gates,
    of_pixels, of_blocks,
    samples, sources, source_pixels, in_4, out_4, pixels, taps,
    gated: tl.constexpr, gates_output: tl.constexpr, biased: tl.constexpr, products: tl.constexpr,
    block_p: tl.constexpr, block_u: tl.constexpr, block_i: tl.constexpr,
):  # fmt: skip
    """Some pixels and units of one sample of one child, from source (…, pixels, in) and weight (K, taps, in, out).

    of_pixels  (blocks, 3, p): base, bits of the taps inside the image, place
    of_blocks  (blocks, 7): lines and pixels of a line; back of the first line and of each further one; tap of the first
               pixel, of each further line and of each further pixel
    """
    child = tl.program_id(2)
    image = child.to(tl.int64) * samples + tl.program_id(1)
    channels, units = in_4 * 4, out_4 * 4
    unit_blocks = tl.cdiv(units, block_u)
    block = tl.program_id(0) // unit_blocks
    unit = (tl.program_id(0) % unit_blocks) * block_u + tl.arange(0, block_u)
    at = block * (3 * block_p) + tl.arange(0, block_p)
    base, inside = tl.load(of_pixels + at), tl.load(of_pixels + block_p + at)
    place = tl.load(of_pixels + 2 * block_p + at)
    of_blocks += 7 * block
    lines, wide, back, line_back = (
        tl.load(of_blocks),
        tl.load(of_blocks + 1),
        tl.load(of_blocks + 2),
        tl.load(of_blocks + 3),
    )
    first, tap_of_line, tap_of_pixel = tl.load(of_blocks + 4), tl.load(of_blocks + 5), tl.load(of_blocks + 6)
    source += (child.to(tl.int64) * sources + tl.program_id(1)) * source_pixels * channels
    weight += child.to(tl.int64) * taps * channels * units
    total = tl.zeros((block_p, block_u), dtype=tl.float32)
    for start in range(0, wide * channels, block_i):
        term = start + tl.arange(0, block_i)
        known = term < wide * channels
        pixel = term // channels
        channel = term - pixel * channels
        row = (first + pixel * tap_of_pixel) * channels + channel
        bit = tl.where(known, pixel, 31)
        beta = tl.zeros((block_i,), dtype=tl.float32)
        if gated:
            beta = tl.load(gates + image * channels + channel, mask=known, other=0.0).to(tl.float32)
        for line in range(lines):
            read = (((inside >> (line * wide))[:, None] >> bit[None, :]) & 1) != 0
            begin = (base + back + line * line_back) * channels
            seen = tl.load(source + begin[:, None] + term[None, :], mask=read, other=0.0)
            of_weight = weight + (row + line * tap_of_line * channels)[:, None] * units + unit[None, :]
            factors = tl.load(of_weight, mask=known[:, None] & (unit < units)[None, :], other=0.0)
            if gated:  # all pixels are of one sample, so the gates may as well be multiplied into the weight
                factors = (factors * beta[:, None]).to(factors.dtype)
            total = _add_product(seen, factors, total, products)
    if biased:
        total += tl.load(bias + child * units + unit, mask=unit < units, other=0.0)[None, :]
    kept = (place >= 0)[:, None] & (unit < units)[None, :]
    where = (image * pixels + place)[:, None] * units + unit[None, :]
    if gates_output:
        values = tl.load(x + where, mask=kept, other=0.0).to(tl.float32)
        of_gates += (image * (tl.num_programs(0) // unit_blocks) + block) * units
        tl.store(of_gates + unit, tl.sum(total * values, axis=0), mask=unit < units)
        total *= tl.load(gates + image * units + unit, mask=unit < units, other=0.0)[None, :]
    tl.store(target + where, total, mask=kept)


@triton.jit(do_not_specialize=_SHAPE)  # type: ignore[untyped-decorator]
def _weight_kernel(  # type: ignore[no-untyped-def]
    gradient, source, gates, parts,
    of_pixels, of_blocks,
    samples, sources, per_split, source_pixels, in_4, out_4, pixels, taps, kernel_w,
    gated: tl.constexpr, products: tl.constexpr,
    block_i: tl.constexpr, block_u: tl.constexpr, block_p: tl.constexpr,
):  # fmt: skip
    """The gradient of some terms (tap, channel) and units of one child's weight, (K, splits, taps·in, out)."""
    child, split = tl.program_id(2), tl.program_id(1)
    channels, units = in_4 * 4, out_4 * 4
    unit_blocks = tl.cdiv(units, block_u)
    unit = (tl.program_id(0) % unit_blocks) * block_u + tl.arange(0, block_u)
    term = (tl.program_id(0) // unit_blocks) * block_i + tl.arange(0, block_i)
    known = term < taps * channels
    tap = term // channels
    line, channel = tap // kernel_w, term - tap * channels
    offset = line * tl.load(of_blocks + 3) * channels + term - line * kernel_w * channels
    bit = tl.where(known, tap, 31)  # which is never set
    total = tl.zeros((block_i, block_u), dtype=tl.float32)
    first, last = split * per_split, min(samples, (split + 1) * per_split)
    for start in range(0, pixels, block_p):
        at = start + tl.arange(0, block_p)
        table = of_pixels + 2 * start + at
        base, inside = tl.load(table), tl.load(table + block_p)
        read = ((inside[:, None] >> bit[None, :]) & 1) != 0
        where = (base * channels)[:, None] + offset[None, :]
        given, there = (at < pixels)[:, None] & (unit < units)[None, :], at[:, None] * units + unit[None, :]
        for sample in range(first, last):
            image = child.to(tl.int64) * samples + sample
            of_source = source + (child.to(tl.int64) * sources + sample) * source_pixels * channels
            seen = tl.load(of_source + where, mask=read, other=0.0)
            change = tl.load(gradient + image * pixels * units + there, mask=given, other=0.0)
            if gated:
                beta = tl.load(gates + image * channels + channel, mask=known, other=0.0).to(tl.float32)
                of_one = _add_product(tl.trans(seen), change, tl.zeros((block_i, block_u), dtype=tl.float32), products)
                total += of_one * beta[:, None]
            else:
                total = _add_product(tl.trans(seen), change, total, products)
    parts += (child * tl.num_programs(1) + split).to(tl.int64) * taps * channels * units
    tl.store(parts + term[:, None] * units + unit[None, :], total, mask=known[:, None] & (unit < units)[None, :])


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


# Captured steps read tables by address, so none is ever given up. There is one for every shape of a layer.
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
    """The convolution above; ``products`` is `tf32`, `ieee` or `bf16`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, gates: Tensor | None, weight: Tensor, bias: Tensor | None, layer: Layer, products: str
    ) -> Tensor:
        """Return (K, n, out, H', W')."""
        x, shape = stored(x), _shape(layer, x)
        gates = None if gates is None else with_all_channels(gates.expand(*gates.shape[:1], x.shape[1], -1))
        out = weight.new_empty(0, dtype=torch.bfloat16 if products == "bf16" else weight.dtype)
        out = empty_values(out.expand(len(weight), x.shape[1], 0), weight.shape[1], shape.out)
        lines = _lines(weight.permute(0, 3, 4, 2, 1), out.dtype)
        places = _places(shape, _SUMS[products].pixels, x.device, forward=True)
        wide = None if bias is None else with_all_channels(bias)
        _sums(x, lines, stored(out), places, products, gates=gates, bias=wide)
        ctx.save_for_backward(x, gates, weight)
        ctx.shape, ctx.products = shape, products
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, gates, weight and bias."""
        x, gates, weight = ctx.saved_tensors
        gradient, channels = stored(gradients[0]), weight.shape[2]
        for_x = for_gates = for_bias = None
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            for_x, for_gates = _for_input(gradient, x, gates, weight, ctx.shape, ctx.products)
            for_x = for_x[..., :channels].permute(0, 1, 4, 2, 3)
            for_gates = None if for_gates is None else for_gates[..., :channels]
        for_weight = _for_weight(gradient, x, gates, weight, ctx.shape, ctx.products)
        if ctx.needs_input_grad[3]:
            for_bias = gradient[..., : weight.shape[1]].sum((1, 2, 3), dtype=weight.dtype)
        return for_x, for_gates, for_weight, for_bias, None, None


def _for_input(
    gradient: Tensor, x: Tensor, gates: Tensor | None, weight: Tensor, shape: Shape, products: str
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of x and of its gates, with all channels that are stored."""
    for_x = torch.empty_like(x)
    places = _places(shape, _SUMS[products].pixels, x.device, forward=False)
    of_gates = None if gates is None else gates.new_empty(*gates.shape[:2], len(places.blocks), gates.shape[2])
    lines = _lines(weight.permute(0, 3, 4, 1, 2), gradient.dtype)
    _sums(gradient, lines, for_x, places, products, output_gates=gates, x=x, of_gates=of_gates)
    return for_x, None if of_gates is None else of_gates.sum(2)


def _sums(
    source: Tensor,
    weight: Tensor,
    target: Tensor,
    places: _Places,
    products: str,
    *,
    gates: Tensor | None = None,
    bias: Tensor | None = None,
    output_gates: Tensor | None = None,
    x: Tensor | None = None,
    of_gates: Tensor | None = None,
) -> None:
    """Write sums over windows of source (K or 1, n, H, W, in) into target (K, n, H', W', out)."""
    count, samples, *size, units = target.shape
    channels = source.shape[4]
    taps, across = weight.shape[1] * weight.shape[2], weight.shape[2]
    block_u, block_i = _block(units, _UNITS), _block(across * channels, _SUMS[products].terms)
    some_gates = gates if output_gates is None else output_gates
    _sums_kernel[(len(places.blocks) * triton.cdiv(units, block_u), samples, count)](
        source, tensor_or(some_gates, source), weight, tensor_or(bias, source),
        target, tensor_or(x, source), tensor_or(of_gates, source),
        places.pixels, places.blocks,
        samples, 0 if len(source) < count else samples, source.shape[2] * source.shape[3],
        channels // AT_ONCE, units // AT_ONCE, size[0] * size[1], taps,
        gates is not None, output_gates is not None, bias is not None, products,
        places.block, block_u, block_i, num_warps=_SUMS[products].warps, num_stages=1,
    )  # fmt: skip


def _for_weight(
    gradient: Tensor, x: Tensor, gates: Tensor | None, weight: Tensor, shape: Shape, products: str
) -> Tensor:
    """Return the gradient of the weight."""
    count, samples, *size, units = gradient.shape
    channels, taps, most = x.shape[4], shape.kernel[0] * shape.kernel[1], _OF_WEIGHT[products]
    places = _places(shape, most.pixels, x.device, forward=True)
    block_i, block_u = _block(taps * channels, most.terms), _block(units, _UNITS_OF_WEIGHT)
    tiles = triton.cdiv(taps * channels, block_i) * triton.cdiv(units, block_u)
    per_split = triton.cdiv(samples, max(1, min(samples, _PROGRAMS // (tiles * count))))
    splits = triton.cdiv(samples, per_split)
    parts = weight.new_empty(count, splits, taps * channels, units, dtype=torch.float32)
    _weight_kernel[(tiles, splits, count)](
        gradient, x, tensor_or(gates, x), parts,
        places.pixels, places.blocks,
        samples, 0 if len(x) < count else samples, per_split, x.shape[2] * x.shape[3],
        channels // AT_ONCE, units // AT_ONCE, size[0] * size[1], taps, shape.kernel[1],
        gates is not None, products,
        block_i, block_u, places.block, num_warps=most.warps, num_stages=1,
    )  # fmt: skip
    lines = parts.sum(1).view(count, *shape.kernel, channels, units)
    return lines.permute(0, 4, 3, 1, 2)[:, : weight.shape[1], : weight.shape[2]].to(weight.dtype)


def convolution(
    layer: Layer, x: Tensor, gates: Tensor | None, weight: Tensor, bias: Tensor | None, products: str
) -> Tensor:
    """Return the convolution above, with gradients."""
    out: Tensor = GatedConvolution.apply(x, gates, weight, bias, layer, products)  # type: ignore[no-untyped-call]
    return out


def _shape(layer: Layer, x: Tensor) -> Shape:
    padding = (int(layer.padding[0]), int(layer.padding[1]))
    return Shape(
        (layer.kernel[0], layer.kernel[1]), (layer.stride[0], layer.stride[1]), padding, (x.shape[3], x.shape[4])
    )


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

"""Batch norm of K children, with the addition and the ReLU that follow it, and the mean of every channel.

    x, other, y (K, n, C, …), mean, var, weight, bias (K, C), means (K, n, C)

    y = relu((x - mean) / √(var + ε) · weight + bias + other)          means = the mean of y over space

A value is read twice and written once: to find its statistics, and to be normalised. Attention reads the means.
Every sum has one fixed order, so results repeat to the bit.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 2048  # values that a program holds at once
_MOST_PIXELS = 1024
_PROGRAMS = 2048  # that the sums of all channels are divided among


@triton.jit  # type: ignore[untyped-decorator]
def _sums_kernel(  # type: ignore[no-untyped-def]
    x, parts,
    samples, per_split, channels, pixels,
    block_n: tl.constexpr, block_p: tl.constexpr,
):  # fmt: skip
    """Sums over some samples of one channel of x - s and (x - s)², s being its first value, so that little cancels."""
    split = tl.program_id(1)
    child, channel = tl.program_id(0) // channels, tl.program_id(0) % channels
    x += (child.to(tl.int64) * samples * channels + channel) * pixels
    shift = tl.load(x).to(tl.float32)
    once, squared = tl.zeros((block_n, block_p), dtype=tl.float32), tl.zeros((block_n, block_p), dtype=tl.float32)
    last = min(samples, (split + 1) * per_split)
    for begin in range(split * per_split, last, block_n):
        sample = begin + tl.arange(0, block_n)
        for start in range(0, pixels, block_p):
            pixel = start + tl.arange(0, block_p)
            inside = (sample < last)[:, None] & (pixel < pixels)[None, :]
            place = (sample.to(tl.int64) * channels * pixels)[:, None] + pixel[None, :]
            value = tl.where(inside, tl.load(x + place, mask=inside, other=0.0).to(tl.float32) - shift, 0.0)
            once += value
            squared += value * value
    parts += (tl.program_id(0) * tl.num_programs(1) + split) * 2
    tl.store(parts, tl.sum(once))
    tl.store(parts + 1, tl.sum(squared))


@triton.jit  # type: ignore[untyped-decorator]
def _statistics_kernel(  # type: ignore[no-untyped-def]
    x, parts, statistics, running_mean, running_var,
    samples, channels, pixels, splits, momentum, eps,
    block: tl.constexpr,
):  # fmt: skip
    """Mean and 1 / √(var + ε) of one channel, and its running statistics."""
    at = tl.program_id(0)
    part = tl.arange(0, block)
    once = tl.sum(tl.load(parts + (at * splits + part) * 2, mask=part < splits, other=0.0))
    squared = tl.sum(tl.load(parts + (at * splits + part) * 2 + 1, mask=part < splits, other=0.0))
    shift = tl.load(x + ((at // channels).to(tl.int64) * samples * channels + at % channels) * pixels).to(tl.float32)
    count = (samples * pixels).to(tl.float32)
    offset = once / count
    mean, var = shift + offset, tl.maximum(squared / count - offset * offset, 0.0)
    tl.store(statistics + at * 2, mean)
    tl.store(statistics + at * 2 + 1, 1.0 / tl.sqrt_rn(var + eps))
    unbiased = var * (count / tl.maximum(count - 1.0, 1.0))
    before = tl.load(running_mean + at)
    tl.store(running_mean + at, before + momentum * (mean - before))
    before = tl.load(running_var + at)
    tl.store(running_var + at, before + momentum * (unbiased - before))


@triton.jit  # type: ignore[untyped-decorator]
def _apply_kernel(  # type: ignore[no-untyped-def]
    x, other, statistics, weight, bias, y, means,
    planes, samples, channels, pixels,
    adds: tl.constexpr, scales: tl.constexpr, shifts: tl.constexpr, rectifies: tl.constexpr,
    block_n: tl.constexpr, block_p: tl.constexpr,
):  # fmt: skip
    """Some planes: all pixels of one channel of one sample of one child each."""
    plane = tl.program_id(0).to(tl.int64) * block_n + tl.arange(0, block_n)
    live = plane < planes
    at = plane // (samples * channels) * channels + plane % channels
    mean = tl.load(statistics + at * 2, mask=live, other=0.0)
    factor = tl.load(statistics + at * 2 + 1, mask=live, other=0.0)
    if scales:
        factor *= tl.load(weight + at, mask=live, other=0.0)
    added = tl.zeros((block_n,), dtype=tl.float32)
    if shifts:
        added = tl.load(bias + at, mask=live, other=0.0)
    total = tl.zeros((block_n, block_p), dtype=tl.float32)
    for start in range(0, pixels, block_p):
        pixel = start + tl.arange(0, block_p)
        inside = live[:, None] & (pixel < pixels)[None, :]
        place = (plane * pixels)[:, None] + pixel[None, :]
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        value = (value - mean[:, None]) * factor[:, None] + added[:, None]
        if adds:
            value += tl.load(other + place, mask=inside, other=0.0).to(tl.float32)
        if rectifies:
            value = tl.where(value < 0, 0.0, value)  # NaN stays NaN
        tl.store(y + place, value, mask=inside)
        total += tl.where(inside, value, 0.0)
    tl.store(means + plane, tl.sum(total, axis=1) / pixels, mask=live)


@triton.jit  # type: ignore[untyped-decorator]
def _change(  # type: ignore[no-untyped-def]
    gradient, for_means, y, place, plane, inside, live, pixels,
    averages: tl.constexpr, rectifies: tl.constexpr, given: tl.constexpr,
):  # fmt: skip
    """The gradient of what the ReLU was given."""
    change = tl.zeros(inside.shape, dtype=tl.float32)
    if given:
        change += tl.load(gradient + place, mask=inside, other=0.0).to(tl.float32)
    if averages:
        change += (tl.load(for_means + plane, mask=live, other=0.0) / pixels)[:, None]
    if rectifies:
        change = tl.where(tl.load(y + place, mask=inside, other=0.0) > 0, change, 0.0)
    return change


@triton.jit  # type: ignore[untyped-decorator]
def _gradient_sums_kernel(  # type: ignore[no-untyped-def]
    gradient, for_means, x, y, statistics, parts,
    samples, per_split, channels, pixels,
    averages: tl.constexpr, rectifies: tl.constexpr, given: tl.constexpr,
    block_n: tl.constexpr, block_p: tl.constexpr,
):  # fmt: skip
    """Sums over some samples of one channel of g and g · x̂, the gradients of bias and weight."""
    split = tl.program_id(1)
    at = tl.program_id(0)
    mean, factor = tl.load(statistics + at * 2), tl.load(statistics + at * 2 + 1)
    first = (at // channels).to(tl.int64) * samples * channels + at % channels
    once, scaled = tl.zeros((block_n, block_p), dtype=tl.float32), tl.zeros((block_n, block_p), dtype=tl.float32)
    last = min(samples, (split + 1) * per_split)
    for begin in range(split * per_split, last, block_n):
        sample = begin + tl.arange(0, block_n)
        live = sample < last
        plane = first + sample.to(tl.int64) * channels
        for start in range(0, pixels, block_p):
            pixel = start + tl.arange(0, block_p)
            inside = live[:, None] & (pixel < pixels)[None, :]
            place = (plane * pixels)[:, None] + pixel[None, :]
            change = _change(gradient, for_means, y, place, plane, inside, live, pixels, averages, rectifies, given)
            change = tl.where(inside, change, 0.0)
            value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
            once += change
            scaled += change * ((value - mean) * factor)
    parts += (at * tl.num_programs(1) + split) * 2
    tl.store(parts, tl.sum(once))
    tl.store(parts + 1, tl.sum(scaled))


@triton.jit  # type: ignore[untyped-decorator]
def _gradient_kernel(  # type: ignore[no-untyped-def]
    gradient, for_means, x, y, statistics, weight, sums, for_x, for_other,
    planes, samples, channels, pixels,
    adds: tl.constexpr, scales: tl.constexpr, averages: tl.constexpr, rectifies: tl.constexpr, given: tl.constexpr,
    block_n: tl.constexpr, block_p: tl.constexpr,
):  # fmt: skip
    """dx = weight / √(var + ε) · (g - mean(g) - x̂ · mean(g · x̂)) of some planes, and g itself for what was added."""
    plane = tl.program_id(0).to(tl.int64) * block_n + tl.arange(0, block_n)
    live = plane < planes
    at = plane // (samples * channels) * channels + plane % channels
    mean = tl.load(statistics + at * 2, mask=live, other=0.0)[:, None]
    factor = tl.load(statistics + at * 2 + 1, mask=live, other=0.0)[:, None]
    scale = factor
    if scales:
        scale *= tl.load(weight + at, mask=live, other=0.0)[:, None]
    count = (samples * pixels).to(tl.float32)
    once = tl.load(sums + at * 2, mask=live, other=0.0)[:, None] / count
    scaled = tl.load(sums + at * 2 + 1, mask=live, other=0.0)[:, None] / count
    for start in range(0, pixels, block_p):
        pixel = start + tl.arange(0, block_p)
        inside = live[:, None] & (pixel < pixels)[None, :]
        place = (plane * pixels)[:, None] + pixel[None, :]
        change = _change(gradient, for_means, y, place, plane, inside, live, pixels, averages, rectifies, given)
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        tl.store(for_x + place, scale * (change - once - (value - mean) * factor * scaled), mask=inside)
        if adds:
            tl.store(for_other + place, change, mask=inside)


class BatchNorm(torch.autograd.Function):
    """The norm above by the batch's own statistics, which update the running ones."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        other: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
        running: tuple[Tensor, Tensor],
        momentum: float,
        eps: float,
        rectifies: bool,
    ) -> tuple[Tensor, Tensor]:
        """Return y and its means."""
        x = x.contiguous()
        count, samples, channels = x.shape[:3]
        pixels = x[0, 0, 0].numel()
        splits, per_split, blocks = _splits(count * channels, samples, pixels)
        parts = x.new_empty(count * channels, splits, 2, dtype=torch.float32)
        _sums_kernel[(count * channels, splits)](x, parts, samples, per_split, channels, pixels, *blocks)
        statistics = parts.new_empty(count, channels, 2)
        _statistics_kernel[(count * channels,)](
            x, parts, statistics, *running,
            samples, channels, pixels, splits, momentum, eps, triton.next_power_of_2(splits),
        )  # fmt: skip
        y, means = apply(x, other, statistics, weight, bias, rectifies=rectifies)
        ctx.save_for_backward(x, y if rectifies else None, statistics, weight)
        ctx.adds, ctx.rectifies = other is not None, rectifies
        ctx.set_materialize_grads(False)
        return y, means

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, other, weight and bias."""
        x, y, statistics, weight = ctx.saved_tensors
        gradient, for_means = (None if given is None else given.contiguous() for given in gradients)
        count, samples, channels = x.shape[:3]
        pixels = x[0, 0, 0].numel()
        splits, per_split, blocks = _splits(count * channels, samples, pixels)
        parts = statistics.new_empty(count * channels, splits, 2)
        read = (_or(gradient, x), _or(for_means, x), x, _or(y, x), statistics)
        forms = (for_means is not None, ctx.rectifies, gradient is not None)
        _gradient_sums_kernel[(count * channels, splits)](
            *read, parts, samples, per_split, channels, pixels, *forms, *blocks
        )
        sums = parts.sum(1)
        for_x = torch.empty_like(x)
        for_other = torch.empty_like(x) if ctx.adds else None
        planes, of_planes = count * samples * channels, _blocks(pixels)
        _gradient_kernel[(triton.cdiv(planes, of_planes[0]),)](
            *read, _or(weight, x), sums, for_x, _or(for_other, x), planes, samples, channels, pixels,
            ctx.adds, weight is not None, *forms, *of_planes,
        )  # fmt: skip
        sums = sums.view(count, channels, 2)
        for_weight = sums[..., 1] if ctx.needs_input_grad[2] else None
        for_bias = sums[..., 0] if ctx.needs_input_grad[3] else None
        return for_x, for_other, for_weight, for_bias, None, None, None, None


def apply(
    x: Tensor,
    other: Tensor | None,
    statistics: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    *,
    rectifies: bool,
) -> tuple[Tensor, Tensor]:
    """Return y and its means by given statistics (K, C, 2): mean and 1 / √(var + ε)."""
    x, other = x.contiguous(), None if other is None else other.contiguous()
    count, samples, channels = x.shape[:3]
    pixels = x[0, 0, 0].numel()
    y, means = torch.empty_like(x), statistics.new_empty(count, samples, channels)
    planes, blocks = count * samples * channels, _blocks(pixels)
    _apply_kernel[(triton.cdiv(planes, blocks[0]),)](
        x, _or(other, x), statistics, _or(weight, x), _or(bias, x), y, means,
        planes, samples, channels, pixels,
        other is not None, weight is not None, bias is not None, rectifies, *blocks,
    )  # fmt: skip
    return y, means


def _or(given: Tensor | None, instead: Tensor) -> Tensor:
    """Return a tensor for a kernel that does not read it where there is none."""
    return instead if given is None else given


def _blocks(pixels: int) -> tuple[int, int]:
    """Return how many planes a program holds at once, and how many pixels of each."""
    wide = min(_MOST_PIXELS, triton.next_power_of_2(pixels))
    return _BLOCK // wide, wide


def _splits(channels: int, samples: int, pixels: int) -> tuple[int, int, tuple[int, int]]:
    """Return into how many parts the sums of a channel are split, the samples of each, and a program's block."""
    blocks = _blocks(pixels)
    most = triton.cdiv(samples, blocks[0])
    per_split = triton.cdiv(samples, max(1, min(most, _PROGRAMS // channels)))
    return triton.cdiv(samples, per_split), per_split, blocks

"""Batch norm of K children, with the addition and the ReLU that follow it, and the mean of every channel.

    x, other, y (K, n, C, H, W), mean, var, weight, bias (K, C), means (K, n, C)

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

from bocl.networks.kernels.layout import AT_ONCE, empty_values, stored, tensor_or, with_all_channels

_BLOCK = 4096  # values that a program holds at once
_MOST_CHANNELS = 128
_PROGRAMS = 2048  # that the sums of all channels are divided among
_SHAPE = ["samples", "per_split", "splits", "in_4", "pixels", "count"]


@triton.jit(do_not_specialize=_SHAPE)  # type: ignore[untyped-decorator]
def _sums_kernel(  # type: ignore[no-untyped-def]
    x, parts, samples, per_split, in_4, pixels, block_p: tl.constexpr, block_c: tl.constexpr,
):  # fmt: skip
    """Sums over some samples of x - s and (x - s)², s being a channel's first value, so that little cancels."""
    child, split, channels = tl.program_id(2), tl.program_id(1), in_4 * 4
    channel = tl.program_id(0) * block_c + tl.arange(0, block_c)
    known = channel < channels
    x += child.to(tl.int64) * samples * pixels * channels
    shift = tl.load(x + channel, mask=known, other=0.0).to(tl.float32)[None, :]
    once, squared = tl.zeros((block_p, block_c), dtype=tl.float32), tl.zeros((block_p, block_c), dtype=tl.float32)
    last = min(samples, (split + 1) * per_split) * pixels
    for start in range(split * per_split * pixels, last, block_p):
        row = start + tl.arange(0, block_p)
        inside = (row < last)[:, None] & known[None, :]
        value = tl.load(x + (row * channels)[:, None] + channel[None, :], mask=inside, other=0.0).to(tl.float32)
        value = tl.where(inside, value - shift, 0.0)
        once += value
        squared += value * value
    parts += (child * tl.num_programs(1) + split) * 2 * channels + channel
    tl.store(parts, tl.sum(once, axis=0), mask=known)
    tl.store(parts + channels, tl.sum(squared, axis=0), mask=known)


@triton.jit(do_not_specialize=_SHAPE)  # type: ignore[untyped-decorator]
def _statistics_kernel(  # type: ignore[no-untyped-def]
    x, parts, statistics, running_mean, running_var,
    samples, splits, in_4, count, pixels, momentum, eps,
    block_s: tl.constexpr, block_c: tl.constexpr,
):  # fmt: skip
    """Mean and 1 / √(var + ε) of some channels of a child, (K, 2, C), and the running statistics of ``count``."""
    child, channels = tl.program_id(1), in_4 * 4
    channel = tl.program_id(0) * block_c + tl.arange(0, block_c)
    known = channel < channels
    split = tl.arange(0, block_s)
    place = parts + ((child * splits + split) * 2 * channels)[:, None] + channel[None, :]
    inside = (split < splits)[:, None] & known[None, :]
    once = tl.sum(tl.load(place, mask=inside, other=0.0), axis=0)
    squared = tl.sum(tl.load(place + channels, mask=inside, other=0.0), axis=0)
    shift = tl.load(x + child.to(tl.int64) * samples * pixels * channels + channel, mask=known, other=0.0)
    values = (samples * pixels).to(tl.float32)
    offset = once / values
    mean, var = shift.to(tl.float32) + offset, tl.maximum(squared / values - offset * offset, 0.0)
    statistics += child * 2 * channels + channel
    tl.store(statistics, mean, mask=known)
    tl.store(statistics + channels, 1.0 / tl.sqrt_rn(var + eps), mask=known)
    running, learnt = child * count + channel, channel < count
    before = tl.load(running_mean + running, mask=learnt, other=0.0)
    tl.store(running_mean + running, before + momentum * (mean - before), mask=learnt)
    before = tl.load(running_var + running, mask=learnt, other=0.0)
    unbiased = var * (values / tl.maximum(values - 1.0, 1.0))
    tl.store(running_var + running, before + momentum * (unbiased - before), mask=learnt)


@triton.jit(do_not_specialize=_SHAPE)  # type: ignore[untyped-decorator]
def _apply_kernel(  # type: ignore[no-untyped-def]
    x, other, statistics, weight, bias, y, means, samples, in_4, pixels,
    adds: tl.constexpr, scales: tl.constexpr, shifts: tl.constexpr, rectifies: tl.constexpr,
    block_p: tl.constexpr, block_c: tl.constexpr,
):  # fmt: skip
    """Some channels of one sample of one child."""
    child, channels = tl.program_id(2), in_4 * 4
    image = child.to(tl.int64) * samples + tl.program_id(1)
    channel = tl.program_id(0) * block_c + tl.arange(0, block_c)
    known = channel < channels
    of_child = child * channels + channel
    mean = tl.load(statistics + child * channels + of_child, mask=known, other=0.0)
    factor = tl.load(statistics + (child + 1) * channels + of_child, mask=known, other=0.0)
    of_weight, of_bias = tl.full((block_c,), 1.0, dtype=tl.float32), tl.zeros((block_c,), dtype=tl.float32)
    if scales:
        of_weight = tl.load(weight + of_child, mask=known, other=0.0)
    if shifts:
        of_bias = tl.load(bias + of_child, mask=known, other=0.0)
    total = tl.zeros((block_p, block_c), dtype=tl.float32)
    for start in range(0, pixels, block_p):
        pixel = start + tl.arange(0, block_p)
        inside = (pixel < pixels)[:, None] & known[None, :]
        place = image * pixels * channels + (pixel * channels)[:, None] + channel[None, :]
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        value = (value - mean[None, :]) * factor[None, :] * of_weight[None, :] + of_bias[None, :]
        if adds:
            value += tl.load(other + place, mask=inside, other=0.0).to(tl.float32)
        if rectifies:
            value = tl.where(value < 0, 0.0, value)  # NaN stays NaN
        tl.store(y + place, value, mask=inside)
        total += tl.where(inside, value, 0.0)
    tl.store(means + image * channels + channel, tl.sum(total, axis=0) / pixels, mask=known)


@triton.jit  # type: ignore[untyped-decorator]
def _change(  # type: ignore[no-untyped-def]
    gradient, y, normal, weight, bias, place, inside, of_means,
    adds: tl.constexpr, averages: tl.constexpr, rectifies: tl.constexpr, given: tl.constexpr,
):  # fmt: skip
    """The gradient of what the ReLU was given, which is found anew where nothing was added to it."""
    change = tl.zeros(inside.shape, dtype=tl.float32)
    if given:
        change += tl.load(gradient + place, mask=inside, other=0.0).to(tl.float32)
    if averages:
        change += of_means[None, :]
    if rectifies:
        if adds:
            before = tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
        else:
            before = normal * weight[None, :] + bias[None, :]
        change = tl.where(before > 0, change, 0.0)
    return tl.where(inside, change, 0.0)


@triton.jit(do_not_specialize=_SHAPE)  # type: ignore[untyped-decorator]
def _gradient_sums_kernel(  # type: ignore[no-untyped-def]
    gradient, for_means, x, y, statistics, weight, bias, parts, samples, per_split, in_4, pixels,
    adds: tl.constexpr, scales: tl.constexpr, shifts: tl.constexpr,
    averages: tl.constexpr, rectifies: tl.constexpr, given: tl.constexpr,
    block_p: tl.constexpr, block_c: tl.constexpr,
):  # fmt: skip
    """Sums over some samples of g and g · x̂, the gradients of bias and weight."""
    child, split, channels = tl.program_id(2), tl.program_id(1), in_4 * 4
    channel = tl.program_id(0) * block_c + tl.arange(0, block_c)
    known = channel < channels
    mean = tl.load(statistics + child * 2 * channels + channel, mask=known, other=0.0)
    factor = tl.load(statistics + (child * 2 + 1) * channels + channel, mask=known, other=0.0)
    of_weight, of_bias = tl.full((block_c,), 1.0, dtype=tl.float32), tl.zeros((block_c,), dtype=tl.float32)
    if scales:
        of_weight = tl.load(weight + child * channels + channel, mask=known, other=0.0)
    if shifts:
        of_bias = tl.load(bias + child * channels + channel, mask=known, other=0.0)
    once, scaled = tl.zeros((block_p, block_c), dtype=tl.float32), tl.zeros((block_p, block_c), dtype=tl.float32)
    for sample in range(split * per_split, min(samples, (split + 1) * per_split)):
        image = child.to(tl.int64) * samples + sample
        of_means = tl.zeros((block_c,), dtype=tl.float32)
        if averages:
            of_means = tl.load(for_means + image * channels + channel, mask=known, other=0.0) / pixels
        for start in range(0, pixels, block_p):
            pixel = start + tl.arange(0, block_p)
            inside = (pixel < pixels)[:, None] & known[None, :]
            place = image * pixels * channels + (pixel * channels)[:, None] + channel[None, :]
            normal = (tl.load(x + place, mask=inside, other=0.0).to(tl.float32) - mean[None, :]) * factor[None, :]
            change = _change(
                gradient, y, normal, of_weight, of_bias, place, inside, of_means, adds, averages, rectifies, given
            )
            once += change
            scaled += change * normal
    parts += (child * tl.num_programs(1) + split) * 2 * channels + channel
    tl.store(parts, tl.sum(once, axis=0), mask=known)
    tl.store(parts + channels, tl.sum(scaled, axis=0), mask=known)


@triton.jit(do_not_specialize=_SHAPE)  # type: ignore[untyped-decorator]
def _gradient_kernel(  # type: ignore[no-untyped-def]
    gradient, for_means, x, y, statistics, weight, bias, sums, for_x, for_other, samples, in_4, pixels,
    adds: tl.constexpr, scales: tl.constexpr, shifts: tl.constexpr,
    averages: tl.constexpr, rectifies: tl.constexpr, given: tl.constexpr,
    block_p: tl.constexpr, block_c: tl.constexpr,
):  # fmt: skip
    """Gradients of x, weight / √(var + ε) · (g - mean(g) - x̂ · mean(g · x̂)), and of ``other``, g, for one sample."""
    child, channels = tl.program_id(2), in_4 * 4
    image = child.to(tl.int64) * samples + tl.program_id(1)
    channel = tl.program_id(0) * block_c + tl.arange(0, block_c)
    known = channel < channels
    of_child = child * 2 * channels + channel
    mean = tl.load(statistics + of_child, mask=known, other=0.0)
    factor = tl.load(statistics + of_child + channels, mask=known, other=0.0)
    of_weight, of_bias = tl.full((block_c,), 1.0, dtype=tl.float32), tl.zeros((block_c,), dtype=tl.float32)
    if scales:
        of_weight = tl.load(weight + child * channels + channel, mask=known, other=0.0)
    if shifts:
        of_bias = tl.load(bias + child * channels + channel, mask=known, other=0.0)
    scale = factor * of_weight
    values = (samples * pixels).to(tl.float32)
    once = tl.load(sums + of_child, mask=known, other=0.0) / values
    scaled = tl.load(sums + of_child + channels, mask=known, other=0.0) / values
    of_means = tl.zeros((block_c,), dtype=tl.float32)
    if averages:
        of_means = tl.load(for_means + image * channels + channel, mask=known, other=0.0) / pixels
    for start in range(0, pixels, block_p):
        pixel = start + tl.arange(0, block_p)
        inside = (pixel < pixels)[:, None] & known[None, :]
        place = image * pixels * channels + (pixel * channels)[:, None] + channel[None, :]
        normal = (tl.load(x + place, mask=inside, other=0.0).to(tl.float32) - mean[None, :]) * factor[None, :]
        change = _change(
            gradient, y, normal, of_weight, of_bias, place, inside, of_means, adds, averages, rectifies, given
        )
        tl.store(for_x + place, scale[None, :] * (change - once[None, :] - normal * scaled[None, :]), mask=inside)
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
        channels, x = x.shape[2], stored(x)
        count, samples, pixels, per_split, splits, blocks, groups = _division(x)
        parts = x.new_empty(count, splits, 2, x.shape[4], dtype=torch.float32)
        _sums_kernel[(groups, splits, count)](x, parts, samples, per_split, x.shape[4] // AT_ONCE, pixels, *blocks)
        statistics = parts.new_empty(count, 2, x.shape[4])
        _statistics_kernel[(groups, count)](
            x, parts, statistics, *running,
            samples, splits, x.shape[4] // AT_ONCE, channels, pixels, momentum, eps,
            triton.next_power_of_2(splits), blocks[1],
        )  # fmt: skip
        weight, bias = (None if each is None else with_all_channels(each) for each in (weight, bias))
        y, means = _apply(x, channels, other, statistics, weight, bias, rectifies=rectifies)
        ctx.save_for_backward(x, stored(y) if rectifies and other is not None else None, statistics, weight, bias)
        ctx.adds, ctx.rectifies, ctx.channels = other is not None, rectifies, channels
        ctx.set_materialize_grads(False)
        return y, means

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, other, weight and bias."""
        x, y, statistics, weight, bias = ctx.saved_tensors
        gradient = None if gradients[0] is None else stored(gradients[0])
        for_means = None if gradients[1] is None else with_all_channels(gradients[1])
        count, samples, pixels, per_split, splits, blocks, groups = _division(x)
        parts = statistics.new_empty(count, splits, 2, x.shape[4])
        read = [tensor_or(each, x) for each in (gradient, for_means, x, y, statistics, weight, bias)]
        of_norm = ctx.adds, weight is not None, bias is not None
        forms = (*of_norm, for_means is not None, ctx.rectifies, gradient is not None)
        _gradient_sums_kernel[(groups, splits, count)](
            *read, parts, samples, per_split, x.shape[4] // AT_ONCE, pixels, *forms, *blocks
        )
        sums = parts.sum(1)
        for_x, for_other = torch.empty_like(x), torch.empty_like(x) if ctx.adds else None
        _gradient_kernel[(groups, samples, count)](
            *read, sums, for_x, tensor_or(for_other, x), samples, x.shape[4] // AT_ONCE, pixels, *forms, *blocks
        )
        for_weight = sums[:, 1, : ctx.channels] if ctx.needs_input_grad[2] else None
        for_bias = sums[:, 0, : ctx.channels] if ctx.needs_input_grad[3] else None
        back = [
            None if each is None else each[..., : ctx.channels].permute(0, 1, 4, 2, 3) for each in (for_x, for_other)
        ]
        return *back, for_weight, for_bias, None, None, None, None


def apply(
    x: Tensor, other: Tensor | None, statistics: Tensor, weight: Tensor | None, bias: Tensor | None, *, rectifies: bool
) -> tuple[Tensor, Tensor]:
    """Return y and its means by given statistics (K, 2, C): mean and 1 / √(var + ε)."""
    given = [None if each is None else with_all_channels(each) for each in (weight, bias)]
    return _apply(stored(x), x.shape[2], other, with_all_channels(statistics), *given, rectifies=rectifies)


def _apply(
    x: Tensor,
    channels: int,
    other: Tensor | None,
    statistics: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    *,
    rectifies: bool,
) -> tuple[Tensor, Tensor]:
    other = None if other is None else stored(other)
    count, samples, pixels, _, _, blocks, groups = _division(x)
    y = empty_values(x, channels, (x.shape[2], x.shape[3]))
    means = statistics.new_empty(count, samples, x.shape[4])
    _apply_kernel[(groups, samples, count)](
        x, tensor_or(other, x), statistics, tensor_or(weight, x), tensor_or(bias, x), stored(y), means,
        samples, x.shape[4] // AT_ONCE, pixels,
        other is not None, weight is not None, bias is not None, rectifies, *blocks,
    )  # fmt: skip
    return y, means[..., :channels]


def _division(x: Tensor) -> tuple[int, int, int, int, int, tuple[int, int], int]:
    """Return children, samples, pixels; how the sums of x (K, n, H, W, C) are divided, and the blocks of all kernels.

    Sums are of so many samples each, in so many parts; a block has (pixels, channels), and there are so many blocks of
    channels.
    """
    count, samples, height, width, channels = x.shape
    block_c = min(_MOST_CHANNELS, triton.next_power_of_2(channels))
    groups = triton.cdiv(channels, block_c)
    per_split = triton.cdiv(samples, max(1, min(samples, _PROGRAMS // (count * groups))))
    block_p = min(_BLOCK // block_c, triton.next_power_of_2(height * width))
    return count, samples, height * width, per_split, triton.cdiv(samples, per_split), (block_p, block_c), groups

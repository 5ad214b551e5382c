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
from torch.autograd.function import once_differentiable

from bocl.networks.kernels import layout
from bocl.networks.kernels.layout import as_values, launch, stored, tensor_or, with_all_channels

_AT_ONCE = tl.constexpr(layout.AT_ONCE)
_BLOCK = 4096  # values that a program holds at once
_MOST_CHANNELS = 128
_PROGRAMS = 2048  # that the sums of all channels are divided among
_MOST_PARTS = 64  # of the samples of a child
_SHAPE = ["samples", "per_part", "parts", "groups", "channels", "pixels"]  # numbers that are not compiled in


@triton.jit(do_not_specialize=_SHAPE)  # type: ignore[untyped-decorator]
def _sums_kernel(  # type: ignore[no-untyped-def]
    x, sums, samples, per_part, groups, pixels, block_p: tl.constexpr, block_c: tl.constexpr,
):  # fmt: skip
    """Sums over some samples of x - s and (x - s)², s being a channel's first value, so that little cancels."""
    child, part, stored_channels = tl.program_id(1), tl.program_id(2), groups * _AT_ONCE
    channel = tl.program_id(0) * block_c + tl.arange(0, block_c)
    is_channel = channel < stored_channels
    x += child.to(tl.int64) * samples * pixels * stored_channels
    shift = tl.load(x + channel, mask=is_channel, other=0.0).to(tl.float32)[None, :]
    once, squared = tl.zeros((block_p, block_c), dtype=tl.float32), tl.zeros((block_p, block_c), dtype=tl.float32)
    last = min(samples, (part + 1) * per_part) * pixels
    for start in range(part * per_part * pixels, last, block_p):
        row = start + tl.arange(0, block_p)
        is_value = (row < last)[:, None] & is_channel[None, :]
        place = (row.to(tl.int64) * stored_channels)[:, None] + channel[None, :]
        value = tl.load(x + place, mask=is_value, other=0.0).to(tl.float32)
        value = tl.where(is_value, value - shift, 0.0)
        once += value
        squared += value * value
    sums += (child * tl.num_programs(2) + part) * 2 * stored_channels + channel
    tl.store(sums, tl.sum(once, axis=0), mask=is_channel)
    tl.store(sums + stored_channels, tl.sum(squared, axis=0), mask=is_channel)


@triton.jit(do_not_specialize=_SHAPE)  # type: ignore[untyped-decorator]
def _statistics_kernel(  # type: ignore[no-untyped-def]
    x, sums, statistics, running_mean, running_var,
    samples, parts, groups, channels, pixels, momentum, eps,
    most_parts: tl.constexpr, block_c: tl.constexpr,
):  # fmt: skip
    """Mean and 1 / √(var + ε) of some channels of a child, (K, 2, C'), and their running statistics (K, C)."""
    child, stored_channels = tl.program_id(1), groups * _AT_ONCE
    channel, part = tl.program_id(0) * block_c + tl.arange(0, block_c), tl.arange(0, most_parts)
    is_stored, is_channel = channel < stored_channels, channel < channels
    place = sums + ((child * parts + part) * 2 * stored_channels)[:, None] + channel[None, :]
    is_sum = (part < parts)[:, None] & is_stored[None, :]
    once = tl.sum(tl.load(place, mask=is_sum, other=0.0), axis=0)
    squared = tl.sum(tl.load(place + stored_channels, mask=is_sum, other=0.0), axis=0)
    first = x + child.to(tl.int64) * samples * pixels * stored_channels
    shift = tl.load(first + channel, mask=is_stored, other=0.0).to(tl.float32)
    values = (samples * pixels).to(tl.float32)
    offset = once / values
    mean, var = shift + offset, squared / values - offset * offset
    var = tl.where(var < 0.0, 0.0, var)  # NaN stays NaN
    factor = tl.where(is_channel, 1.0 / tl.sqrt_rn(var + eps), 0.0)
    statistics += child * 2 * stored_channels + channel
    tl.store(statistics, mean, mask=is_stored)
    tl.store(statistics + stored_channels, factor, mask=is_stored)
    running = child * channels + channel
    before = tl.load(running_mean + running, mask=is_channel, other=0.0)
    tl.store(running_mean + running, before + momentum * (mean - before), mask=is_channel)
    before = tl.load(running_var + running, mask=is_channel, other=0.0)
    unbiased = var * (values / tl.maximum(values - 1.0, 1.0))
    tl.store(running_var + running, before + momentum * (unbiased - before), mask=is_channel)


@triton.jit  # type: ignore[untyped-decorator]
def _channel_numbers(  # type: ignore[no-untyped-def]
    statistics, weight, bias, child, stored_channels, channel, is_channel,
    scales: tl.constexpr, shifts: tl.constexpr, block_c: tl.constexpr,
):  # fmt: skip
    """Mean, 1 / √(var + ε), weight and bias of some channels."""
    statistics += child * 2 * stored_channels + channel
    mean = tl.load(statistics, mask=is_channel, other=0.0)
    factor = tl.load(statistics + stored_channels, mask=is_channel, other=0.0)
    of_weight, of_bias = tl.full((block_c,), 1.0, dtype=tl.float32), tl.zeros((block_c,), dtype=tl.float32)
    if scales:
        of_weight = tl.load(weight + child * stored_channels + channel, mask=is_channel, other=0.0)
    if shifts:
        of_bias = tl.load(bias + child * stored_channels + channel, mask=is_channel, other=0.0)
    return mean, factor, of_weight, of_bias


@triton.jit(do_not_specialize=_SHAPE)  # type: ignore[untyped-decorator]
def _normalise_kernel(  # type: ignore[no-untyped-def]
    x, other, statistics, weight, bias, y, means, samples, groups, pixels,
    adds: tl.constexpr, scales: tl.constexpr, shifts: tl.constexpr, rectifies: tl.constexpr,
    block_p: tl.constexpr, block_c: tl.constexpr,
):  # fmt: skip
    """Some channels of one sample of one child."""
    child, stored_channels = tl.program_id(1), groups * _AT_ONCE
    channel_blocks = tl.cdiv(stored_channels, block_c)
    image = child.to(tl.int64) * samples + tl.program_id(0) // channel_blocks
    channel = tl.program_id(0) % channel_blocks * block_c + tl.arange(0, block_c)
    is_channel = channel < stored_channels
    mean, factor, of_weight, of_bias = _channel_numbers(
        statistics, weight, bias, child, stored_channels, channel, is_channel, scales, shifts, block_c
    )
    total = tl.zeros((block_p, block_c), dtype=tl.float32)
    for start in range(0, pixels, block_p):
        pixel = start + tl.arange(0, block_p)
        is_value = (pixel < pixels)[:, None] & is_channel[None, :]
        place = image * pixels * stored_channels + (pixel * stored_channels)[:, None] + channel[None, :]
        value = tl.load(x + place, mask=is_value, other=0.0).to(tl.float32)
        value = (value - mean[None, :]) * factor[None, :] * of_weight[None, :] + of_bias[None, :]
        if adds:
            value += tl.load(other + place, mask=is_value, other=0.0).to(tl.float32)
        if rectifies:
            value = tl.where(value < 0, 0.0, value)  # NaN stays NaN
        tl.store(y + place, value, mask=is_value)
        total += tl.where(is_value, value, 0.0)
    tl.store(means + image * stored_channels + channel, tl.sum(total, axis=0) / pixels, mask=is_channel)


@triton.jit  # type: ignore[untyped-decorator]
def _before_relu(  # type: ignore[no-untyped-def]
    gradient, y, normal, of_weight, of_bias, place, is_value, for_mean,
    adds: tl.constexpr, averages: tl.constexpr, rectifies: tl.constexpr, reads: tl.constexpr,
):  # fmt: skip
    """The gradient of what the ReLU was given, which is found anew where nothing was added to it."""
    change = tl.zeros(is_value.shape, dtype=tl.float32)
    if reads:
        change += tl.load(gradient + place, mask=is_value, other=0.0).to(tl.float32)
    if averages:
        change += for_mean[None, :]
    if rectifies:
        if adds:
            before = tl.load(y + place, mask=is_value, other=0.0).to(tl.float32)
        else:
            before = normal * of_weight[None, :] + of_bias[None, :]
        change = tl.where(before > 0, change, 0.0)
    return tl.where(is_value, change, 0.0)


@triton.jit(do_not_specialize=_SHAPE)  # type: ignore[untyped-decorator]
def _gradient_sums_kernel(  # type: ignore[no-untyped-def]
    gradient, for_means, x, y, statistics, weight, bias, sums, samples, per_part, groups, pixels,
    adds: tl.constexpr, scales: tl.constexpr, shifts: tl.constexpr,
    averages: tl.constexpr, rectifies: tl.constexpr, reads: tl.constexpr,
    block_p: tl.constexpr, block_c: tl.constexpr,
):  # fmt: skip
    """Sums over some samples of g and g · x̂, the gradients of bias and weight."""
    child, part, stored_channels = tl.program_id(1), tl.program_id(2), groups * _AT_ONCE
    channel = tl.program_id(0) * block_c + tl.arange(0, block_c)
    is_channel = channel < stored_channels
    mean, factor, of_weight, of_bias = _channel_numbers(
        statistics, weight, bias, child, stored_channels, channel, is_channel, scales, shifts, block_c
    )
    once, scaled = tl.zeros((block_p, block_c), dtype=tl.float32), tl.zeros((block_p, block_c), dtype=tl.float32)
    for sample in range(part * per_part, min(samples, (part + 1) * per_part)):
        image = child.to(tl.int64) * samples + sample
        for_mean = tl.zeros((block_c,), dtype=tl.float32)
        if averages:
            for_mean = tl.load(for_means + image * stored_channels + channel, mask=is_channel, other=0.0) / pixels
        for start in range(0, pixels, block_p):
            pixel = start + tl.arange(0, block_p)
            is_value = (pixel < pixels)[:, None] & is_channel[None, :]
            place = image * pixels * stored_channels + (pixel * stored_channels)[:, None] + channel[None, :]
            normal = (tl.load(x + place, mask=is_value, other=0.0).to(tl.float32) - mean[None, :]) * factor[None, :]
            change = _before_relu(
                gradient, y, normal, of_weight, of_bias, place, is_value, for_mean, adds, averages, rectifies, reads
            )
            once += change
            scaled += change * normal
    sums += (child * tl.num_programs(2) + part) * 2 * stored_channels + channel
    tl.store(sums, tl.sum(once, axis=0), mask=is_channel)
    tl.store(sums + stored_channels, tl.sum(scaled, axis=0), mask=is_channel)


@triton.jit(do_not_specialize=_SHAPE)  # type: ignore[untyped-decorator]
def _gradient_kernel(  # type: ignore[no-untyped-def]
    gradient, for_means, x, y, statistics, weight, bias, sums, for_x, for_other, samples, groups, pixels,
    adds: tl.constexpr, scales: tl.constexpr, shifts: tl.constexpr,
    averages: tl.constexpr, rectifies: tl.constexpr, reads: tl.constexpr,
    block_p: tl.constexpr, block_c: tl.constexpr,
):  # fmt: skip
    """Gradients of x, weight / √(var + ε) · (g - mean(g) - x̂ · mean(g · x̂)), and of ``other``, g, for one sample."""
    child, stored_channels = tl.program_id(1), groups * _AT_ONCE
    channel_blocks = tl.cdiv(stored_channels, block_c)
    image = child.to(tl.int64) * samples + tl.program_id(0) // channel_blocks
    channel = tl.program_id(0) % channel_blocks * block_c + tl.arange(0, block_c)
    is_channel = channel < stored_channels
    mean, factor, of_weight, of_bias = _channel_numbers(
        statistics, weight, bias, child, stored_channels, channel, is_channel, scales, shifts, block_c
    )
    values = (samples * pixels).to(tl.float32)
    sums += child * 2 * stored_channels + channel
    once = tl.load(sums, mask=is_channel, other=0.0) / values
    scaled = tl.load(sums + stored_channels, mask=is_channel, other=0.0) / values
    for_mean = tl.zeros((block_c,), dtype=tl.float32)
    if averages:
        for_mean = tl.load(for_means + image * stored_channels + channel, mask=is_channel, other=0.0) / pixels
    for start in range(0, pixels, block_p):
        pixel = start + tl.arange(0, block_p)
        is_value = (pixel < pixels)[:, None] & is_channel[None, :]
        place = image * pixels * stored_channels + (pixel * stored_channels)[:, None] + channel[None, :]
        normal = (tl.load(x + place, mask=is_value, other=0.0).to(tl.float32) - mean[None, :]) * factor[None, :]
        change = _before_relu(
            gradient, y, normal, of_weight, of_bias, place, is_value, for_mean, adds, averages, rectifies, reads
        )
        of_x = (factor * of_weight)[None, :] * (change - once[None, :] - normal * scaled[None, :])
        tl.store(for_x + place, of_x, mask=is_value)
        if adds:
            tl.store(for_other + place, change, mask=is_value)


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
        weight, bias = (None if each is None else with_all_channels(each) for each in (weight, bias))
        count, samples, pixels, groups = _sizes(x)
        block_p, block_c, blocks = _blocks(x)
        per_part, parts = _parts(x, blocks)
        sums = x.new_empty(count, parts, 2, x.shape[4], dtype=torch.float32)
        launch(_sums_kernel, (blocks, count, parts), x, sums, samples, per_part, groups, pixels, block_p, block_c)
        statistics = sums.new_empty(count, 2, x.shape[4])
        launch(
            _statistics_kernel, (blocks, count),
            x, sums, statistics, *running, samples, parts, groups, channels, pixels, momentum, eps,
            _MOST_PARTS, block_c,
        )  # fmt: skip
        room, means = _normalised(x, other, statistics, weight, bias, rectifies=rectifies)
        ctx.save_for_backward(x, room if rectifies and other is not None else None, statistics, weight, bias)
        ctx.adds, ctx.rectifies, ctx.channels = other is not None, rectifies, channels
        ctx.set_materialize_grads(False)
        return as_values(room, channels), means[..., :channels]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, other, weight and bias."""
        x, y, statistics, weight, bias = ctx.saved_tensors
        gradient = None if gradients[0] is None else stored(gradients[0])
        for_means = None if gradients[1] is None else with_all_channels(gradients[1])
        count, samples, pixels, groups = _sizes(x)
        block_p, block_c, blocks = _blocks(x)
        per_part, parts = _parts(x, blocks)
        of_parts = statistics.new_empty(count, parts, 2, x.shape[4])
        read = [tensor_or(each, x) for each in (gradient, for_means, x, y, statistics, weight, bias)]
        of_norm = ctx.adds, weight is not None, bias is not None
        forms = (*of_norm, for_means is not None, ctx.rectifies, gradient is not None, block_p, block_c)
        launch(
            _gradient_sums_kernel, (blocks, count, parts),
            *read, of_parts, samples, per_part, groups, pixels, *forms,
        )  # fmt: skip
        sums = of_parts.sum(1)
        for_x, for_other = torch.empty_like(x), torch.empty_like(x) if ctx.adds else None
        launch(
            _gradient_kernel, (blocks * samples, count),
            *read, sums, for_x, tensor_or(for_other, x), samples, groups, pixels, *forms,
        )  # fmt: skip
        for_weight = sums[:, 1, : ctx.channels] if ctx.needs_input_grad[2] else None
        for_bias = sums[:, 0, : ctx.channels] if ctx.needs_input_grad[3] else None
        back = [None if each is None else as_values(each, ctx.channels) for each in (for_x, for_other)]
        return *back, for_weight, for_bias, None, None, None, None


def normalise(
    x: Tensor,
    other: Tensor | None,
    mean: Tensor,
    factor: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    *,
    rectifies: bool,
) -> tuple[Tensor, Tensor]:
    """Return y and its means by given statistics, mean and 1 / √(var + ε), without gradients."""
    weight, bias = (None if each is None else with_all_channels(each) for each in (weight, bias))
    statistics = with_all_channels(torch.stack([mean, factor], dim=1))
    room, means = _normalised(stored(x), other, statistics, weight, bias, rectifies=rectifies)
    return as_values(room, x.shape[2]), means[..., : x.shape[2]]


def _normalised(
    x: Tensor,
    other: Tensor | None,
    statistics: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    *,
    rectifies: bool,
) -> tuple[Tensor, Tensor]:
    """Return y and its means, with all channels that are stored; x is."""
    other = None if other is None else stored(other)
    count, samples, pixels, groups = _sizes(x)
    block_p, block_c, blocks = _blocks(x)
    y, means = torch.empty_like(x), statistics.new_empty(count, samples, x.shape[4])
    launch(
        _normalise_kernel, (blocks * samples, count),
        x, tensor_or(other, x), statistics, tensor_or(weight, x), tensor_or(bias, x), y, means,
        samples, groups, pixels, other is not None, weight is not None, bias is not None, rectifies, block_p, block_c,
    )  # fmt: skip
    return y, means


def _sizes(x: Tensor) -> tuple[int, int, int, int]:
    """Return the children, samples, pixels, and groups of channels of x (K, n, H, W, C')."""
    return x.shape[0], x.shape[1], x.shape[2] * x.shape[3], x.shape[4] // layout.AT_ONCE


def _blocks(x: Tensor) -> tuple[int, int, int]:
    """Return pixels and channels of a block, and how many blocks have all channels."""
    block_c = min(_MOST_CHANNELS, triton.next_power_of_2(x.shape[4]))
    block_p = min(_BLOCK // block_c, triton.next_power_of_2(x.shape[2] * x.shape[3]))
    return block_p, block_c, -(-x.shape[4] // block_c)


def _parts(x: Tensor, blocks: int) -> tuple[int, int]:
    """Return the samples of a part that a program sums up, and how many parts a child has."""
    samples = x.shape[1]
    per_part = -(-samples // max(1, min(samples, _MOST_PARTS, _PROGRAMS // (len(x) * blocks))))
    return per_part, -(-samples // per_part)

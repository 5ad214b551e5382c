"""The gates of K children, as one kernel forward and one backward.

β = sigmoid(W_s h + b_s),  h = relu(W_c v + b_c)

v, β (K, n, C), h (K, n, H), W_c (K, H, C), b_c (K, H), W_s (K, C, H), b_s (K, C)
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from bocl.networks.kernels.layout import launch

MOST_HIDDEN = 64  # units of h
_SAMPLES, _CHANNELS = 64, 64  # of a block, at most
_SHAPE = ["samples", "channels", "units"]


@triton.jit(do_not_specialize=_SHAPE)  # type: ignore[untyped-decorator]
def _forward_kernel(  # type: ignore[no-untyped-def]
    v, w_c, b_c, w_s, b_s, hidden, beta, samples, channels, units,
    block_n: tl.constexpr, block_c: tl.constexpr, block_h: tl.constexpr,
):  # fmt: skip
    """The gates of some samples of one child."""
    child = tl.program_id(1)
    sample, unit = tl.program_id(0) * block_n + tl.arange(0, block_n), tl.arange(0, block_h)
    row = child * samples + sample
    total = tl.zeros((block_n, block_h), dtype=tl.float32)
    for start in range(0, channels, block_c):
        channel = start + tl.arange(0, block_c)
        is_value = (sample < samples)[:, None] & (channel < channels)[None, :]
        values = tl.load(v + row[:, None] * channels + channel[None, :], mask=is_value, other=0.0)
        is_weight = (unit < units)[None, :] & (channel < channels)[:, None]
        place = (child * units + unit)[None, :] * channels + channel[:, None]
        total = tl.dot(values, tl.load(w_c + place, mask=is_weight, other=0.0), total, input_precision="ieee")
    total += tl.load(b_c + child * units + unit, mask=unit < units, other=0.0)[None, :]
    total = tl.where(total < 0, 0.0, total)  # NaN stays NaN
    is_hidden = (sample < samples)[:, None] & (unit < units)[None, :]
    tl.store(hidden + row[:, None] * units + unit[None, :], total, mask=is_hidden)
    for start in range(0, channels, block_c):
        channel = start + tl.arange(0, block_c)
        is_weight = (unit < units)[:, None] & (channel < channels)[None, :]
        place = (child * channels + channel)[None, :] * units + unit[:, None]
        found = tl.dot(total, tl.load(w_s + place, mask=is_weight, other=0.0), input_precision="ieee")
        found += tl.load(b_s + child * channels + channel, mask=channel < channels, other=0.0)[None, :]
        is_value = (sample < samples)[:, None] & (channel < channels)[None, :]
        tl.store(beta + row[:, None] * channels + channel[None, :], 1.0 / (1.0 + tl.exp(-found)), mask=is_value)


@triton.jit
def _before_sigmoid(gradient, beta, place, is_value):  # type: ignore[no-untyped-def]
    value = tl.load(beta + place, mask=is_value, other=0.0)
    return tl.load(gradient + place, mask=is_value, other=0.0) * value * (1.0 - value)


@triton.jit(do_not_specialize=_SHAPE)  # type: ignore[untyped-decorator]
def _backward_kernel(  # type: ignore[no-untyped-def]
    gradient, v, w_c, w_s, hidden, beta, for_v, for_w_c, for_b_c, for_w_s, for_b_s, samples, channels, units,
    block_n: tl.constexpr, block_c: tl.constexpr, block_h: tl.constexpr,
):  # fmt: skip
    """The gradients that have to do with some channels of one child; each program finds those of h by itself."""
    child, own = tl.program_id(1), tl.program_id(0) * block_c + tl.arange(0, block_c)
    unit = tl.arange(0, block_h)
    is_unit, is_own = unit < units, own < channels
    is_up, is_down = is_unit[None, :] & is_own[:, None], is_unit[:, None] & is_own[None, :]
    own_w_c = (child * units + unit)[:, None] * channels + own[None, :]
    own_w_s = (child * channels + own)[:, None] * units + unit[None, :]
    factors = tl.load(w_c + own_w_c, mask=is_down, other=0.0)
    sum_w_c, sum_b_c = tl.zeros((block_h, block_c), dtype=tl.float32), tl.zeros((block_h,), dtype=tl.float32)
    sum_w_s, sum_b_s = tl.zeros((block_c, block_h), dtype=tl.float32), tl.zeros((block_c,), dtype=tl.float32)
    for first in range(0, samples, block_n):
        sample = first + tl.arange(0, block_n)
        row = child * samples + sample
        change = tl.zeros((block_n, block_h), dtype=tl.float32)
        for start in range(0, channels, block_c):
            channel = start + tl.arange(0, block_c)
            is_value = (sample < samples)[:, None] & (channel < channels)[None, :]
            some = _before_sigmoid(gradient, beta, row[:, None] * channels + channel[None, :], is_value)
            is_weight = is_unit[None, :] & (channel < channels)[:, None]
            place = (child * channels + channel)[:, None] * units + unit[None, :]
            change = tl.dot(some, tl.load(w_s + place, mask=is_weight, other=0.0), change, input_precision="ieee")
        is_hidden = (sample < samples)[:, None] & is_unit[None, :]
        active = tl.load(hidden + row[:, None] * units + unit[None, :], mask=is_hidden, other=0.0)
        change = tl.where(active > 0, change, 0.0)
        is_value = (sample < samples)[:, None] & is_own[None, :]
        place = row[:, None] * channels + own[None, :]
        some, values = _before_sigmoid(gradient, beta, place, is_value), tl.load(v + place, mask=is_value, other=0.0)
        sum_w_s = tl.dot(tl.trans(some), active, sum_w_s, input_precision="ieee")
        sum_b_s += tl.sum(some, axis=0)
        sum_w_c = tl.dot(tl.trans(change), values, sum_w_c, input_precision="ieee")
        sum_b_c += tl.sum(change, axis=0)
        tl.store(for_v + place, tl.dot(change, factors, input_precision="ieee"), mask=is_value)
    tl.store(for_w_c + own_w_c, sum_w_c, mask=is_down)
    tl.store(for_w_s + own_w_s, sum_w_s, mask=is_up)
    tl.store(for_b_s + child * channels + own, sum_b_s, mask=is_own)
    if tl.program_id(0) == 0:
        tl.store(for_b_c + child * units + unit, sum_b_c, mask=is_unit)


class Gates(torch.autograd.Function):
    """The gates above, in float32."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, w_c: Tensor, b_c: Tensor, w_s: Tensor, b_s: Tensor) -> Tensor:
        """Return β."""
        given = [each.contiguous() for each in (v, w_c, b_c, w_s, b_s)]
        v, w_c, b_c, w_s, b_s = given
        count, samples, channels = v.shape
        units = w_c.shape[1]
        hidden, beta = v.new_empty(count, samples, units), torch.empty_like(v)
        blocks = _blocks(samples, channels, units)
        grid = (-(-samples // blocks[0]), count)
        launch(_forward_kernel, grid, *given, hidden, beta, samples, channels, units, *blocks)
        ctx.save_for_backward(v, w_c, w_s, hidden, beta)
        return beta

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        """Return the gradients of v, W_c, b_c, W_s, b_s."""
        v, w_c, w_s, hidden, beta = ctx.saved_tensors
        count, samples, channels = v.shape
        units = w_c.shape[1]
        of_w_c, of_w_s = torch.empty_like(w_c), torch.empty_like(w_s)
        found = (torch.empty_like(v), of_w_c, v.new_empty(count, units), of_w_s, v.new_empty(count, channels))
        blocks = _blocks(samples, channels, units)
        read = gradients[0].contiguous(), v, w_c, w_s, hidden, beta
        grid = (-(-channels // blocks[1]), count)
        launch(_backward_kernel, grid, *read, *found, samples, channels, units, *blocks)
        return found


def _blocks(samples: int, channels: int, units: int) -> tuple[int, int, int]:
    """Return samples, channels and hidden units of a block: powers of two, from 16, which a product needs."""
    sizes = (samples, _SAMPLES), (channels, _CHANNELS), (units, MOST_HIDDEN)
    samples, channels, units = (min(most, max(16, triton.next_power_of_2(size))) for size, most in sizes)
    return samples, channels, units

"""Values of K children as our kernels read them: the channels of a pixel side by side in memory.

    (K, n, C, H, W), stored as (K, n, H, W, C'), C' being C rounded up to a multiple of ``AT_ONCE``

What is stored beyond C is finite, and multiplied by zero. Kernels are told C' / ``AT_ONCE`` and multiply it again:
then the compiler knows that it is a multiple, and lets them read so many channels at once.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

AT_ONCE = 4  # channels


def stored_channels(channels: int) -> int:
    """Return C'."""
    return -(-channels // AT_ONCE) * AT_ONCE


def as_values(room: Tensor, channels: int) -> Tensor:
    """Return what is stored (K, n, H, W, C') as values (K, n, channels, H, W)."""
    return room[..., :channels].permute(0, 1, 4, 2, 3)


def stored(x: Tensor) -> Tensor:
    """Return values (K, n, C, H, W) as they are stored, (K, n, H, W, C'): a view where they lie in memory like that.

    A part of the channels of other values may lie like that, too. Then what is beyond C is theirs.
    """
    channels = stored_channels(x.shape[2])
    count, samples, _, height, width = x.shape
    strides = (samples * height * width * channels, height * width * channels, width * channels, channels, 1)
    last = x.permute(0, 1, 3, 4, 2)
    alike = (
        size == 1 or stride == wanted for size, stride, wanted in zip(last.shape, last.stride(), strides, strict=True)
    )
    whole = (count, samples, height, width, channels)
    if all(alike) and x.data_ptr() % (AT_ONCE * x.element_size()) == 0 and _reaches(x, whole, strides):
        return last.as_strided(whole, strides)
    room = x.new_zeros(whole) if channels > x.shape[2] else x.new_empty(whole)
    room[..., : x.shape[2]] = last
    return room


def _reaches(x: Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether the memory of x goes on as far as all that would be stored."""
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    return (x.storage_offset() + last + 1) * x.element_size() <= x.untyped_storage().nbytes()


def with_all_channels(values: Tensor) -> Tensor:
    """Return numbers of channels (…, C) as (…, C')."""
    missing = stored_channels(values.shape[-1]) - values.shape[-1]
    return F.pad(values, (0, missing)) if missing else values.contiguous()


def tensor_or(given: Tensor | None, instead: Tensor) -> Tensor:
    """Return a tensor for a kernel that does not read it where there is none."""
    return instead if given is None else given


def launch(kernel: Any, grid: tuple[int, ...], first: Tensor, *others: Any, **options: Any) -> None:
    """Run a kernel on the device of its first argument: Triton would take the current one."""
    with torch.cuda.device_of(first):
        kernel[grid](first, *others, **options)

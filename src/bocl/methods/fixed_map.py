"""Maps of samples that never change: what tasks are told apart by must mean the same for the first and the last.

They are fitted to nothing. What they draw follows from a seed, so nothing of them is stored.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bocl.seeding import seed_for

KERNEL = 5  # along every side of an image
MOST_ANSWERS = 1 << 26  # of filters, held at once
POOLED = 3  # places along every side that a filter's answers are averaged to
_CONVOLUTIONS: dict[int, Any] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_POOLS: dict[int, Any] = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}


def filtered(x: Tensor, size: int, seed: int) -> Tensor:
    """Return about ``size`` numbers for each image, series or volume x (n, channels, *space): (n, filters · places).

    max(0, w_k * x), averaged to 3 places along each side, for fixed random filters w_k of mean 0.
    """
    count, _ = filters_and_places(tuple(x.shape[1:]), size)
    space = x.shape[2:]
    places = tuple(min(POOLED, side) for side in space)
    kernel = tuple(min(KERNEL, side) for side in space)
    filters = _drawn((count, x.shape[1], *kernel), seed, x.device)
    convolve, pool = _CONVOLUTIONS[len(space)], _POOLS[len(space)]
    padding = tuple((side - 1) // 2 for side in kernel)
    at_once = max(1, MOST_ANSWERS // (count * prod(space)))
    return torch.cat(
        [pool(F.relu(convolve(some, filters, padding=padding)), places) for some in x.split(at_once)]
    ).flatten(1)


def filters_and_places(shape: tuple[int, ...], size: int) -> tuple[int, int]:
    """Return how many filters a sample of this shape is given, and to how many places their answers are averaged."""
    places = prod(min(POOLED, side) for side in shape[1:])
    return max(1, size // places), places


def projected(x: Tensor, size: int, seed: int) -> Tensor:
    """Return the numbers of each sample x (n, …), or ``size`` fixed random sums of them where there are more."""
    flat = x.flatten(1)
    return flat if flat.shape[1] <= size else flat @ _drawn((size, flat.shape[1]), seed, x.device).T


@lru_cache(maxsize=8)
def _drawn(shape: tuple[int, ...], seed: int, device: torch.device) -> Tensor:
    """Return normal numbers, rows (shape[0], …) of mean 0 and length about 1, the same on every machine."""
    # RandomState is the one generator whose numbers NumPy promises to keep; its seed has 32 bits.
    draws = np.random.RandomState(seed_for(seed, "map") % 2**32).standard_normal(shape)
    rows = draws.reshape(shape[0], -1)
    rows = (rows - rows.mean(1, keepdims=True)) / np.sqrt(rows.shape[1])
    return torch.from_numpy(rows.reshape(shape).astype(np.float32)).to(device)

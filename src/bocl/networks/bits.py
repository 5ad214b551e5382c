"""Masks as they are kept: a bit per weight, eight to a byte; what they count, and what coding would make of them."""

from __future__ import annotations

from collections.abc import Iterable
from math import log2

import numpy as np
import torch
from torch import Tensor

PARAMETER = 4  # bytes


def packed(mask: Tensor) -> Tensor:
    """Return a mask of any shape as bytes, (⌈n/8⌉,), where the mask is."""
    return torch.from_numpy(np.packbits(mask.detach().cpu().numpy().ravel())).to(mask.device)


def unpacked(bits: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Undo ``packed``."""
    count = int(np.prod(shape, dtype=np.int64))
    return torch.from_numpy(np.unpackbits(bits.cpu().numpy(), count=count).view(bool)).view(shape).to(bits.device)


def count_bits(stored: Iterable[Tensor]) -> int:
    """Return how many parameters take the memory of these bytes: bits/32, rounded up."""
    return -(-sum(bits.numel() for bits in stored) // PARAMETER)


def coded_size(mask: Tensor, used: Tensor) -> float:
    """Return how many bits a mask takes once it is coded: n H(mask | used), what an arithmetic coder comes to.

    used  which weights an earlier task uses, known to who decodes
    """
    return sum(_entropy(int(part.sum()), part.numel()) for part in (mask[used], mask[~used]))


def _entropy(ones: int, count: int) -> float:
    return sum(-some * log2(some / count) for some in (ones, count - ones) if some)

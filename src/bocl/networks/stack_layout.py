"""Values of K children, as a stack and with the children side by side in the channels; copied only where needed."""

from __future__ import annotations

from torch import Tensor


def children_in_channels(x: Tensor) -> Tensor:
    """Turn (K, n, units, *space) into (n, K·units, *space); on a CPU, images get their channels last in memory.

    Channels-last images that come from ``children_first`` are not copied.
    """
    if x.is_cuda or x.dim() != 5:
        return x.transpose(0, 1).flatten(1, 2)
    return x.permute(1, 3, 4, 0, 2).flatten(3).permute(0, 3, 1, 2)


def children_first(out: Tensor, count: int) -> Tensor:
    """Turn (n, K·units, *space) into (K, n, units, *space)."""
    return out.reshape(len(out), count, out.shape[1] // count, *out.shape[2:]).transpose(0, 1)

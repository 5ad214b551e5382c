"""A grown layer of K children: the frozen block, which they share, and each child's own new pieces around it.

    frozen  (out, in, *kernel)                what old units read from old ones
    columns (K, out, in', *kernel)            what old units read from new ones
    rows    (K, out', in + in', *kernel)      what new units read

Multiplied as one weight per child, or piece by piece.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bocl.networks.graph import Layer
from bocl.networks.products import own_product, plain_product


def multiplies_whole(layer: Layer, frozen: Tensor) -> bool:
    """Whether a layer multiplies frozen and new weights as one.

    One product is faster, although gradients of frozen weights are computed and thrown away. Linear layers on a CPU
    are the exception: there the frozen block is most of the work.
    """
    return frozen.is_cuda or bool(layer.kernel)


def by_pieces(
    layer: Layer,
    parts: tuple[Tensor, Tensor],
    frozen: tuple[Tensor, Tensor | None],
    columns: Tensor | None,
    own: tuple[Tensor, Tensor | None],
) -> Tensor:
    """A linear layer piece by piece, without gradients of frozen weights: (K, n, in) in two parts → (K, n, out)."""
    (from_old, from_new), (weight, frozen_bias), (rows, bias) = parts, frozen, own
    old = plain_product(layer, from_old.flatten(0, 1), weight, frozen_bias).view(*from_old.shape[:2], len(weight))
    if columns is not None and columns.shape[2]:
        old = torch.baddbmm(old, from_new, columns.mT)
    if not rows.shape[1]:
        return old
    rows_old, rows_new = torch.split(rows, [from_old.shape[2], from_new.shape[2]], dim=2)
    new = own_product(layer, from_old, rows_old, bias)
    if from_new.shape[2]:
        new = torch.baddbmm(new, from_new, rows_new.mT)
    return torch.cat([old, new], dim=2)

"""How exactly a GPU multiplies, and that it repeats itself to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def repeatable_products(precision: str) -> Iterator[None]:
    """Let float32 products on a GPU use TF32 units (`tf32`) or not (`float32`, `bf16`), until the end of the block.

    Either way convolutions repeat themselves to the bit. Some of cuDNN's gradients add up in an order that differs from
    run to run, and a last bit in the first task becomes another network by the tenth. A captured step keeps the setting
    it was captured under.
    """
    # The switches are the whole process's, so other code needs them back as they were.
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic
    matmul.allow_tf32 = cudnn.allow_tf32 = precision == "tf32"
    cudnn.deterministic = True
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic = before

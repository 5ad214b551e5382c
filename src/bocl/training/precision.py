"""How exactly a GPU multiplies, and that it does so alike each time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def repeatable_products(precision: str) -> Iterator[None]:
    """Let float32 products on a GPU use TF32 units (`tf32`) or not (`float32`, `bf16`); as before afterwards.

    Either way convolutions repeat themselves: some of cuDNN's ways to a weight's gradient add up in an order that
    differs from run to run, and a last bit of the first task becomes another network by the tenth. A captured step
    keeps the setting it was captured under.
    """
    # The switches are the whole process's: what runs after, in full float32 or not ours, needs them as they were.
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic
    matmul.allow_tf32 = cudnn.allow_tf32 = precision == "tf32"
    cudnn.deterministic = True
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic = before

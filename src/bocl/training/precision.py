"""How exactly a GPU multiplies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def matrix_precision(precision: str) -> Iterator[None]:
    """Let float32 products on a GPU use TF32 units (`tf32`) or not (`float32`, `bf16`); as before afterwards.

    A captured step keeps the setting it was captured under.
    """
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before

"""How exactly a GPU multiplies.

PyTorch's switch belongs to the process. Runs side by side on one GPU take turns with it, so that none computes
under another's setting; a captured step keeps the setting it was captured under and needs no turn.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_turn = threading.RLock()


@contextmanager
def matrix_precision(precision: str, device: torch.device) -> Iterator[None]:
    """Let float32 products on a GPU use TF32 units (`tf32`) or not (`float32`, `bf16`); as before afterwards."""
    if device.type != "cuda":
        yield
        return
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    with _turn:
        before = matmul.allow_tf32, cudnn.allow_tf32
        matmul.allow_tf32 = cudnn.allow_tf32 = precision == "tf32"
        try:
            yield
        finally:
            matmul.allow_tf32, cudnn.allow_tf32 = before

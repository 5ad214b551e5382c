"""Where our own GPU kernels run: on a GPU, where PyTorch brings Triton, but not in double precision."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor


def window_kernels(x: Tensor) -> Any:
    """Return the kernels that lay windows out, or None where they do not run."""
    if not _can_run_on(x):
        return None
    from bocl.networks.kernels import windows

    return windows


def convolution_kernels(x: Tensor) -> Any:
    """Return the kernels of convolutions that read windows in place, or None where they do not run."""
    if not _can_run_on(x) or x[0].numel() >= 2**31:
        return None
    from bocl.networks.kernels import convolution

    return convolution


def batch_norm_kernels(x: Tensor) -> Any:
    """Return the kernels of batch norm, or None where they do not run."""
    if not _can_run_on(x):
        return None
    from bocl.networks.kernels import batch_norm

    return batch_norm


def gate_kernels(means: Tensor) -> Any:
    """Return the kernels of gates, or None where they do not run."""
    if not _can_run_on(means):
        return None
    from bocl.networks.kernels import gates

    return gates


def _can_run_on(x: Tensor) -> bool:
    return x.is_cuda and x.dtype != torch.float64 and x.numel() > 0 and _has_triton()


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None

"""Where our own GPU kernels run: where PyTorch brings Triton, and it can build for the GPU at hand."""

from __future__ import annotations

import logging
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

log = logging.getLogger("bocl")

MATRIX_UNITS = (8, 0)  # of a GPU's architecture: from here on they multiply in TF32 and bf16


def kernels_of(name: str, x: Tensor) -> Any:
    """Return the module of ``kernels`` of this name, or None where what it does to x is left to PyTorch."""
    if not x.is_cuda or x.dtype == torch.float64 or not x.numel() or not _run_on(x.device):
        return None
    return import_module(f"bocl.networks.kernels.{name}")


@cache
def _run_on(device: torch.device) -> bool:
    """Whether kernels can be built and run: Triton needs a C compiler, too, when it builds the first."""
    try:
        import_module("bocl.networks.kernels.windows").try_out(device)
    except Exception as error:  # an installation may be broken in any way
        log.warning("our GPU kernels do not run here, PyTorch's are used: %s: %s", type(error).__name__, error)
        return False
    return True


def has_matrix_units(x: Tensor) -> bool:
    """Whether x is on a GPU for which products are made in TF32 and bf16."""
    return x.is_cuda and torch.cuda.get_device_capability(x.device) >= MATRIX_UNITS

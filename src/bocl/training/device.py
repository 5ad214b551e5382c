"""Where tensors live."""

from __future__ import annotations

import re

import torch

from bocl.errors import DeviceError
from bocl.wording import counted


def resolve_device(name: str | torch.device = "auto") -> torch.device:
    """Return the device for `auto`, `cpu`, `cuda` or `cuda:N`; `auto` takes a GPU when there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    known = re.fullmatch("cpu(:0+)?|cuda(:(?P<number>[0-9]{1,9}))?", str(name))
    if known is None:
        raise DeviceError(f"unknown device '{name}'; use auto, cpu, cuda or cuda:N ({_sees(_gpus())})")
    if known[0].startswith("cpu"):
        return torch.device("cpu")
    present = _gpus()
    if int(known["number"] or 0) >= present:
        raise DeviceError(
            f"device '{name}' was asked for, but {_sees(present)}; use --device cpu, or device='cpu' in the library"
        )
    return torch.device(known[0])


def _gpus() -> int:
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _sees(present: int) -> str:
    last = f", the last of them cuda:{present - 1}" if present else ""
    return f"PyTorch sees {counted(present, 'GPU')}{last}"

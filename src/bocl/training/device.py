"""Where tensors live."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from bocl.errors import DeviceError
from bocl.wording import counted

WORTH_SHARING = 10_000_000  # floating-point operations


def resolve_device(name: str | torch.device = "auto") -> torch.device:
    """Return the device for `auto`, `cpu`, `cuda` or `cuda:N`; `auto` takes a GPU when there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not isinstance(name, str | torch.device):
        raise DeviceError(f"unknown device {name!r}; use auto, cpu, cuda or cuda:N")
    kind, colon, number = str(name).partition(":")
    right = number.isascii() and number.isdecimal() and len(number) < 10 if colon else True
    if kind not in ("cpu", "cuda") or not right or (kind == "cpu" and int(number or 0) > 0):
        raise DeviceError(f"unknown device '{name}'; use auto, cpu, cuda or cuda:N")
    if kind == "cpu":
        return torch.device("cpu")
    present = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(number or 0) >= present:
        seen = counted(present, "GPU")
        raise DeviceError(f"device '{name}' was asked for, but PyTorch sees {seen}; use --device cpu")
    return torch.device(str(name))


@contextmanager
def sensible_threads(flops: int | None) -> Iterator[None]:
    """Use one CPU thread for steps too small to be worth sharing out: waking the others costs more than it saves.

    flops  floating-point operations of a step's forward pass on the CPU; None on a GPU, where nothing is changed
    """
    if flops is None or flops >= WORTH_SHARING:
        yield
        return
    before = torch.get_num_threads()  # PyTorch has one number for the whole process: the caller gets it back
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)

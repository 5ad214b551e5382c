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


def only_device(name: str) -> torch.device:
    """Return a device that is the only one of this process: nothing of it is then on another GPU."""
    device = resolve_device(name)
    if device.index is not None:
        torch.cuda.set_device(device)
    return device


def resolve_devices(names: str, *, mixed: bool = False) -> list[torch.device]:
    """Return the devices for `all`, or for names separated by commas; processes share one that stands there twice.

    mixed  whether they may be GPUs of different types, on which results have other last bits
    """
    if names == "all":
        if not _gpus():
            raise DeviceError("--devices all: PyTorch sees no GPU; leave it out, or name devices: --devices cpu,cpu")
        names = ",".join(f"cuda:{number}" for number in range(_gpus()))
    elif names.strip().isdecimal():
        raise DeviceError(f"--devices {names}: give `all`, or names separated by commas, such as cuda:0,cuda:1")
    devices = [resolve_device(name.strip()) for name in names.split(",")]
    kinds = sorted({torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU" for device in devices})
    if len(kinds) > 1 and not mixed:
        raise DeviceError(
            f"--devices {names} are of different types ({', '.join(kinds)}), on which a run has other last bits; "
            "name devices of one type, or allow it with --mixed-devices"
        )
    return devices


def _gpus() -> int:
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _sees(present: int) -> str:
    last = f", the last of them cuda:{present - 1}" if present else ""
    return f"PyTorch sees {counted(present, 'GPU')}{last}"

"""The most memory that was in use at once: of PyTorch on a GPU, of the whole process on a CPU."""

from __future__ import annotations

import math
import re
from pathlib import Path

import torch

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


def forget_peak_memory(device: torch.device) -> None:
    """Begin to measure."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif _CLEAR.exists():
        _CLEAR.write_text(_RESET_PEAK)


def peak_memory_mb(device: torch.device) -> float:
    """Return the most megabytes since ``forget_peak_memory``; NaN on a system that does not report it."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    found = re.search(r"VmHWM:\s*(\d+) kB", _STATUS.read_text()) if _CLEAR.exists() else None
    return int(found[1]) * 1024 / 1e6 if found else math.nan

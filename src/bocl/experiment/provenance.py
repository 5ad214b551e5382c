"""What a result depends on besides its settings: the versions of the software, and the machine."""

from __future__ import annotations

import platform
import subprocess
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from bocl.version import __version__


@cache
def versions() -> dict[str, str]:
    """Return the versions of bocl and of what its results depend on."""
    packages = {name: metadata.version(name) for name in ("torch", "numpy", "botorch", "gpytorch")}
    return {"bocl": __version__, "commit": _commit(), "python": platform.python_version(), **packages}


def _commit() -> str:
    """Return the commit of the checkout bocl runs from, -dirty if changed since, or '' for an installed package."""
    here = Path(__file__).parent
    try:
        answer = subprocess.run(
            ["git", "-C", str(here), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""


def machine(device: torch.device) -> dict[str, Any]:
    """Describe what a run runs on: as much as its bits depend on."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    return {
        "device": str(device),
        "name": name,
        "system": platform.system(),
        "threads": torch.get_num_threads(),
    }


def node() -> str:
    """Return the name of the host, without its domain: where a person finds a run. No result depends on it."""
    return platform.node().partition(".")[0]


def _processor() -> str:
    """Return the name of the processor, and the instructions that torch uses of it."""
    names: list[str] = []
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"

"""What made a measurement: the command, the date, the versions and the machine."""

from __future__ import annotations

import os
import sys
from datetime import date
from typing import Any

import torch

from bocl.experiment.provenance import machine, versions


def made_by() -> dict[str, Any]:
    """Describe the command that runs, `python -m MODULE …`, for its record; where it writes is left out."""
    module = sys.modules["__main__"].__spec__
    words = " ".join(sys.argv[1:]).partition("--out")[0]
    return {
        "command": f"python -m {module.name if module else sys.argv[0]} {words}".strip(),
        "date": date.today().isoformat(),
        "versions": versions(),
        "machine": machine(torch.device("cpu")),
        "cores": os.cpu_count(),
    }

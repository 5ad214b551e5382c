"""How a large study behaves on more GPUs than we have: measured costs, a simulator, and a check of it."""

from __future__ import annotations

import json
import os
import sys
from datetime import date
from pathlib import Path
from typing import Any

import torch

from bocl.experiment.provenance import machine, versions

MEASUREMENTS = Path(__file__).parents[1] / "measurements" / "scaling"


def write_measurement(place: Path, found: dict[str, Any], load: float) -> None:
    """Write what was measured by this command, with what made it.

    load  of the machine before: how many processes wanted to run
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    module = Path(sys.argv[0]).stem
    record = {
        "command": f"python -m replication.scaling.{module} {' '.join(sys.argv[1:]).partition('--out')[0]}".strip(),
        "date": date.today().isoformat(),
        "versions": versions(),
        "machine": machine(torch.device("cpu")),
        "cores": os.cpu_count(),
        "load": [round(load, 2), round(os.getloadavg()[0], 2)],
        **found,
    }
    place.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

"""How a large study behaves on more GPUs than we have: measured costs, a simulator, and a check of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from replication.measured import made_by

MEASUREMENTS = Path(__file__).parents[1] / "measurements" / "scaling"


def write_measurement(place: Path, found: dict[str, Any], load: float) -> None:
    """Write what was measured by this command, with what made it.

    load  of the machine before: how many processes wanted to run
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    record = {**made_by(), "load": [round(load, 2), round(os.getloadavg()[0], 2)], **found}
    place.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

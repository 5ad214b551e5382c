"""What safety costs: the share of a run's time that writing and auditing take."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bocl.experiment.config import load_config
from bocl.experiment.run import run


@dataclass(frozen=True)
class SafetyCost:
    """Seconds of a whole run, and of it those spent on journal, files and audit."""

    preset: str
    seconds: float
    safety_seconds: float

    def describe(self) -> str:
        """Say it in one line."""
        share = 100 * self.safety_seconds / self.seconds
        return (
            f"{self.preset}: {self.safety_seconds:.2f} s of {self.seconds:.1f} s for journal and audit, {share:.2f} %"
        )


def measure_safety(
    preset: str, overrides: Sequence[str] = (), *, device: str = "auto", data: str | None = None
) -> SafetyCost:
    """Run a preset in a folder that passes, and count."""
    config = load_config(preset, overrides)
    spent: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        run(config, Path(folder) / "run", device=device, data=data, on_cost=spent.append)
        seconds = time.perf_counter() - began
    return SafetyCost(preset, seconds, spent[0])

"""Where the time of a whole run goes: training, journal and audit, and the rest (search, scoring, set-up)."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bocl.experiment.config import load_config
from bocl.experiment.run import run


@dataclass(frozen=True)
class RunCost:
    """Seconds of a run from the first import of its data to the last record, and parts of them.

    outside_training  the share that is not training
    safety            the share of journal, files and audit
    """

    preset: str
    seconds: float
    training_seconds: float
    safety_seconds: float
    outside_training: float
    safety: float

    def describe(self) -> str:
        """Say it in one line."""
        return (
            f"{self.preset}: {self.seconds:.1f} s, {100 * self.outside_training:.1f} % of it outside training, "
            f"{100 * self.safety:.1f} % for journal and audit"
        )


def measure_run(
    preset: str, overrides: Sequence[str] = (), *, device: str = "auto", data: str | None = None
) -> RunCost:
    """Run a preset in a folder that passes, and count."""
    config = load_config(preset, overrides)
    spent: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        records = run(config, Path(folder) / "run", device=device, data=data, on_cost=spent.append)
        seconds = time.perf_counter() - began
    training = sum(record.training_seconds for record in records)
    return RunCost(preset, seconds, training, spent[-1], 1 - training / seconds, spent[-1] / seconds)

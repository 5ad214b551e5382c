"""Measure how much memory a run of ``many`` takes, task by task: the most that its process has in use.

python -m replication.untuned.memory DATA --out RUN [--seed 0]

    DATA  the folder that replication.untuned.make has filled
    RUN   folder of the run, which must be new: a resumed run learns no task again

It writes ``memory.json`` next to this file, from which ``tables.py`` reads.
"""

from __future__ import annotations

import argparse
import json
from contextlib import chdir
from pathlib import Path

import torch

from bocl.benchmarks.peak import forget_peak_memory, peak_memory_mb
from bocl.experiment.config import load_config
from bocl.experiment.provenance import machine, versions
from bocl.experiment.run import run
from bocl.records.events import Event, TaskDone, TaskStarted
from replication.untuned.run import PRESETS

PLACE = Path(__file__).parent / "memory.json"
CPU = torch.device("cpu")


def measure(data: Path, out: Path, seed: int, tasks: int | None = None) -> list[float]:
    """Return the most megabytes in use while each task was learnt, scored and written."""
    peaks: list[float] = []

    def listen(event: Event) -> None:
        if isinstance(event, TaskStarted):
            forget_peak_memory(CPU)
        elif isinstance(event, TaskDone):
            peaks.append(round(peak_memory_mb(CPU), 1))

    out, few = out.resolve(), [] if tasks is None else [f"stream.tasks={tasks}"]
    config = load_config(str(PRESETS / "many.toml"), [f"seed={seed}", *few])
    with chdir(data):
        run(config, out, device="cpu", callback=listen)
    return peaks


def main() -> None:
    """Measure, and write what was found."""
    parser = argparse.ArgumentParser(prog="python -m replication.untuned.memory", description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    peaks = measure(asked.data, asked.out, asked.seed)
    facts = {"seed": asked.seed, "versions": versions(), "machine": machine(CPU), "peaks_mb": peaks}
    PLACE.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

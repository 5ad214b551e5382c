"""Run what ``evaluation/plan.toml`` lists, several runs at once on one GPU, and keep the records.

python results/evaluate.py --out runs/evaluation [--presets permuted-mnist] [--names gem,rcl] [--workers 8]

Runs go on where they stopped: give the same folder again. The journal of every finished run is kept in
evaluation/PRESET/NAME-seed-N.jsonl. Runs share the device, so their times are no one's cost; the records say so.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bocl.experiment.side_by_side import MOST_AT_ONCE
from bocl.records.run_log import JOURNAL
from bocl.records.summary import summarise

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Job:
    """One run."""

    preset: str
    name: str
    method: str
    seed: int
    overrides: tuple[str, ...]

    @property
    def place(self) -> str:
        """Its name among results."""
        return f"{self.preset}/{self.name}-seed-{self.seed}"


def jobs(presets: list[str] | None, names: list[str] | None) -> list[Job]:
    """Return the runs of the plan that are wanted, in its order."""
    plan = tomllib.loads((HERE / "evaluation" / "plan.toml").read_text())
    return [
        Job(preset, entry["name"], entry.get("method", entry["name"]), seed, tuple(entry.get("set", ())))
        for entry in plan["run"]
        for preset in entry["presets"]
        for seed in plan["seeds"]
        if (presets is None or preset in presets) and (names is None or entry["name"] in names)
    ]


def evaluate(job: Job, out: Path, kept: Path, *, device: str, workers: int) -> str:
    """Do one run, or find it finished; keep its journal. Return what there is to say."""
    folder = out / job.place
    command = [sys.executable, "-m", "bocl", "run", job.preset, "--methods", job.method, "--seeds", str(job.seed)]
    command += [word for override in job.overrides for word in ("--set", override)]
    command += ["--out", str(folder), "--device", device, "--json"]
    command += ["--at-once", str(min(workers, MOST_AT_ONCE))] if workers > 1 else []
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    if done.returncode:
        return f"{job.place}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}"
    (journal,) = folder.glob(f"*/{JOURNAL}")
    figures = summarise(journal.parent).figures()
    place = kept / f"{job.place}.jsonl"
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(journal, place)
    return f"{job.place}: {100 * figures['accuracy']:.2f} %, {figures['parameters']:,} parameters"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--presets", help="only these, separated by commas")
    parser.add_argument("--names", help="only these, separated by commas")
    parser.add_argument("--workers", type=int, default=8, help="processes at once")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--write", type=Path, default=HERE / "evaluation", help="folder of the journals")
    options = parser.parse_args()
    wanted = jobs(*(text.split(",") if text else None for text in (options.presets, options.names)))

    def one(job: Job) -> str:
        return evaluate(job, options.out, options.write, device=options.device, workers=options.workers)

    with ThreadPoolExecutor(options.workers) as pool:
        for line in pool.map(one, wanted):
            print(line, flush=True)


if __name__ == "__main__":
    main()

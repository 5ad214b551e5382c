"""Choose each method's own settings on validation: every point of ``grids.toml`` is run, the best one kept.

python -m replication.tune --preset permuted-mnist --out runs/tuning [--workers 4] [--methods ewc,gem] [--device cuda]

Runs go on where they stopped. The points, their scores and the best finished one go to measurements/tuning/PRESET.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bocl.records.journal import read
from bocl.records.run_log import JOURNAL, RunLog

TUNING = Path(__file__).parent / "measurements" / "tuning"


def points(grid: dict[str, Any]) -> list[list[str]]:
    """Return the overrides of every point of a grid."""
    varied = [[f"{name}={json.dumps(value)}" for value in values] for name, values in grid["vary"].items()]
    return [[*grid.get("fixed", []), *choice] for choice in itertools.product(*varied)]


def score(overrides: list[str], folder: Path, tasks: int) -> dict[str, Any]:
    """Return the mean validation accuracy over all tasks after the last, None of a run that is not finished."""
    journal = next(iter(folder.glob(f"*/{JOURNAL}")), None)
    finished = RunLog.of(read(journal), journal).tasks if journal else []
    if len(finished) < tasks:
        return {"settings": overrides, "validation": None, "tasks": len(finished)}
    row = finished[-1].validation_row
    return {"settings": overrides, "validation": sum(row) / len(row), "row": row, "parameters": finished[-1].stored}


def choose(scored: list[dict[str, Any]], within: float) -> dict[str, Any] | None:
    """Return the smallest network of those within a tolerance of the best; of equal size the more accurate one."""
    top = max((result["validation"] for result in scored), default=0.0)
    near = [result for result in scored if result["validation"] >= top - within]
    return min(near, key=lambda result: (result["parameters"], -result["validation"]), default=None)


def run_point(job: tuple[dict[str, Any], list[str], Path], common: list[str], device: str) -> None:
    """Run one point, or find it finished."""
    grid, overrides, folder = job
    sets = [word for override in (*overrides, *common) for word in ("--set", override)]
    command = [sys.executable, "-m", "bocl", "run", grid["preset"], "--methods", grid["method"], *sets]
    command += ["--out", str(folder), "--device", device, "--json"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    if done.returncode:
        print(f"{grid['method']} {' '.join(overrides)}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--methods", help="only these, separated by commas")
    parser.add_argument("--workers", type=int, default=4, help="processes at once")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--score", action="store_true", help="run nothing: score what the folder holds")
    parser.add_argument("--write", type=Path, default=TUNING, help="folder of the result")
    options = parser.parse_args()
    plan = tomllib.loads((TUNING / "grids.toml").read_text())
    wanted = options.methods.split(",") if options.methods else None
    grids = [
        grid
        for grid in plan["grid"]
        if grid["preset"] == options.preset and (wanted is None or grid["method"] in wanted)
    ]
    common = [f"stream.tasks={plan['tasks']}", f"seed={plan['seed']}"]
    jobs = [
        (grid, overrides, options.out / options.preset / grid["method"] / f"{number:03d}")
        for grid in grids
        for number, overrides in enumerate(points(grid))
    ]
    if not options.score:
        with ThreadPoolExecutor(options.workers) as pool:
            list(pool.map(lambda job: run_point(job, common, options.device), jobs))
    results = [score(overrides, folder, plan["tasks"]) for _, overrides, folder in jobs]
    file = options.write / f"{options.preset}.json"
    record = json.loads(file.read_text()) if file.exists() else {"preset": options.preset, "methods": {}}
    for grid in grids:
        tried = [result for (owner, _, _), result in zip(jobs, results, strict=True) if owner is grid]
        scored = [result for result in tried if result["validation"] is not None]
        best = choose(scored, plan["within"])
        record["methods"][grid["method"]] = {
            "date": datetime.now(UTC).date().isoformat(),
            "tasks": plan["tasks"],
            "seed": plan["seed"],
            "versions": _versions(options.out),
            "best": best["settings"] if best else None,
            "points": tried,
        }
        print(f"{grid['method']}: best {best['settings'] if best else 'none'}")
        for result in sorted(tried, key=lambda result: -(result["validation"] or 0)):
            shown = "unfinished" if result["validation"] is None else f"{100 * result['validation']:.2f} %"
            print(f"  {shown}  {' '.join(result['settings'])}")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(record, indent=1) + "\n")


def _versions(folder: Path) -> dict[str, Any]:
    """Return versions and machine of the runs, from the first journal found."""
    journal = next(iter(sorted(folder.rglob(JOURNAL))), None)
    if journal is None:
        return {}
    start = RunLog.of(read(journal)[:1], journal).starts[0]
    return {**start.versions, "machine": start.machine}


if __name__ == "__main__":
    main()

"""The noise of a child's validation accuracy with and without averaged weights, and what it does to a search.

python -m replication.averaging.noise    replays our search on every pair of tables, and writes noise.json

    trials/STREAM-off.json, trials/STREAM-last.json    made by `python -m replication.search table`, alike but for
                                                       recipe.average

Each task of a table is the last one in turn. A search is told one seed's validation accuracy; what it keeps is judged
on other samples.
"""

from __future__ import annotations

import json
import math
from datetime import date
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from bocl.experiment.provenance import versions
from bocl.records.files import write_whole
from bocl.search.searchers import make_searcher
from bocl.search.settings import SearchSettings
from replication.search.replay import ReplayTask, replay
from replication.search.trial_table import TrialTable, read_table, replay_tasks

HERE = Path(__file__).parent
TRIALS, PLACE = HERE / "trials", HERE / "noise.json"
AVERAGES = ("off", "last")
ALPHAS = {"digits": 1e-3, "permuted-mnist": 1.5e-3, "split-cifar100": 5e-3}  # of the last two, the lower of replicas.py
REPLAYS, TRIALS_OF_A_SEARCH = 40, 24


def spread(table: TrialTable) -> float:
    """Return the standard deviation, over seeds, of a child's validation accuracy: pooled over widths and tasks."""
    return math.sqrt(fmean(float(np.var(row, ddof=1)) for task in table.tasks for row in task.seen))


def searched(stream: list[ReplayTask], seed: int) -> tuple[float, float, float]:
    """Return the trials that a search needs, the regret of what it keeps, and the reward of that on other samples."""
    first = seed % len(stream)
    turned = stream[first:] + stream[:first]
    found = replay(turned, make_searcher, SearchSettings(trials=20), trials=TRIALS_OF_A_SEARCH, seed=seed)
    return found.trials_to_reach(), found.ended.regret, turned[-1].best_reward - found.ended.regret


def measured(stream: str, average: str) -> dict[str, Any]:
    """Return what a table says of noise and of searches."""
    table = read_table(TRIALS / f"{stream}-{average}.json")
    found = [searched(replay_tasks(table, ALPHAS[stream]), seed) for seed in range(REPLAYS)]
    trials, regrets, rewards = zip(*found, strict=True)
    return {
        "stream": stream,
        "average": average,
        "noise": spread(table),
        "trials": None if math.isinf(median(trials)) else median(trials),
        "regret": fmean(regrets),
        "reward": fmean(rewards),
        "table": table.about,
    }


def rows() -> str:
    """Return what is on record as a table."""
    lines = [
        "| stream | weights | noise, points | trials to the target | regret of the kept child, points | its reward |",
        "|---|---|---|---|---|---|",
    ]
    for one in json.loads(PLACE.read_text(encoding="utf-8"))["rows"]:
        trials = f"more than {TRIALS_OF_A_SEARCH}" if one["trials"] is None else f"{one['trials']:g}"
        name = "averaged" if one["average"] == "last" else "of the last step"
        figures = [f"{100 * one['noise']:.2f}", trials, f"{100 * one['regret']:.2f}", f"{100 * one['reward']:.2f} %"]
        lines.append(f"| `{one['stream']}` | {' | '.join([name, *figures])} |")
    return "\n".join(lines)


def main() -> None:
    """Replay, and write the record."""
    streams = [name for name in ALPHAS if all((TRIALS / f"{name}-{average}.json").exists() for average in AVERAGES)]
    made = {"date": date.today().isoformat(), "versions": versions(), "replays": REPLAYS}
    record = {**made, "rows": [measured(stream, average) for stream in streams for average in AVERAGES]}
    write_whole(PLACE, (json.dumps(record, indent=1) + "\n").encode())
    print(rows())


if __name__ == "__main__":
    main()

"""Should a round of 8 children train 8 widths once, or 4 widths twice?

Our search is replayed on the tables of real trials, as in a run, in both ways. For widths trained twice it is told the
mean of both accuracies, and the better child is kept. Each task of a table is the last one in turn.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from statistics import fmean, stdev

import numpy as np

from bocl.experiment.provenance import versions
from bocl.search.problem import FloatArray, IntArray
from bocl.search.searchers import make_searcher
from bocl.search.settings import SearchSettings
from replication.search.replay import Ended, ReplayTask, replay
from replication.search.trial_table import read_table, replay_tasks

TABLES = Path(__file__).parent.parent / "measurements" / "growth_table"
ALPHAS = {"permuted-mnist": (1.5e-3, 5e-3), "split-cifar100": (5e-3, 1.5e-2)}
REPLAYS = 60


def trained_twice(task: ReplayTask) -> ReplayTask:
    """Return the task as a search sees it if every child is trained twice."""

    def measure(z: IntArray, generator: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        draws = [task.measure(z, generator) for _ in range(2)]
        seen, others = (np.stack([draw[part] for draw in draws]) for part in (0, 1))
        return seen.mean(0), np.take_along_axis(others, seen.argmax(0)[None], 0)[0]

    return replace(task, measure=measure)


def ended(stream: list[ReplayTask], places: int, seed: int) -> Ended:
    """Return how the search of the last task ended; the seed decides which task of the stream comes first."""
    first = seed % len(stream)
    settings = SearchSettings(round_size=places)
    turned = stream[first:] + stream[:first]
    return replay(turned, make_searcher, settings, trials=settings.warm_points + 1, seed=seed).ended


def main() -> None:
    """Print a record of how both ways did."""
    rows = []
    for name, alphas in ALPHAS.items():
        for alpha in alphas:
            once = replay_tasks(read_table(TABLES / f"{name}.json"), alpha)
            twice = [trained_twice(task) for task in once]
            for ways, stream, widths in (("8 widths once", once, 8), ("4 widths twice", twice, 4)):
                found = [ended(stream, widths, seed) for seed in range(REPLAYS)]
                regrets = [one.regret for one in found]
                rows.append(
                    {
                        "table": name,
                        "alpha": alpha,
                        "round": ways,
                        "children": fmean(one.trials for one in found) * 8 / widths,
                        "rounds": fmean(one.rounds for one in found),
                        "regret": fmean(regrets),
                        "error": stdev(regrets) / len(regrets) ** 0.5,
                    }
                )
    made = {"date": date.today().isoformat(), "versions": versions()}
    print(json.dumps({**made, "replays": REPLAYS, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()

"""Do earlier tasks harm a search if tasks differ?

Our search with and without earlier tasks, on simulated streams of four tasks. The fourth is measured. The second and
the fourth task are reversed, or only the fourth: their groups have each other's curves, in reverse order. The outcome
is the regret with earlier tasks less that without, after a number of trials, and for the child kept as in a run.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import date
from itertools import product
from statistics import fmean, stdev

from bocl.experiment.provenance import versions
from bocl.search.searchers import make_searcher
from bocl.search.settings import SearchSettings
from bocl.seeding import seed_for
from replication.search.replay import Replay, replay
from replication.search.simulated import simulated_stream

ALPHAS = (5e-3, 1e-2)
STREAMS = {"2nd and 4th": (1, 3), "4th": (3,)}  # the tasks that are reversed
AFTER = (4, 8, 16, 20, 30)  # trials
REPLAYS = 40


def both(task: tuple[str, float, int]) -> tuple[Replay, Replay]:
    """Return a replay with earlier tasks, and one of the last task without them."""
    turned, alpha, number = task
    stream = simulated_stream(number, alpha=alpha, turned=STREAMS[turned])
    seed, settings = seed_for(number, "replay"), SearchSettings()
    alone = replace(settings, transfer=False)
    return (
        replay(stream, make_searcher, settings, trials=AFTER[-1], seed=seed),
        replay(stream[-1:], make_searcher, alone, trials=AFTER[-1], seed=seed),
    )


def mean_and_error(values: list[float]) -> tuple[float, float]:
    """Return the mean and its standard error."""
    return fmean(values), stdev(values) / len(values) ** 0.5


def main() -> None:
    """Print a record of what earlier tasks cost."""
    rows = []
    with ProcessPoolExecutor() as pool:
        for turned, alpha in product(STREAMS, ALPHAS):
            pairs = list(pool.map(both, [(turned, alpha, number) for number in range(REPLAYS)]))
            costs = {at: [taught.regret_after(at) - alone.regret_after(at) for taught, alone in pairs] for at in AFTER}
            kept = [taught.ended.regret - alone.ended.regret for taught, alone in pairs]
            row = {
                "turned": turned,
                "alpha": alpha,
                "after": {at: mean_and_error(values) for at, values in costs.items()},
                "kept": mean_and_error(kept),
                "alone": mean_and_error([alone.ended.regret for _, alone in pairs]),
                "trials": [fmean(pair[way].ended.trials for pair in pairs) for way in (0, 1)],
                "rounds": [fmean(pair[way].ended.rounds for pair in pairs) for way in (0, 1)],
            }
            rows.append(row)
            print(row, file=sys.stderr)
    made = {"date": date.today().isoformat(), "versions": versions()}
    print(json.dumps({**made, "replays": REPLAYS, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()

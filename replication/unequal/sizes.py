"""Write the studies of constants: the mean shape that a search added, and one chosen beforehand, at the search's size.

python -m replication.unequal.sizes RECORDS

A constant is a network of its own for every task. What it stores is counted; accuracies play no part. A search with a
price is also compared with one that has its size as the budget of all tasks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from bocl.records.summary import RunSummary, find_runs, summarise
from replication.records import name_of

HERE = Path(__file__).parent
STUDIES = {
    HERE / "studies" / "constants.toml": {"bocl": "", "bocl-total": "-total"},  # search: what names end in
    HERE / "studies" / "price-rivals.toml": {"price-15k": "-15k", "price-30k": "-30k"},
}
PRESET = "replication/unequal/presets/unequal.toml"
HALVES = (2.0, 1.0)
INPUTS = 64
FINEST = 1000  # steps of a scale


def stored(hidden: Sequence[int], classes: Sequence[int]) -> int:
    """Return the parameters of one network for every task: two hidden layers and a head, with biases."""
    first, second = hidden
    body = (INPUTS + 1) * first + (first + 1) * second
    return sum(body + (second + 1) * each for each in classes)


def scaled(shape: Sequence[float], parameters: float, classes: Sequence[int]) -> tuple[int, ...]:
    """Return the widths in the proportions of a shape that store most nearly so many parameters."""
    steps = (64 * step / FINEST / max(shape) for step in range(1, 2 * FINEST))
    options = {tuple(max(1, round(factor * width)) for width in shape) for factor in steps}
    return min(sorted(options), key=lambda hidden: abs(stored(hidden, classes) - parameters))


def mean_shape(runs: Sequence[RunSummary]) -> tuple[float, ...]:
    """Return the mean widths that were added, over all tasks of all runs."""
    added = [task.widths for run in runs for task in run.tasks]
    return tuple(map(fmean, zip(*added, strict=True)))


def study(runs: Sequence[RunSummary], classes: Sequence[int], searches: Mapping[str, str]) -> str:
    """Return the study of what searches that are on record are compared with: {search: what the names end in}."""
    entries, seeds = [], sorted({run.seed for run in runs if name_of(run) in searches})
    for search, ending in searches.items():
        made = [run for run in runs if name_of(run) == search and run.finished]
        size = fmean(run.tasks[-1].stored for run in made) if made else 0.0
        for name, shape in (("mean", mean_shape(made)), ("halves", HALVES)) if made else ():
            widths = json.dumps(scaled(shape, size, classes), separators=(",", ":"))
            entries.append(f'[[run]]\nmethod = "independent"\nname = "{name}{ending}"\n')
            entries.append(f'set = ["network.arguments.hidden={widths}"]\n\n')
        if made and search.startswith("price"):
            entries.append(f'[[run]]\nmethod = "bocl"\nname = "total{ending}"\n')
            entries.append(f'set = ["goal.total_budget={round(size)}", "search.halving=false"]\n\n')
    head = "# Constants that store as much as a search; made by sizes.py."
    rest = f'on = ["{PRESET}"]\nseeds = {seeds}\n\n{"".join(entries)}'
    return f"{head}\n{rest}".rstrip("\n") + "\n"


def classes_of(runs: Sequence[RunSummary]) -> list[int]:
    """Return the classes of every table, from a run of the front: a head reads 32 units and a bias."""
    run = next(run for run in runs if name_of(run) == "front-64")
    return [task.parameters["heads"] // (32 + 1) for task in run.tasks]


def main() -> None:
    """Write the studies of searches that are on record."""
    runs = list(map(summarise, find_runs(Path(sys.argv[1]))))
    made = set(map(name_of, runs))
    for place, searches in STUDIES.items():
        if made & searches.keys():
            place.write_text(study(runs, classes_of(runs), searches), encoding="utf-8")


if __name__ == "__main__":
    main()

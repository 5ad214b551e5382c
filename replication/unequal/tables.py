"""Make the tables of this folder's README.md from the records.

python -m replication.unequal.tables            prints the tables
python -m replication.unequal.tables --write    puts each between its marks
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from math import exp, log, sqrt
from statistics import fmean, median

import numpy as np
from scipy.optimize import LinearConstraint, milp
from scipy.stats import t as student

from bocl.records.summary import RunSummary, find_runs, summarise
from bocl.report.figures import percent_with_sd, short_count
from bocl.report.systems import Spread
from bocl.wording import percent, points
from replication.evaluation.tables import SURE, BySeed, Difference, accuracy
from replication.records import name_of
from replication.tables import filled
from replication.unequal.sizes import HERE

PAGE, RESULTS = HERE / "README.md", HERE / "results"
GROUPS = {"bocl": ("mean", "halves", "random"), "bocl-total": ("mean-total", "halves-total", "random-total")}
PRICED = {f"price-{size}": tuple(f"{rival}-{size}" for rival in ("mean", "halves", "total")) for size in ("15k", "30k")}
AGAIN = {"price-again": ("mean-again", "halves-again")}
SIZES = (8, 16, 32, 64)
COMPARISONS, LEVEL, SEEDS = 6, 0.005, 8
OPEN = "- **open**: there is no run yet"


@cache
def runs() -> Mapping[str, dict[int, RunSummary]]:
    """Return the finished runs on record: name → by seed."""
    found: dict[str, dict[int, RunSummary]] = {}
    for run in map(summarise, find_runs(RESULTS) if RESULTS.is_dir() else []):
        if run.finished:
            found.setdefault(name_of(run), {})[run.seed] = run
    return found


def with_half(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of values of as many seeds, and half of its interval."""
    spread = Spread.of(values)
    return spread.mean, float(student.ppf((1 + SURE) / 2, len(values) - 1)) * (spread.sd or 0.0) / sqrt(len(values))


def size_of(by_seed: BySeed) -> float:
    """Return what the runs of a system store, on average."""
    return fmean(run.tasks[-1].stored for run in by_seed.values())


def tried_table() -> str:
    """Return the recipes, and what constants may read."""
    found = {name: run for name, run in seed_100().items() if not name.startswith("price-")}
    scores = {name: fmean(run.tasks[-1].validation_row) for name, run in found.items()}
    recipes = {name: score for name, score in scores.items() if name.startswith("recipe-")}
    lines = [
        "| network of a task | learning rate | epochs | reads | parameters | validation |",
        "|---|---|---|---|---|---|",
    ]
    for name, run in sorted(found.items(), key=lambda entry: (entry[0].startswith("reads"), -scores[entry[0]])):
        recipe, score = run.config["recipe"], percent(scores[name])
        widths = ", ".join(map(str, run.config["network"]["arguments"]["hidden"]))
        reads = run.config["growth"]["reads"] if run.config["method"] == "fixed" else "own"
        cells = [widths, f"{recipe['learning_rate']:g}", recipe["epochs"], {"own": "nothing"}.get(reads, reads)]
        told = f"**{score}**" if name == max(recipes, key=recipes.__getitem__) else score
        lines.append(f"| {' | '.join(map(str, [*cells, short_count(run.tasks[-1].stored), told]))} |")
    return "\n".join(lines)


def seed_100() -> dict[str, RunSummary]:
    """Return what was tried on the seed that is not compared."""
    return {name: by_seed[100] for name, by_seed in runs().items() if 100 in by_seed}


def prices_table() -> str:
    """Return the prices that were tried, and whether children were stopped early."""
    lines = ["| price of 1,000 parameters | children are stopped | parameters | validation |", "|---|---|---|---|"]
    for name, run in sorted(seed_100().items(), key=lambda entry: entry[1].tasks[-1].stored):
        if name.startswith("price-"):
            stopped = "yes" if run.config["search"]["halving"] else "no"
            score = percent(fmean(run.tasks[-1].validation_row))
            size = short_count(run.tasks[-1].stored)
            lines.append(f"| {100 * run.config['goal']['price']:g} points | {stopped} | {size} | {score} |")
    return "\n".join(lines) if len(lines) > 2 else OPEN


def compared_table(groups: Mapping[str, Sequence[str]], seeds: int = SEEDS, comparisons: int = COMPARISONS) -> str:
    """Return every search, and what it is compared with, so many times in all."""
    lines = [
        "| system | seeds | accuracy | parameters | `bocl` of this size less it | | children of a task |",
        "|---|---|---|---|---|---|---|",
    ]
    missing = []
    for search, rivals in groups.items():
        for name in (search, *rivals):
            by_seed = runs().get(name, {})
            if len(by_seed) < seeds:
                missing.append(f"`{name}` ({len(by_seed)} of {seeds} seeds)")
            if by_seed:
                lines.append(_row(name, search, by_seed, comparisons))
    if missing:
        lines += ["", f"- **open**: {', '.join(missing)}"]
    return "\n".join(lines)


def _row(name: str, search: str, by_seed: BySeed, comparisons: int) -> str:
    difference = Difference.of(runs().get(search, {}), by_seed, comparisons, LEVEL) if name != search else None
    children = fmean(max(1, len(task.trials)) for run in by_seed.values() for task in run.tasks)
    share = f" ({size_of(by_seed) / size_of(runs()[search]):.0%})" if name != search and search in runs() else ""
    cells = [
        f"`{name}`",
        str(len(by_seed)),
        percent_with_sd(Spread.of([accuracy(run) for run in by_seed.values()])),
        short_count(size_of(by_seed)) + share,
        str(difference or ""),
        difference.verdict if difference else "",
        f"{children:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def front() -> dict[int, dict[int, RunSummary]]:
    """Return the runs of the front: size → by seed."""
    return {size: runs()[f"front-{size}"] for size in SIZES if f"front-{size}" in runs()}


def needed(run: RunSummary) -> float:
    """Return what a constant stores that is as accurate as a run of the same seed; NaN beyond the front's ends."""
    found = [front()[size][run.seed] for size in SIZES]
    places = [log(one.tasks[-1].stored) for one in found]
    for low in range(len(SIZES) - 1):
        here, there = accuracy(found[low]), accuracy(found[low + 1])
        if here <= accuracy(run) <= there:
            return exp(places[low] + (places[low + 1] - places[low]) * (accuracy(run) - here) / (there - here))
    return float("nan")


def equal_accuracy_table() -> str:
    """Return what searches store, as a share of what a constant stores that is as accurate."""
    lines = ["| system | seeds on the front | stores, as a share of a constant as accurate |", "|---|---|---|"]
    for name in [one for search, rivals in GROUPS.items() for one in (search, rivals[-1]) if one in runs()]:
        ratios = [log(run.tasks[-1].stored / needed(run)) for run in runs()[name].values()]
        kept = [ratio for ratio in ratios if ratio == ratio]
        if len(kept) > 1:
            mean, half = with_half(kept)
            low, middle, high = (f"{exp(value):.0%}" for value in (mean - half, mean, mean + half))
            lines.append(f"| `{name}` | {len(kept)} of {len(ratios)} | {middle} ({low} to {high}) |")
    return "\n".join(lines)


def front_scores(split: str) -> dict[int, dict[str, list[float]]]:
    """Return {seed: {table: its accuracy at every size of the front}}, on `validation` or `test` samples."""
    found: dict[int, dict[str, list[float]]] = {}
    for size in SIZES:
        for seed, run in front()[size].items():
            last = run.tasks[-1]
            for task, value in zip(run.tasks, last.row if split == "test" else last.validation_row, strict=True):
                found.setdefault(seed, {}).setdefault(task.name, []).append(value)
    return found


def front_parameters() -> dict[str, list[int]]:
    """Return what the network of a table stores at every size of the front."""
    found: dict[str, list[int]] = {}
    for size in SIZES:
        for task in front()[size][0].tasks:
            found.setdefault(task.name, []).append(sum(task.parameters.values()))
    return found


def chosen(scores: Mapping[str, Sequence[float]], total: float) -> dict[str, int]:
    """Return a size for every table, so that the sum of scores is largest and no more is stored than a total.

    max Σ s[t, k] x[t, k],  Σ p[t, k] x[t, k] ≤ total,  Σ_k x[t, k] = 1,  x in {0, 1}
    """
    parameters, names = front_parameters(), sorted(scores)
    gain = np.concatenate([scores[name] for name in names])
    price = np.concatenate([parameters[name] for name in names])
    one_each = np.kron(np.eye(len(names)), np.ones(len(SIZES)))
    found = milp(
        -gain + 1e-9 * price,  # of equal ones the smaller
        integrality=np.ones(len(gain)),
        bounds=(0, 1),
        constraints=[LinearConstraint(price[None], 0, total), LinearConstraint(one_each, 1, 1)],
    )
    picked = found.x.reshape(len(names), len(SIZES)).argmax(axis=1)
    return dict(zip(names, picked.tolist(), strict=True))


def others(seed: int) -> dict[str, list[float]]:
    """Return the validation accuracy of every table and size, the mean over all other seeds."""
    validation = front_scores("validation")
    rest = [scores for of, scores in validation.items() if of != seed]
    return {name: np.mean([scores[name] for scores in rest], axis=0).tolist() for name in validation[seed]}


def headroom_table() -> str:
    """Return what sizes chosen for every table gain over one size for all."""
    if len(front()) < len(SIZES):
        return OPEN
    test, validation = front_scores("test"), front_scores("validation")
    lines = [
        "| one size for all | parameters | accuracy | sizes by an oracle | gain | sizes by one trial each | gain |",
        "|---|---|---|---|---|---|---|",
    ]
    for place, size in enumerate(SIZES):
        total = sum(values[place] for values in front_parameters().values())
        constant = {seed: fmean(values[place] for values in scores.values()) for seed, scores in test.items()}
        cells = [f"{size}, {size // 2}", short_count(total), percent(fmean(constant.values()))]
        for by in (others, validation.__getitem__):
            reached = {}
            for seed, scores in test.items():
                picked = chosen(by(seed), total)
                reached[seed] = fmean(scores[name][at] for name, at in picked.items())
            gain, half = with_half([reached[seed] - constant[seed] for seed in sorted(test)])
            cells += [percent(fmean(reached.values())), f"{points(gain)} ± {100 * half:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def by_table(search: str) -> str:
    """Return for every table the front, what the oracle takes at the size of a search, and what that did."""
    searched = list(runs().get(search, {}).values())
    if len(front()) < len(SIZES) or not searched:
        return OPEN
    test, parameters = front_scores("test"), front_parameters()
    picked = [chosen(others(run.seed), run.tasks[-1].stored) for run in searched]
    lines = [
        f"| table | {' | '.join(f'{size}, {size // 2}' for size in SIZES)} | oracle | stores | `{search}` | stores |",
        f"|---|{'---|' * len(SIZES)}---|---|---|---|",
    ]
    for name in sorted(parameters):
        places = [next(at for at, task in enumerate(run.tasks) if task.name == name) for run in searched]
        levels = [fmean(scores[name][at] for scores in test.values()) for at in range(len(SIZES))]
        oracle = fmean(test[run.seed][name][one[name]] for run, one in zip(searched, picked, strict=True))
        reached = fmean(run.tasks[-1].row[at] for run, at in zip(searched, places, strict=True))
        spent = fmean(parameters[name][one[name]] for one in picked)
        took = fmean(sum(run.tasks[at].parameters.values()) for run, at in zip(searched, places, strict=True))
        cells = [name, *map(percent, (*levels, oracle)), short_count(spent), percent(reached), short_count(took)]
        lines.append(f"| {' | '.join(cells)} |")
    by_oracle = [
        fmean(test[run.seed][name][at] for name, at in one.items()) for run, one in zip(searched, picked, strict=True)
    ]
    gain, half = with_half([value - accuracy(run) for value, run in zip(by_oracle, searched, strict=True)])
    stopped = fmean(task.limit == "budget" for run in searched for task in run.tasks)
    return "\n".join(
        [
            *lines,
            "",
            f"- All tables: at the size of `{search}`, seed by seed, the oracle reaches {percent(fmean(by_oracle))}, "
            f"{points(gain)} ± {100 * half:.2f} points more.",
            f"- What a task may store kept `{search}` from growing further in {stopped:.0%} of the tasks.",
        ]
    )


def spent_table(groups: Mapping[str, Sequence[str]]) -> str:
    """Return for every table what a search with a price, the mean shape and a total budget spend and reach there."""
    names = [name for search, (mean, _, *total) in groups.items() for name in (search, mean, *total)]
    systems = [name for name in names if name in runs()]
    if not systems:
        return OPEN
    lines = [f"| table |{''.join(f' `{name}` | stores |' for name in systems)}", f"|---|{'---|---|' * len(systems)}"]
    for table in sorted(task.name for task in next(iter(runs()[systems[0]].values())).tasks):
        cells = [table]
        for name in systems:
            found = [
                (run, at) for run in runs()[name].values() for at, task in enumerate(run.tasks) if task.name == table
            ]
            cells.append(percent(fmean(run.tasks[-1].row[at] for run, at in found)))
            cells.append(short_count(fmean(sum(run.tasks[at].parameters.values()) for run, at in found)))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", *map(_noise, systems)])


def _noise(name: str) -> str:
    """Return how far what is stored for a table differs between seeds, and how lucky its validation samples were."""
    last = [run.tasks[-1] for run in runs()[name].values()]
    lucky = fmean(fmean(one.validation_row) - fmean(one.row) for one in last)
    sizes: dict[str, list[int]] = {}
    for run in runs()[name].values():
        for task in run.tasks:
            sizes.setdefault(task.name, []).append(sum(task.parameters.values()))
    factor = median(max(found) / min(found) for found in sizes.values())
    return (
        f"- `{name}`: {points(lucky)} points more on validation samples than in test; what a table gets differs "
        f"between seeds by a factor of {factor:.1f}, the median of all."
    )


def tables() -> dict[str, Callable[[], str]]:
    """Return every table by the name of its marks."""
    return {
        "tried": tried_table,
        "compared": partial(compared_table, GROUPS),
        "equal-accuracy": equal_accuracy_table,
        "headroom": headroom_table,
        "by-table": partial(by_table, "bocl"),
        "by-table-total": partial(by_table, "bocl-total"),
        "prices": prices_table,
        "compared-price": partial(compared_table, PRICED),
        "spent": partial(spent_table, PRICED),
        "compared-again": partial(compared_table, AGAIN, seeds=12, comparisons=2),
        "spent-again": partial(spent_table, AGAIN),
    }


def main() -> None:
    """Print the tables, or write them."""
    if "--write" in sys.argv[1:]:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), tables()), encoding="utf-8")
    else:
        print("\n\n".join(table() for table in tables().values()))


if __name__ == "__main__":
    main()

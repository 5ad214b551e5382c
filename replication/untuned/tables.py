"""Make the tables of this folder's README.md from the journals of the runs.

python -m replication.untuned.tables            prints them
python -m replication.untuned.tables --write    puts each between its marks, <!-- name --> and <!-- /name -->
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean, median

from bocl.experiment.study import load_study
from bocl.records.record import TaskRecord
from bocl.records.summary import RunSummary, find_runs, summarise
from bocl.report.figures import percent_with_sd
from bocl.report.systems import Spread
from bocl.wording import counted, points
from replication.records import name_of, preset_of
from replication.tables import filled
from replication.untuned.run import READING, STUDY
from replication.untuned.streams import STREAMS

PAGE = Path(__file__).parent / "README.md"
RESULTS = Path(__file__).parent / "results"
MEMORY = Path(__file__).parent / "memory.json"  # made by memory.py
MANY = "many"
NINE = [name for name in STREAMS if name != MANY]
OWN, BASE = "bocl", "independent"
BEHIND, WORST_BEHIND = 0.005, 0.015  # of accuracy: on average, and on any stream
SHARE, WORST_SHARE = 0.6, 1.0  # of independent's parameters: on average, and on any stream
EARLY, LATE = slice(14, 25), slice(189, 200)  # tasks 15 to 25 and 190 to 200, from 0

Runs = dict[tuple[str, str], dict[int, RunSummary]]  # (stream, system): {seed: run}


@dataclass(frozen=True)
class Beside:
    """A system beside a network per task, on the seeds that both have.

    accuracy  test accuracy over all tasks after the last, by seed
    gains     that less independent's of the same seed
    stored    parameters at the end, mean over seeds
    share     of independent's
    cost      of a task's search: samples shown, over those shown to the one network of independent; median over the
              tasks that were searched for and over seeds; None without a search
    """

    accuracy: Spread
    gains: Spread
    stored: float
    share: float
    cost: float | None


def arranged(runs: Sequence[RunSummary]) -> Runs:
    """Return finished runs by stream, system and seed."""
    found: Runs = {}
    for run in runs:
        if run.finished:
            found.setdefault((preset_of(run), name_of(run)), {})[run.seed] = run
    return found


def beside(runs: Runs, stream: str, system: str) -> Beside | None:
    """Return a system beside independent, None if they have no seed in common."""
    own, base = runs.get((stream, system), {}), runs.get((stream, BASE), {})
    pairs = [(own[seed], base[seed]) for seed in sorted(own.keys() & base.keys())]
    if not pairs:
        return None
    stored, base_stored = (fmean(_stored(run) for run in side) for side in zip(*pairs, strict=True))
    costs = [
        task.samples / alone.samples
        for run, other in pairs
        for task, alone in zip(run.tasks, other.tasks, strict=True)
        if task.trials
    ]
    return Beside(
        Spread.of([_accuracy(run) for run, _ in pairs]),
        Spread.of([_accuracy(run) - _accuracy(other) for run, other in pairs]),
        stored,
        stored / base_stored,
        median(costs) if costs else None,
    )


def _accuracy(run: RunSummary) -> float:
    return float(run.figures()["accuracy"])


def _stored(run: RunSummary) -> float:
    return float(run.figures()["parameters"])


def streams_table(runs: Runs) -> str:
    """Return, for every stream, the systems of the study beside a network per task, and whether the aim is met."""
    systems = [name for name in _systems() if name != BASE]
    found = {system: {stream: beside(runs, stream, system) for stream in NINE} for system in systems}
    lines = [
        f"| stream | {BASE} | {' | '.join(f'{name} | less {BASE}' for name in systems)} | parameters: {BASE} "
        f"| {' | '.join(systems)} | a search costs: {' | '.join(systems)} |",
        "|---" * (3 + 4 * len(systems)) + "|",
    ]
    for stream in NINE:
        alone, rows = beside(runs, stream, BASE), [found[system][stream] for system in systems]
        cells = [_say(alone, lambda it: percent_with_sd(it.accuracy))]
        for row in rows:
            cells += [_say(row, lambda it: percent_with_sd(it.accuracy)), _say(row, lambda it: _signed(it.gains))]
        cells.append(_say(alone, lambda it: f"{it.stored:,.0f}"))
        cells += [_say(row, lambda it: f"{it.stored:,.0f} ({it.share:.0%})") for row in rows]
        cells += [_say(row, _cost) for row in rows]
        lines.append(f"| `{stream}` | {' | '.join(cells)} |")
    whole = [[row for row in found[system].values() if row is not None] for system in systems]
    lines += [_closing("average", whole, fmean, fmean), _closing("worst", whole, min, max)]
    lines += ["", *(f"- `{system}`: {verdict(runs, system)}" for system in systems)]
    return "\n".join(lines)


def _closing(
    name: str,
    systems: Sequence[Sequence[Beside]],
    of_gains: Callable[[Sequence[float]], float],
    of_sizes: Callable[[Sequence[float]], float],
) -> str:
    """Return a row over all streams: of every system's gains, shares and costs."""
    gains = [points(of_gains([row.gains.mean for row in rows])) if rows else "" for rows in systems]
    shares = [f"{of_sizes([row.share for row in rows]):.0%}" if rows else "" for rows in systems]
    costs = [[row.cost for row in rows if row.cost is not None] for rows in systems]
    cells = ["", *(cell for gain in gains for cell in ("", gain)), "", *shares]
    cells += [f"{of_sizes(each):.1f}" if each else "" for each in costs]
    return f"| **{name}** | {' | '.join(cells)} |"


def verdict(runs: Runs, system: str) -> str:
    """Say whether a system meets the aim: ``open`` until every stream has every seed of the study."""
    seeds = set(load_study(str(STUDY)).seeds)
    missing = sum(len(seeds - runs.get((stream, name), {}).keys()) for stream in NINE for name in (system, BASE))
    if missing:
        return f"**open**, {counted(missing, 'run')} to be made"
    rows = [row for stream in NINE if (row := beside(runs, stream, system)) is not None]
    gains, shares = [row.gains.mean for row in rows], [row.share for row in rows]
    parts = {
        f"{points(fmean(gains))} points on average": fmean(gains) >= -BEHIND,
        f"{points(min(gains))} on the worst stream": min(gains) >= -WORST_BEHIND,
        f"{fmean(shares):.0%} of the parameters on average": fmean(shares) <= SHARE,
        f"{max(shares):.0%} on the worst stream": max(shares) <= WORST_SHARE,
    }
    told = ", ".join(f"{said} ({'met' if good else 'missed'})" for said, good in parts.items())
    return f"**{'met' if all(parts.values()) else 'missed'}**: {told}"


def many_table(runs: Runs) -> str:
    """Return what 200 tasks come to, and what a task adds and takes early and late."""
    lines = [
        f"| system | seeds | average test accuracy | less {BASE} | parameters | a search costs "
        "| a task adds, about 20 | about 200 | takes, about 20 | about 200 |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    shown = [(system, runs[MANY, system]) for system in _systems() if (MANY, system) in runs]
    for system, by_seed in shown:
        row = beside(runs, MANY, system)
        accuracy = Spread.of([_accuracy(run) for run in by_seed.values()])
        stored = f"{fmean(_stored(run) for run in by_seed.values()):,.0f}"
        cells = [
            str(accuracy.count),
            percent_with_sd(accuracy),
            _say(row, lambda it: _signed(it.gains)) if system != BASE else "",
            stored if row is None or system == BASE else f"{stored} ({row.share:.0%})",
            _say(row, _cost),
            *(f"{_usual(by_seed, part, lambda task: sum(task.parameters.values())):,.0f}" for part in (EARLY, LATE)),
            *(f"{_usual(by_seed, part, lambda task: task.seconds):.2f} s" for part in (EARLY, LATE)),
        ]
        lines.append(f"| {system} | {' | '.join(cells)} |")
    sessions = {
        (str(run.sessions[-1].machine.get("name", "")), run.sessions[-1].shares_device)
        for _, by_seed in shown
        for run in by_seed.values()
    }
    told = "; ".join(
        f"{counted(at_once, 'process', 'processes')} at once on {name}" for name, at_once in sorted(sessions)
    )
    said = [f"Times are of {told}."] if told else []
    if MEMORY.is_file():
        peaks = json.loads(MEMORY.read_text(encoding="utf-8"))["peaks_mb"]
        early, late = (median(peaks[part]) for part in (EARLY, LATE))
        said.append(
            f"The most memory in use by `bocl` is {early:,.0f} MB at tasks about 20 and {late:,.0f} MB about 200."
        )
    return "\n".join([*lines, *(["", *said] if said else [])])


def reading_table(runs: Runs) -> str:
    """Return accuracy and size with and without choosing what to read, in pairs of a goal and a seed."""
    lines = [
        "| stream | tolerance | pairs | reads all | chooses | less | parameters: reads all | chooses | less |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    study = load_study(str(READING))
    for stream in study.on:
        for goal in dict.fromkeys(entry.title.rpartition("-")[2] for entry in study.run):
            everything, chosen = (runs.get((stream, f"{way}-{goal}"), {}) for way in ("all", "choose"))
            pairs = [(everything[seed], chosen[seed]) for seed in sorted(everything.keys() & chosen.keys())]
            if not pairs:
                continue
            before, after = zip(*pairs, strict=True)
            gains = Spread.of([_accuracy(new) - _accuracy(old) for old, new in pairs])
            sizes = [fmean(map(_stored, side)) for side in (before, after)]
            cells = [
                f"{float(goal) / 10:.1f} points",
                str(len(pairs)),
                *(percent_with_sd(Spread.of([_accuracy(run) for run in side])) for side in (before, after)),
                _signed(gains),
                *(f"{size:,.0f}" for size in sizes),
                f"{sizes[1] / sizes[0] - 1:+.0%}",
            ]
            lines.append(f"| {stream} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _usual(by_seed: dict[int, RunSummary], part: slice, of: Callable[[TaskRecord], float]) -> float:
    """Return the median over some tasks of all seeds."""
    return median(of(task) for run in by_seed.values() for task in run.tasks[part])


def _systems() -> list[str]:
    return [entry.title for entry in load_study(str(STUDY)).run]


def _say(row: Beside | None, words: Callable[[Beside], str]) -> str:
    return "" if row is None else words(row)


def _signed(gains: Spread) -> str:
    return points(gains.mean) + (f" ± {100 * gains.sd:.2f}" if gains.sd is not None else "")


def _cost(row: Beside) -> str:
    return "" if row.cost is None else f"{row.cost:.1f}"


@cache
def all_runs() -> Runs:
    """Return the runs on record, none before the first is."""
    return arranged([summarise(run) for run in find_runs(RESULTS)] if RESULTS.is_dir() else [])


TABLES: dict[str, Callable[[], str]] = {
    "untuned": lambda: streams_table(all_runs()),
    "untuned-many": lambda: many_table(all_runs()),
    "reading": lambda: reading_table(all_runs()),
}


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), TABLES), encoding="utf-8")
    else:
        print("\n\n".join(table() for table in TABLES.values()))

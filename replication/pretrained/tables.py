"""Make the tables and figures of this folder's README.md from the journals of the runs.

python -m replication.pretrained.tables            prints the tables
python -m replication.pretrained.tables --write    puts each between its marks, and draws the fronts
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from bocl.records.files import write_whole
from bocl.records.summary import RunSummary, find_runs, summarise
from bocl.report.charts import Axis, Plot, Point, Series
from bocl.report.figures import percent_with_sd
from bocl.report.layout import draw
from bocl.report.style import MARKS, Style
from bocl.report.systems import Spread
from bocl.wording import points
from replication.records import name_of, preset_of
from replication.tables import filled

HERE = Path(__file__).parent
PAGE, RESULTS, FIGURES = HERE / "README.md", HERE / "results", HERE / "figures"
BENCH = HERE / "bench.txt"  # what `bocl bench --pretrained` printed
STREAMS = {"cifar100-efficientnet": 3_371_008, "text-sections": 22_565_376}  # parameters of their backbones
SYSTEMS = ("bocl", "head", "rank-1", "rank-4", "rank-16", "rank-4-reads", "adalora", "whole")
BARS = {"cifar100-efficientnet": (0.015, 0.02), "text-sections": (0.02, 0.01)}  # above the head, share of the backbone
NEAR_WHOLE = 0.005
SEEDS = 4


@dataclass(frozen=True)
class Run:
    """What is told of one run.

    accuracy  average test accuracy
    added     parameters that a task adds on average
    samples   shown to all children
    alone     tasks after the first that read no earlier one
    tasks     tasks after the first
    """

    accuracy: float
    added: float
    samples: float
    alone: int = 0
    tasks: int = 0


ByStream = dict[str, dict[str, dict[int, Run]]]  # stream: system: seed


def _told(run: RunSummary) -> Run:
    figures = run.figures()
    added = (figures["parameters"] - run.sessions[0].base_stored) / len(run.tasks)
    later = run.tasks[1:]
    return Run(figures["accuracy"], added, figures["samples"], sum(not task.reads for task in later), len(later))


@cache
def all_runs() -> ByStream:
    """Return the runs on record, those of AdaLoRA among them."""
    found: ByStream = {stream: {} for stream in STREAMS}
    for run in map(summarise, find_runs(RESULTS) if RESULTS.is_dir() else []):
        if run.finished:
            found[preset_of(run)].setdefault(name_of(run), {})[run.seed] = _told(run)
    for file in sorted(HERE.glob("adalora*.json")):
        for entry in json.loads(file.read_text(encoding="utf-8"))["runs"]:
            accuracy, added = (fmean(task[key] for task in entry["tasks"]) for key in ("test", "parameters"))
            found["text-sections"].setdefault("adalora", {})[entry["seed"]] = Run(accuracy, added, 0.0)
    return found


def _spread(by_seed: dict[int, Run], of: Callable[[Run], float]) -> Spread:
    return Spread.of([of(by_seed[seed]) for seed in sorted(by_seed)])


def _less(one: dict[int, Run], other: dict[int, Run]) -> Spread | None:
    """Return how much more accurate a system is than another, in pairs of the same seed."""
    seeds = sorted(one.keys() & other.keys())
    return Spread.of([one[seed].accuracy - other[seed].accuracy for seed in seeds]) if seeds else None


def _signed(spread: Spread | None) -> str:
    if spread is None:
        return ""
    return points(spread.mean) + (f" ± {100 * spread.sd:.2f}" if spread.sd is not None else "")


def stream_table(stream: str) -> str:
    """Return all systems on one stream, and whether bocl meets the aims."""
    runs, size = all_runs()[stream], STREAMS[stream]
    lines = [
        "| system | seeds | average test accuracy | vs head | vs whole | parameters a task | of the backbone "
        "| samples shown (rank-4 = 1) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for system in SYSTEMS:
        own = runs.get(system, {})
        if not own:
            continue
        added, shown = _spread(own, lambda run: run.added).mean, _spread(own, lambda run: run.samples).mean
        usual = _spread(runs["rank-4"], lambda run: run.samples).mean if "rank-4" in runs else 0.0
        cells = [
            f"`{system}`",
            str(len(own)),
            percent_with_sd(_spread(own, lambda run: run.accuracy)),
            "" if system == "head" else _signed(_less(own, runs.get("head", {}))),
            "" if system == "whole" else _signed(_less(own, runs.get("whole", {}))),
            f"{added:,.0f}",
            f"{added / size:.2%}",
            f"{shown / usual:.1f}" if shown and usual else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", *verdicts(stream)])


def verdicts(stream: str) -> list[str]:
    """Say of every aim whether it is met."""
    runs = all_runs()[stream]
    missing = [name for name in ("bocl", "head", "whole") if len(runs.get(name, {})) < SEEDS]
    if missing:
        return [f"- **open**: there are not {SEEDS} runs yet of {', '.join(f'`{name}`' for name in missing)}"]
    above, share = BARS[stream]
    own = runs["bocl"]
    gain, behind = _less(own, runs["head"]), _less(own, runs["whole"])
    added = _spread(own, lambda run: run.added).mean / STREAMS[stream]
    assert gain is not None
    assert behind is not None
    found = [
        (f"{points(gain.mean)} points above the head alone, at least {100 * above:.1f} wanted", gain.mean >= above),
        (f"a task adds {added:.2%} of the backbone, at most {share:.0%} wanted", added <= share),
    ]
    if stream == "cifar100-efficientnet":
        words = f"{points(behind.mean)} points against whole copies, at most {100 * NEAR_WHOLE:.1f} behind wanted"
        found.append((words, behind.mean >= -NEAR_WHOLE))
    level = fixed_ranks_at(stream, _spread(own, lambda run: run.added).mean)
    if level is not None:
        ahead = _spread(own, lambda run: run.accuracy).mean - level
        words = f"{points(ahead)} points against fixed ranks of the same size (between those that were run)"
        found.append((words, ahead >= 0))
    alone = sum(run.alone for run in own.values())
    tasks = sum(run.tasks for run in own.values())
    return [
        *(f"- {words}: **{'met' if met else 'missed'}**" for words, met in found),
        f"- `bocl` reads no earlier task in {alone} of {tasks} tasks that could read one",
    ]


def fixed_ranks_at(stream: str, added: float) -> float | None:
    """Return the accuracy of fixed ranks at a size: on the line between those next to it, or the best smaller one."""
    runs = all_runs()[stream]
    names = [name for name in ("head", "rank-1", "rank-4", "rank-16") if name in runs]
    known = [(_spread(runs[name], lambda run: run.added).mean, _spread(runs[name], lambda run: run.accuracy).mean)
             for name in names]  # fmt: skip
    best = max((accuracy for size, accuracy in known if size <= added), default=None)
    for (size, accuracy), (larger, its) in pairwise(known):
        if size <= added <= larger and best is not None:
            best = max(best, accuracy + (its - accuracy) * (added - size) / (larger - size))
    return best


def front(stream: str) -> Plot:
    """Return accuracy against what a task adds."""
    series = []
    colours: Sequence[str] = ("bocl", "frozen", "fixed", "fixed", "fixed", "rcl", "den", "independent")
    for system, colour, mark in zip(SYSTEMS, colours, MARKS, strict=False):
        own = all_runs()[stream].get(system)
        if own:
            accuracy, added = (_spread(own, of) for of in (lambda run: run.accuracy, lambda run: run.added))
            point = Point(added.mean, accuracy.mean, system, added.sd, accuracy.sd)
            series.append(Series(system, Style(colour, mark), (point,), joined="no"))
    across = Axis("parameters a task adds", "count", "factors")
    return Plot(f"front-{stream}", stream, across, Axis("test accuracy (%)", "percent"), tuple(series), named=True)


def speed_table() -> str:
    """Return the rows of the benchmark, and the ratios that the aims are about."""
    rows = [
        re.split(r"\s{2,}", line.strip()) for line in BENCH.read_text(encoding="utf-8").splitlines() if line.strip()
    ]
    lines = ["| network | mode | children | ms per child and step | times faster than eager |", "|---|---|---|---|---|"]
    each: dict[tuple[str, str], float] = {}
    for network, *rest in rows:
        mode, (children, time, ratio) = rest[0].split()[0], _numbers(rest)
        each[network, f"{mode} {children}"] = float(time)
        lines.append(f"| {network} | {mode} | {children} | {time} | {ratio} |")
    whole, upper = "encoder, all layers", "encoder, upper third"
    share = each[whole, "ours 16"] / each[whole, "ours 1"]
    faster = each[whole, "eager 1"] / each[whole, "ours 16"]
    cached = each[upper, "eager 1"] / each[upper, "ours 16"]
    against = each[whole, "eager 1"] / each[upper, "ours 16"]
    aims = [
        (f"one of 16 children takes {share:.3f} of the time of one child alone, at most 0.25 wanted", share <= 0.25),
        (f"{faster:.1f} times faster than eager one by one, at least 20 wanted", faster >= 20),
        (
            f"in the upper third, with cached features, {cached:.1f} times faster than eager there (than eager "
            f"in all layers {against:.0f} times), at least 60 wanted",
            cached >= 60,
        ),
    ]
    return "\n".join([*lines, "", *(f"- {words}: **{'met' if met else 'missed'}**" for words, met in aims)])


def _numbers(cells: Sequence[str]) -> list[str]:
    """Return the numbers of children, milliseconds and times faster."""
    return re.findall(r"[\d.]+", " ".join(cells))


TABLES: dict[str, Callable[[], str]] = {
    **{stream: partial(stream_table, stream) for stream in STREAMS},
    "speed": speed_table,
}


def main() -> None:
    """Print the tables, or write them and the figures."""
    if "--write" not in sys.argv[1:]:
        print("\n\n".join(table() for table in TABLES.values()))
        return
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), TABLES), encoding="utf-8")
    FIGURES.mkdir(exist_ok=True)
    for stream in STREAMS:
        write_whole(FIGURES / f"{stream}.svg", draw(front(stream), legend=True).standalone().encode())


if __name__ == "__main__":
    main()

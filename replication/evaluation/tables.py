"""Make the tables of this folder's README.md from records.

python -m replication.evaluation.tables [STREAM...] [--place FOLDER]    prints them
python -m replication.evaluation.tables --write                         puts each between its marks
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import sqrt
from pathlib import Path
from statistics import fmean

from scipy.stats import t as student

from bocl.records.summary import RunSummary, find_runs, summarise
from bocl.report.figures import percent_with_sd, short_count
from bocl.report.systems import Spread
from bocl.wording import duration, percent, points
from replication.evaluation.choice import best, mean, recorded
from replication.evaluation.tries import HERE, PAPERS, systems
from replication.records import name_of, preset_of
from replication.tables import filled

PAGE = HERE / "README.md"
GROWING = ("bocl", "rcl", "den", "pgn")
FIXED_SIZE = ("packnet", "supsup", "wsn", "hat", "imm", "pc", "cab", "fearnet", "ewc", "gem", "sn")
REFERENCE, EQUAL = "bocl", "-equal"
PARTS = (1, 2)
SURE = 0.95  # of all intervals of a table together
LEVEL = {"split-cifar100": 0.01}  # differences of accuracy that do not matter
MNIST_LEVEL = 0.002
NOTHING = "- **open**: there is no run yet"

BySeed = Mapping[int, RunSummary]


@dataclass(frozen=True)
class Difference:
    """By how much one system is more accurate than another, in pairs of the same seed, and how sure that is."""

    mean: float
    half: float
    level: float

    @staticmethod
    def of(one: BySeed, other: BySeed, comparisons: int, level: float) -> Difference | None:
        """Compare runs; None with fewer than two pairs.

        comparisons  made together: each interval is so wide that all hold at once (Bonferroni)
        """
        gains = [accuracy(one[seed]) - accuracy(other[seed]) for seed in sorted(one.keys() & other.keys())]
        if len(gains) < 2:
            return None
        spread = Spread.of(gains)
        assert spread.sd is not None
        quantile = float(student.ppf(1 - (1 - SURE) / (2 * comparisons), len(gains) - 1))
        return Difference(spread.mean, quantile * spread.sd / sqrt(len(gains)), level)

    @property
    def verdict(self) -> str:
        """`ahead` or `behind` if 0 is outside the interval, `level` if it holds no difference that matters."""
        low, high = self.mean - self.half, self.mean + self.half
        if low > 0 or high < 0:
            return "**ahead**" if low > 0 else "**behind**"
        return "level" if -self.level < low and high < self.level else "open"

    def __str__(self) -> str:
        return f"{points(self.mean)} ± {100 * self.half:.2f}"


def accuracy(run: RunSummary) -> float:
    """Return the mean test accuracy over all tasks after the last one."""
    return float(run.figures()["accuracy"])


@cache
def runs(place: Path) -> Mapping[tuple[str, str], dict[int, RunSummary]]:
    """Return the finished runs on record: (stream, name) → by seed."""
    found: dict[tuple[str, str], dict[int, RunSummary]] = {}
    results = place / "results"
    for run in map(summarise, find_runs(results) if results.is_dir() else []):
        if run.finished:
            found.setdefault((preset_of(run), name_of(run)), {})[run.seed] = run
    return found


def tried_table(stream: str, place: Path = HERE) -> str:
    """Return what every system chose, and whether that lies at the end of a list."""
    found = recorded(place, stream)
    if not found:
        return NOTHING
    lines = [
        "| system | tries | best | median | worst | chosen | at the end of a list |",
        "|---|---|---|---|---|---|---|",
    ]
    for system in (one for part in PARTS for one in systems(stream, part) if one.name in found):
        one = found[system.name]["tries"]
        scores = sorted(mean(each) for each in one if each["validation"] is not None)
        settings = one[best(one)]["settings"]
        told = [percent(score) for score in (scores[-1], scores[len(scores) // 2], scores[0])]
        ends = ", ".join(name for name, values in system.lists.items() if at_an_end(values, settings))
        shown = " ".join(override.removeprefix("recipe.") for override in settings)
        lines.append(f"| `{system.name}` | {len(scores)} of {len(one)} | {' | '.join(told)} | `{shown}` | {ends} |")
    return "\n".join(lines)


def at_an_end(values: Sequence[str], settings: Sequence[str]) -> bool:
    """Whether what was chosen of a list of numbers is the least or the largest of three or more."""
    options = [tuple(value.split()) for value in values]
    chosen = next(option for option in options if set(option) <= set(settings))
    alike = [option for option in options if option[:-1] == chosen[:-1]]  # of an optimiser, its rates
    try:
        sizes = sorted(float(option[-1].partition("=")[2]) for option in alike)
    except ValueError:
        return False
    return len(sizes) > 2 and float(chosen[-1].partition("=")[2]) in (sizes[0], sizes[-1])


def results_table(stream: str, place: Path = HERE, *, equal: bool = False) -> str:
    """Return all systems at their own size, or at bocl's; the most accurate first."""
    found = {name: by_seed for (of, name), by_seed in runs(place).items() if of == stream}
    wanted = {name: by_seed for name, by_seed in found.items() if name.endswith(EQUAL) == equal or name == REFERENCE}
    if not wanted:
        return NOTHING
    ranked = sorted(wanted, key=lambda name: -fmean(map(accuracy, wanted[name].values())))
    lines = [
        "| system | seeds | accuracy | less `bocl` | | parameters | of these masks | extra numbers | BWT "
        "| forgot of task 1 | time | samples |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
        *(_row(name, wanted, LEVEL.get(stream, MNIST_LEVEL)) for name in ranked),
        "",
        *_plainly(wanted, equal=equal),
    ]
    return "\n".join(lines)


def _row(name: str, wanted: Mapping[str, BySeed], level: float) -> str:
    by_seed = wanted[name]
    made = list(by_seed.values())
    figures = [run.figures() for run in made]
    average = {key: fmean(one[key] for one in figures) for key in ("parameters", "extra_numbers", "seconds", "samples")}
    masks = fmean(sum(task.parameters.get("masks", 0) for task in run.tasks) for run in made)
    against = None
    if name != REFERENCE and REFERENCE in wanted:
        against = Difference.of(by_seed, wanted[REFERENCE], len(wanted) - 1, level)
    parameters = short_count(average["parameters"])
    if REFERENCE in wanted and name != REFERENCE:
        own = fmean(run.tasks[-1].stored for run in wanted[REFERENCE].values())
        parameters += f" ({average['parameters'] / own:.0%})"
    cells = [
        f"`{name.removesuffix(EQUAL)}`",
        str(len(made)),
        percent_with_sd(Spread.of([accuracy(run) for run in made])),
        str(against or ""),
        against.verdict if against else "",
        parameters,
        short_count(masks) if masks else "",
        short_count(average["extra_numbers"]) if average["extra_numbers"] else "",
        _mean_points(figures, "backward_transfer"),
        _mean_points(figures, "first_task_forgetting"),
        duration(average["seconds"]),
        short_count(average["samples"]),
    ]
    return f"| {' | '.join(cells)} |"


def _mean_points(figures: Sequence[Mapping[str, float]], figure: str) -> str:
    value = fmean(one[figure] for one in figures)
    return points(value) if value else "0"


def _plainly(wanted: Mapping[str, BySeed], *, equal: bool) -> Iterator[str]:
    """Say whether a system of fixed size is more accurate than all that grow, and how many runs shared the device."""
    means = {name.removesuffix(EQUAL): fmean(map(accuracy, by_seed.values())) for name, by_seed in wanted.items()}
    growing = [name for name in GROWING if name in means]
    if growing:
        top = max(growing, key=means.__getitem__)
        beyond = [f"`{name}`" for name in FIXED_SIZE if means.get(name, 0.0) > means[top]]
        where = "at `bocl`'s size" if equal else "at their own sizes"
        yield f"- Of fixed size, more accurate on average than every system that grows, {where}: " + (
            f"{', '.join(beyond)}; of those that grow, `{top}` is the most accurate." if beyond else "none."
        )
    shared = {
        session.shares_device for by_seed in wanted.values() for run in by_seed.values() for session in run.sessions
    }
    yield f"- Times are of runs of which up to {max(shared)} shared a device."


def tables(streams: Sequence[str] = PAPERS, place: Path = HERE) -> dict[str, Callable[[], str]]:
    """Return every table by the name of its marks."""
    made: dict[str, Callable[[], str]] = {}
    for stream in streams:
        made[f"tried-{stream}"] = partial(tried_table, stream, place)
        made[f"own-{stream}"] = partial(results_table, stream, place)
        made[f"equal-{stream}"] = partial(results_table, stream, place, equal=True)
    return made


def main() -> None:
    """Print the tables, or write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("streams", nargs="*", default=PAPERS)
    parser.add_argument("--place", type=Path, default=HERE, help="folder of tries and results")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    made = tables(asked.streams, asked.place)
    if asked.write:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), made), encoding="utf-8")
    else:
        print("\n\n".join(table() for table in made.values()))


if __name__ == "__main__":
    main()

"""Make the tables of this folder's README.md from the records.

python -m replication.averaging.tables            prints the tables
python -m replication.averaging.tables --write    puts each between its marks
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from statistics import fmean

from bocl.records.summary import find_runs, summarise
from bocl.report.figures import percent_with_sd
from bocl.report.systems import Spread
from bocl.wording import points
from replication.averaging import noise
from replication.averaging.recipes import METHODS, PLACE, WIDTHS
from replication.records import name_of, preset_of
from replication.tables import filled

HERE = Path(__file__).parent
PAGE, RESULTS = HERE / "README.md", HERE / "results"
STREAMS = (*WIDTHS, "split-cifar100-resnet")
SYSTEMS, SEEDS = ("bocl", "fixed", "independent", "pgn", "rcl"), 8
BySeed = dict[int, tuple[float, float]]  # average test accuracy, parameters


@cache
def pairs() -> Mapping[tuple[str, str, str], BySeed]:
    """Return the runs on record: (stream, system, what differs from the preset) → by seed."""
    found: dict[tuple[str, str, str], BySeed] = {}
    for run in map(summarise, find_runs(RESULTS) if RESULTS.is_dir() else []):
        system, *changes = name_of(run).replace("-mnist", "").replace("-cifar", "").replace("-resnet", "").split("-")
        if run.finished:
            figures = run.figures()
            key = preset_of(run), system, "-".join(changes)
            found.setdefault(key, {})[run.seed] = figures["accuracy"], figures["parameters"]
    return found


def pairs_table() -> str:
    """Return every system with and without averaged weights, and with mirrored images."""
    lines = [
        "| stream | system | pairs | as the preset | averaged | gain | averaged, mirrored images | gain |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for stream in STREAMS:
        for system in SYSTEMS:
            plain = pairs().get((stream, system, ""), {})
            rest = [pairs().get((stream, system, change), {}) for change in ("average", "average-flip")]
            if plain:
                cells = [f"`{stream}`", f"`{system}`", str(len(plain.keys() & rest[0].keys())), _mean(plain)]
                lines.append(f"| {' | '.join([*cells, *(cell for one in rest for cell in _against(one, plain))])} |")
    return "\n".join([*lines, "", *missing()])


def missing() -> list[str]:
    """Name the systems that there are not eight pairs of yet."""
    short = [
        f"`{system}` on `{stream}`"
        for stream in STREAMS
        for system in SYSTEMS
        if min(len(pairs().get((stream, system, change), {})) for change in ("", "average")) < SEEDS
    ]
    return [f"- **open**: fewer than {SEEDS} pairs of {', '.join(short)}"] if short else []


def _mean(by_seed: BySeed) -> str:
    size = fmean(parameters for _, parameters in by_seed.values())
    return f"{percent_with_sd(Spread.of([accuracy for accuracy, _ in by_seed.values()]))}, {size / 1000:,.0f} k"


def _against(one: BySeed, plain: BySeed) -> tuple[str, str]:
    """Return what runs come to, and by how much they are more accurate than the preset's, in pairs of a seed."""
    both = sorted(one.keys() & plain.keys())
    if not both:
        return "", ""
    gain = Spread.of([one[seed][0] - plain[seed][0] for seed in both])
    return _mean(one), points(gain.mean) + (f" ± {100 * gain.sd:.2f}" if gain.sd is not None else "")


def recipes_table(stream: str) -> str:
    """Return the validation accuracy of every recipe, the best mean over methods in bold."""
    record = json.loads(PLACE.read_text(encoding="utf-8"))[stream]
    scores: dict[tuple[str, ...], dict[str, float]] = {}
    for entry in record["scores"]:
        scores.setdefault(tuple(entry["recipe"]), {})[entry["method"]] = entry["validation"]
    ranked = sorted(scores, key=lambda recipe: -fmean(scores[recipe].values()))
    lines = [
        f"| schedule | average | augment | {' | '.join(f'`{method}`' for method in METHODS)} | mean |",
        f"|---|---|---|{'---|' * len(METHODS)}---|",
    ]
    for recipe in ranked:
        mean = f"{100 * fmean(scores[recipe].values()):.2f} %"
        cells = [*recipe, *(f"{100 * scores[recipe][method]:.2f} %" for method in METHODS)]
        lines.append(f"| {' | '.join([*cells, f'**{mean}**' if recipe == ranked[0] else mean])} |")
    return "\n".join(lines)


def tables() -> dict[str, Callable[[], str]]:
    """Return the tables there are records for."""
    made: dict[str, Callable[[], str]] = {"pairs": pairs_table}
    if noise.PLACE.exists():
        made["noise"] = noise.rows
    for stream in json.loads(PLACE.read_text(encoding="utf-8")) if PLACE.exists() else ():
        made[f"recipes-{stream}"] = partial(recipes_table, stream)
    return made


def main() -> None:
    """Print the tables, or write them."""
    if "--write" in sys.argv[1:]:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), tables()), encoding="utf-8")
    else:
        print("\n\n".join(table() for table in tables().values()))


if __name__ == "__main__":
    main()

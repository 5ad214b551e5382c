"""Make the tables of guessed tasks from the records in ``results/``.

python -m replication.guessing.tables            prints the tables
python -m replication.guessing.tables --write    puts each between its marks in PAGES
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from bocl.records.files import write_whole
from bocl.report.figures import percent_with_sd
from bocl.report.systems import Spread
from bocl.wording import percent
from replication.tables import filled

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PAGES = (HERE / "README.md", HERE.parents[1] / "docs" / "guides" / "unnamed.md")
STREAMS = {"permuted-mnist": "permuted MNIST", "split-cifar100": "split CIFAR-100"}
WAYS = {
    "discriminant": "what `guess.map = auto` keeps",
    "softmax": "highest softmax of the heads",
    "entropy": "lowest entropy of the heads",
    "energy": "energy of the heads",
}
SEEDS = 4
AIMS = (("permuted-mnist", "named", 0.99), ("split-cifar100", "named", 0.37), ("split-cifar100", "named_by_20", 0.95))
AIM_WORDS = {"named": "single samples", "named_by_20": "20 samples together"}


@cache
def records(stream: str) -> tuple[dict[str, Any], ...]:
    """Return the record of every seed."""
    files = sorted(RESULTS.glob(f"{stream}-seed*.json"))
    return tuple(json.loads(file.read_text(encoding="utf-8")) for file in files)


def _spread(stream: str, figure: str, way: str, part: str = "test") -> Spread:
    return Spread.of([record[part][figure][way] for record in records(stream)])


def ways() -> str:
    """Return every way to guess on both streams, of test samples."""
    lines = [
        "| stream | tasks guessed by | task named correctly | accuracy without the task | 20 samples together |",
        "|---|---|---|---|---|",
    ]
    for stream, title in STREAMS.items():
        if not records(stream):
            continue
        for way, words in WAYS.items():
            cells = [percent_with_sd(_spread(stream, name, way)) for name in ("named", "accuracy", "named_by_20")]
            lines.append(f"| {title} | {words} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *about()])


def about() -> list[str]:
    """Say what the records are of, and whether the aims are met."""
    found = []
    for stream, title in STREAMS.items():
        if not (runs := records(stream)):
            continue
        given = Spread.of([run["test"]["task_given"] for run in runs])
        first = runs[0]
        found.append(
            f"- {title}: {len(runs)} seeds, ten tasks, every training sample; heads trained for {first['epochs']} "
            f"epochs, {percent_with_sd(given)} with the task given. Kept: {first['numbers']:,} numbers, next to "
            f"{first['parameters']:,} parameters"
        )
    for stream, figure, aim in AIMS:
        if len(records(stream)) < SEEDS:
            found.append(f"- **open**: {STREAMS[stream]}, {AIM_WORDS[figure]}")
            continue
        mean = _spread(stream, figure, "discriminant").mean
        met = "met" if mean >= aim else "missed"
        found.append(
            f"- {STREAMS[stream]}, {AIM_WORDS[figure]}: {percent(mean)} named correctly, at least {100 * aim:.0f} % "
            f"wanted: **{met}**"
        )
    return found


def choice(stream: str) -> str:
    """Return the task named correctly on validation samples of seed 0, by map, size and shrinkage."""
    file = RESULTS / f"{stream}-choice.json"
    if not file.is_file():
        return ""
    rows = json.loads(file.read_text(encoding="utf-8"))["candidates"]
    shrinkages = list(dict.fromkeys(row["shrinkage"] for row in rows))
    lines = [
        f"| map | numbers a sample | numbers kept | {' | '.join(f's / d = {value:g}' for value in shrinkages)} |",
        f"|---|---|---|{'---|' * len(shrinkages)}",
    ]
    for kind, size, kept in dict.fromkeys((row["map"], row["size"], row["numbers"]) for row in rows):
        own = [percent(row["named"]) for row in rows if (row["map"], row["size"]) == (kind, size)]
        lines.append(f"| `{kind}` | {size:,} | {kept:,} | {' | '.join(own)} |")
    return "\n".join(lines)


TABLES: dict[str, Callable[[], str]] = {
    "ways": ways,
    **{f"choice-{stream}": partial(choice, stream) for stream in STREAMS},
}


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        for page in PAGES:
            write_whole(page, filled(page.read_text(encoding="utf-8"), TABLES).encode())
    else:
        print("\n\n".join(table() for table in TABLES.values()))

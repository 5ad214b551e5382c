"""Which averaging, schedule and augmentation each benchmark takes, by validation samples and for all methods alike.

python -m replication.averaging.recipes --out runs/recipes [--workers 8] [--device cuda] [--data DATA]

Every recipe of the grid trains three methods on five tasks of a seed that is not evaluated. A recipe's score is the
mean of their validation accuracies after the last task. Runs go on where they stopped, and the scores are written to
recipes.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bocl.engines.orders import RunOrder
from bocl.engines.run_process import RunProcesses
from bocl.experiment.config import load_config
from bocl.records.summary import summarise

PLACE = Path(__file__).parent / "recipes.json"
TASKS, SEED = 5, 10
METHODS = ("independent", "pgn", "fixed")
WIDTHS = {"permuted-mnist": "[25,5]", "mixed-mnist": "[25,5]", "split-cifar100": "[6,2,17,9]"}  # that fixed growth adds
AVERAGES, SCHEDULES = ("off", "last", "exponential"), ("constant", "cosine")
AUGMENTS = {"split-cifar100": ("off", "flip", "flip-shift")}  # digits have a side and a place
Recipe = tuple[str, str, str]  # schedule, average, augment


def recipes_of(stream: str) -> list[Recipe]:
    """Return the grid of a benchmark."""
    return list(itertools.product(SCHEDULES, AVERAGES, AUGMENTS.get(stream, ("off",))))


def orders(streams: list[str], out: Path, data: str | None) -> Iterator[tuple[str, Recipe, str, RunOrder]]:
    """Yield the runs: stream, recipe, method, order."""
    for stream in streams:
        for recipe, method in itertools.product(recipes_of(stream), METHODS):
            schedule, average, augment = recipe
            words = [f"recipe.schedule={schedule}", f"recipe.average={average}", f"recipe.augment={augment}"]
            words += [f"method={method}", f"seed={SEED}", f"stream.tasks={TASKS}", f"fixed.widths={WIDTHS[stream]}"]
            title = f"{stream}-{method}-{'-'.join(recipe)}"
            yield stream, recipe, method, RunOrder.of(title, load_config(stream, words), out / title, data=data)


def main() -> None:
    """Make the runs, score them, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--streams", default=",".join(WIDTHS), help="separated by commas")
    parser.add_argument("--workers", type=int, default=1, help="processes at once")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data")
    asked = parser.parse_args()
    made = list(orders(asked.streams.split(","), asked.out, asked.data))
    RunProcesses([asked.device] * asked.workers)(
        [order for *_, order in made], lambda order, error: print(order.title, error or "finished", flush=True)
    )
    record: dict[str, Any] = json.loads(PLACE.read_text(encoding="utf-8")) if PLACE.exists() else {}
    for stream in asked.streams.split(","):
        found = [(recipe, method, summarise(Path(order.folder))) for of, recipe, method, order in made if of == stream]
        first = found[0][2].sessions[0]
        record[stream] = {
            "date": datetime.now(UTC).date().isoformat(),
            "tasks": TASKS,
            "seed": SEED,
            "versions": first.versions,
            "machine": first.machine,
            "scores": [
                {"recipe": recipe, "method": method, "validation": sum(run.tasks[-1].validation_row) / TASKS}
                for recipe, method, run in found
            ],
        }
    PLACE.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

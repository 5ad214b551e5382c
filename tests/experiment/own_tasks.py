"""Three small tasks of a user's own, as every kind of data that needs no extra."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

SETTINGS = (
    "network={build='mlp', arguments={inputs=4, hidden=[6, 5]}}",
    "recipe.epochs=12",
    "recipe.learning_rate=1e-2",
    "recipe.batch_size=32",
    "search.kind=random",
    "search.trials=2",
    "search.warm_points=2",
    "search.bounds=2",
)
NAMES = ("a spring", "b summer", "c autumn")
KINDS = ("ash", "elm", "oak")
COLUMNS = ("height", "width", "age", "mass")


def samples(number: int, count: int = 120) -> tuple[np.ndarray, list[str]]:
    """Return samples of three classes, (count, 4), and their labels."""
    draw = np.random.default_rng(number)
    labels = draw.integers(3, size=count)
    inputs = draw.normal(size=(count, 4))
    inputs[np.arange(count), (labels + number) % 4] += 4
    return inputs.round(3), [KINDS[label] for label in labels]


def write_task(folder: Path, number: int, kind: str) -> Path:
    """Write one of the tasks; return its place."""
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / f"{NAMES[number]}{'' if kind == 'parts' else f'.{kind}'}"
    inputs, labels = samples(number)
    if kind == "npz":
        np.savez(place, x=inputs, y=labels)
    elif kind == "csv":
        write_csv(place, inputs, labels)
    else:
        for part, seed in (("train", number), ("validation", number + 10), ("test", number + 20)):
            write_csv(place / f"{part}.csv", *samples(seed))
    return place


def write_csv(place: Path, inputs: np.ndarray, labels: list[str]) -> None:
    place.parent.mkdir(exist_ok=True)
    with place.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow([*COLUMNS, "label"])
        rows.writerows([*row, label] for row, label in zip(inputs.tolist(), labels, strict=True))


def stream_of_own():
    """Return a stream, as a function of the user's does."""
    return [samples(number) for number in range(3)]

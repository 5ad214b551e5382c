"""CAB and EWC with one head for ten permutations of MNIST, a network of 100 hidden units, plain SGD.

python -m replication.one_head [--data FOLDER]

Aperture or strength, and the learning rate, are chosen on the validation samples of four tasks of a seed that is not
evaluated. It writes ``measurements/one_head.json``. For orientation: one seed, and three epochs a task.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

import bocl
from bocl.experiment.provenance import machine, versions

PLACE = Path(__file__).parent / "measurements" / "one_head.json"
RECIPE = bocl.Recipe("sgd", momentum=0, weight_decay=0, batch_size=100, epochs=3)
RATES = (0.1, 0.3)
CHOICES: dict[Any, list[Any]] = {
    bocl.CAB: [bocl.CABSettings(aperture=aperture, shared_head=True) for aperture in (1, 2, 4)],
    bocl.EWC: [bocl.EWCSettings(strength=strength, shared_head=True) for strength in (1, 3, 10, 30)],
}
TUNED = {bocl.CAB: "aperture", bocl.EWC: "strength"}


def learn(kind: Any, settings: Any, rate: float, stream: bocl.TaskStream, tasks: int) -> bocl.Learner:
    """Return a learner of so many tasks."""
    recipe = replace(RECIPE, learning_rate=rate)
    learner: bocl.Learner = kind(bocl.mlp(784, [100], 10), settings=settings, recipe=recipe, device="cpu")
    for task in range(tasks):
        learner.learn(stream[task])
    return learner


def share_right(learner: bocl.Learner, split: bocl.Split, task: int) -> float:
    """Return the accuracy on a task's samples."""
    return float((learner.logits(split.inputs(), task).argmax(1) == split.labels).double().mean())


def measure(kind: Any, data: str | None, few: int, many: int) -> dict[str, Any]:
    """Choose a method's settings on few tasks, and measure it on many."""
    began, points = time.perf_counter(), []
    stream = bocl.permuted_mnist(tasks=few, seed=100, data=data)
    for settings, rate in itertools.product(CHOICES[kind], RATES):
        learner = learn(kind, settings, rate, stream, few)
        score = fmean(share_right(learner, stream[task].validation, task) for task in range(few))
        point = {TUNED[kind]: getattr(settings, TUNED[kind]), "learning_rate": rate, "validation": round(score, 4)}
        points.append((score, settings, rate, point))
        print(kind.name, point, file=sys.stderr, flush=True)
    _, settings, rate, chosen = max(points, key=lambda found: found[0])
    stream = bocl.permuted_mnist(tasks=many, seed=0, data=data)
    learner = learn(kind, settings, rate, stream, many)
    row = [share_right(learner, stream.test_split(task), task) for task in range(many)]
    return {
        "grid": [point for *_, point in points],
        "chosen": chosen,
        "test": [round(share, 4) for share in row],
        "test_mean": round(fmean(row), 4),
        "parameters": sum(learner.parameters().values()),
        "extra_numbers": learner.extra_numbers(),
        "seconds": round(time.perf_counter() - began),
    }


def main() -> None:
    """Measure both, and write what was found."""
    parser = argparse.ArgumentParser(prog="python -m replication.one_head", description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder of MNIST's files")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    facts = {
        "command": "python -m replication.one_head",
        "date": datetime.now(UTC).date().isoformat(),
        "versions": versions(),
        "machine": machine(torch.device("cpu")),
        "methods": {kind.name: measure(kind, asked.data, 4, 10) for kind in CHOICES},
    }
    PLACE.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

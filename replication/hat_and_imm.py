"""HAT on ten permutations of MNIST and IMM on three: is what we made of them about as good as what is published?

python -m replication.hat_and_imm hat|imm|hat-digits-400|hat-digits-50

For orientation only: the networks are smaller than the published ones and trained for fewer epochs. Settings are chosen
by the mean validation accuracy over all tasks after the last one, on a seed that is not evaluated. What is written to
measurements/rivals also says how far the logits of validation samples moved after their task was learnt; HAT on digits,
with the recipe of the preset, is there for this alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

import bocl
from bocl.experiment.provenance import machine, versions
from bocl.methods.method import Learner
from bocl.tasks.permuted import permuted_digits, permuted_mnist
from bocl.tasks.task import TaskStream

HERE = Path(__file__).parent / "measurements" / "rivals"
CHOOSING, SEED = 100, 0  # seeds: of the choice of settings, of what is reported


@dataclass(frozen=True)
class Trial:
    """What is run: a learner on so many permutations.

    sizes   of the network's input and hidden layers
    grid    settings to choose from
    recipe  of the run that is reported; settings are chosen with ``epochs`` of it
    """

    learner: Any
    settings: Any
    stream: Callable[[int, int], TaskStream]
    tasks: int
    sizes: tuple[int, ...]
    recipe: bocl.Recipe
    epochs: int
    grid: dict[str, list[Any]]
    fixed: dict[str, Any]

    def run(
        self, stream: TaskStream, own: dict[str, Any], recipe: bocl.Recipe, seed: int
    ) -> tuple[Learner, list[Tensor]]:
        """Learn all tasks; return the learner, and every task's logits of validation samples when it was learnt."""
        settings = self.settings(**self.fixed, **own)
        network = bocl.mlp(self.sizes[0], list(self.sizes[1:]), 10)
        learner: Learner = self.learner(network, settings=settings, recipe=recipe, seed=seed, device="cpu")
        logits = []
        for index in range(self.tasks):
            learned = learner.learn(stream[index])
            logits.append(learner.predict(stream[index].validation.raw, index))
            print(f"  task {index + 1}: {learned.validation_accuracy:.4f} {learned.units or ''}", flush=True)
        return learner, logits


SGD = bocl.Recipe("sgd", momentum=0.0, weight_decay=0.0)
TRIALS = {
    "hat": Trial(
        bocl.HAT,
        bocl.HATSettings,
        permuted_mnist,
        tasks=10,
        sizes=(784, 400, 400),
        recipe=replace(SGD, learning_rate=0.05, batch_size=64, epochs=5),
        epochs=1,
        grid={"sparsity": [0.1, 0.75, 2.5, 4.0]},
        fixed={},
    ),
    "imm": Trial(
        bocl.IMM,
        bocl.IMMSettings,
        permuted_mnist,
        tasks=3,
        sizes=(784, 400, 400),
        recipe=replace(SGD, learning_rate=0.1, batch_size=50, epochs=4),
        epochs=1,
        grid={"form": ["mean", "mode"], "drop": [0.0, 0.5], "newest": [None, 0.5, 0.7]},
        fixed={"shared_head": True, "l2": 1e-4, "labels": "true", "fisher_samples": 3000},
    ),
    **{
        f"hat-digits-{steepness}": Trial(
            bocl.HAT,
            bocl.HATSettings,
            permuted_digits,
            tasks=5,
            sizes=(64, 48, 24),
            recipe=bocl.Recipe("adam", learning_rate=3e-3, batch_size=32, epochs=15),
            epochs=1,
            grid={},
            fixed={"steepness": steepness},
        )
        for steepness in (400, 50)
    },
}


def drift(before: Tensor, after: Tensor) -> dict[str, float]:
    """Return how far logits moved: root mean squares, the largest move, and the share of other answers."""
    moved = (after - before).double()
    return {
        "root_mean_square": moved.square().mean().sqrt().item(),
        "largest": moved.abs().max().item(),
        "of_logits_of": before.double().square().mean().sqrt().item(),
        "other_answers": (after.argmax(1) != before.argmax(1)).double().mean().item(),
    }


def on_validation(learner: Learner, stream: TaskStream, tasks: int) -> list[float]:
    """Return the validation accuracy of every task now."""
    splits = [stream[index].validation for index in range(tasks)]
    return [learner.score(split.raw, split.labels, index) for index, split in enumerate(splits)]


def main() -> None:
    """Choose settings, run with them, and write both down."""
    (name,) = sys.argv[1:]
    trial = TRIALS[name]
    choosing, short = trial.stream(trial.tasks, CHOOSING), replace(trial.recipe, epochs=trial.epochs)
    points: list[dict[str, Any]] = []
    for values in product(*trial.grid.values()):
        own = dict(zip(trial.grid, values, strict=True))
        print(name, own, flush=True)
        learner, _ = trial.run(choosing, own, short, CHOOSING)
        row = on_validation(learner, choosing, trial.tasks)
        points.append({"settings": own, "validation": fmean(row), "row": row})
        print(f"  {fmean(row):.4f}", flush=True)
    best = max(points, key=lambda point: point["validation"])["settings"]
    print(name, "chosen:", best, flush=True)
    stream = trial.stream(trial.tasks, SEED)
    learner, before = trial.run(stream, best, trial.recipe, SEED)
    after = [learner.predict(stream[index].validation.raw, index) for index in range(trial.tasks)]
    tests = [stream.test_split(index) for index in range(trial.tasks)]
    row = [learner.score(split.raw, split.labels, index) for index, split in enumerate(tests)]
    record = {
        "command": f"python -m replication.hat_and_imm {name}",
        "date": datetime.now(UTC).date().isoformat(),
        "versions": versions(),
        "machine": machine(torch.device("cpu")),
        "network": [*trial.sizes, 10],
        "recipe": {key: getattr(trial.recipe, key) for key in ("optimiser", "learning_rate", "batch_size", "epochs")},
        "chosen": {"seed": CHOOSING, "epochs": trial.epochs, "points": points, "best": {**trial.fixed, **best}},
        "seed": SEED,
        "test": fmean(row),
        "row": row,
        "validation_when_learnt": [
            (logits.argmax(1) == stream[index].validation.labels).double().mean().item()
            for index, logits in enumerate(before)
        ],
        "parameters": sum(learner.parameters().values()),
        "extra_numbers": learner.extra_numbers(),
        "drift": [drift(old, new) for old, new in zip(before, after, strict=True)],
    }
    HERE.mkdir(parents=True, exist_ok=True)
    (HERE / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
    print(f"{name}: {100 * fmean(row):.2f} % on test samples", flush=True)


if __name__ == "__main__":
    main()

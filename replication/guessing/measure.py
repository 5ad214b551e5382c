"""Compare ways to guess a sample's task, on all samples of permuted MNIST and split CIFAR-100, ten tasks each.

python -m replication.guessing.measure STREAM [--seeds 0,1,2,3] [--data FOLDER]
python -m replication.guessing.measure STREAM --choose [--data FOLDER]

The first form trains a learner, guesses by what it keeps (``discriminant``) and by three scores of its heads, and
writes ``results/STREAM-seedN.json``; a seed whose record is there is left out. ``--choose`` compares maps, sizes and
shrinkages on the validation samples of seed 0, before any test sample is looked at, and writes
``results/STREAM-choice.json``.

Heads are of the control `fixed`, trained for a few epochs: enough to compare ways to guess, not to say how well tasks
can be learnt.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import bocl.methods.discriminant as lda
from bocl.cli.comma_lists import parse_seeds
from bocl.experiment.build import build_method, build_network, build_stream
from bocl.experiment.config import Config, load_config
from bocl.experiment.provenance import machine, versions
from bocl.methods.guessing import GuessSettings, MapKind, mapped
from bocl.methods.method import Learner
from bocl.methods.seen import SeenTask
from bocl.methods.unnamed import in_scale_of, task_densities
from bocl.seeding import seed_for
from bocl.tasks.task import Split, TaskStream
from bocl.training.batches import DeviceSplit, to_device
from bocl.training.evaluation import BATCH

RESULTS = Path(__file__).parent / "results"
EPOCHS = {"permuted-mnist": 2, "split-cifar100": 10}
TOGETHER = 20
CPU = torch.device("cpu")
Scores = dict[str, Tensor]  # way to guess: (n, tasks), the higher the likelier, and to be added up over samples


def config_of(stream: str, seed: int) -> Config:
    """Return the preset's stream and network, learnt by `fixed` with usual growth in few epochs."""
    few = [f"recipe.epochs={EPOCHS[stream]}", "growth.reads=first", "growth.wiring=lean", "growth.gates=unit"]
    return load_config(stream, ["method=fixed", f"seed={seed}", "guess.map=auto", "fixed.widths=8", *few])


def scores_of(learner: Learner, own: list[Tensor], unnamed: Tensor) -> tuple[Scores, Tensor]:
    """Return the scores of samples for every task, and the class each task's network puts them in, (n, tasks).

    own      inputs (n, *shape) in the scale of every task
    unnamed  inputs in the scale in which tasks are guessed
    """
    logits = [learner.logits(inputs, task) for task, inputs in enumerate(own)]
    chances = [some.double().softmax(1) for some in logits]
    found = {
        "discriminant": task_densities(learner, unnamed),
        "softmax": torch.stack([some.amax(1) for some in chances], 1),
        "entropy": torch.stack([torch.special.entr(some).sum(1).neg() for some in chances], 1),
        "energy": torch.stack([some.double().logsumexp(1) for some in logits], 1),
    }
    return found, torch.stack([some.argmax(1) for some in logits], 1)


def shares(learner: Learner, splits: list[Split], seed: int) -> dict[str, Any]:
    """Return what every way to guess comes to, means over tasks, and the accuracy with the task given."""
    first = learner.seen[0]
    named: dict[str, list[float]] = {}
    right: dict[str, list[float]] = {}
    together: dict[str, list[float]] = {}
    given = []
    for task, split in enumerate(splits):
        parts = []
        for rows in torch.arange(len(split)).split(BATCH):
            some = replace(split, raw=split.raw[rows], labels=split.labels[rows])
            own = [in_scale_of(entry, some).inputs() for entry in learner.seen]
            parts.append(scores_of(learner, own, in_scale_of(first, some).inputs()))
        classes = torch.cat([part for _, part in parts])
        draw = torch.Generator().manual_seed(seed_for(seed, "together", task))
        groups = torch.randperm(len(split), generator=draw)[: len(split) // TOGETHER * TOGETHER].view(-1, TOGETHER)
        correct = classes[:, task] == split.labels
        given.append(float(correct.double().mean()))
        for way in parts[0][0]:
            scores = torch.cat([found[way] for found, _ in parts])
            hit = scores.argmax(1) == task
            if way == "discriminant":  # densities of one sample are compared before they are added up
                scores = scores.log_softmax(1)
            named.setdefault(way, []).append(float(hit.double().mean()))
            right.setdefault(way, []).append(float((hit & correct).double().mean()))
            of_group = scores[groups].sum(1).argmax(1) == task
            together.setdefault(way, []).append(float(of_group.double().mean()))
    mean = {name: {way: sum(each) / len(each) for way, each in table.items()} for name, table in
            (("named", named), ("accuracy", right), (f"named_by_{TOGETHER}", together))}  # fmt: skip
    return {"task_given": sum(given) / len(given), **mean}


def measure(stream_name: str, seed: int, data: str | None) -> dict[str, Any]:
    """Train a learner on every task, and guess the tasks of validation and test samples."""
    config = config_of(stream_name, seed)
    stream = build_stream(config, data)
    learner = build_method(config, build_network(config.network), "cpu")
    began = time.perf_counter()
    for index in range(len(stream)):
        learner.learn(stream[index])
    seconds = time.perf_counter() - began
    assert learner.discriminant is not None
    return {
        "seed": seed,
        "epochs": config.recipe.epochs,
        "map": learner.map_kind(learner.seen[0]),
        "size": learner.discriminant.size,
        "numbers": learner.discriminant.numbers(),
        "parameters": sum(learner.parameters().values()),
        "training_seconds": round(seconds, 1),
        "validation": shares(learner, [stream[index].validation for index in range(len(stream))], seed),
        "test": shares(learner, [stream.test_split(index) for index in range(len(stream))], seed),
    }


CANDIDATES: tuple[tuple[MapKind, int], ...] = (
    ("inputs", 144), ("inputs", 288), ("inputs", 576), ("inputs", 1024),
    ("filters", 144), ("filters", 288), ("filters", 576), ("filters", 1024),
)  # fmt: skip
SHRINKAGES = (0.001, 0.01, 0.1, 1.0, 10.0)


def choose(stream_name: str, data: str | None) -> dict[str, Any]:
    """Compare maps, sizes and shrinkages on validation samples: no network is trained for it."""
    config = config_of(stream_name, 0)
    stream = build_stream(config, data)
    seed, first = seed_for(config.seed, "method"), SeenTask.of(stream[0])
    usual, rows = lda.SHRINKAGE, []
    for kind, size in CANDIDATES:
        kept = _kept(stream, first, kind, size, seed)
        by_task = [_mapped(stream[task].validation, first, kind, size, seed) for task in range(len(stream))]
        for shrinkage in SHRINKAGES:
            lda.SHRINKAGE = shrinkage
            fresh = replace(kept)  # whose weights are computed anew
            named = [
                float((fresh.log_densities(features).argmax(1) == task).double().mean())
                for task, features in enumerate(by_task)
            ]
            row = {"map": kind, "size": kept.size, "shrinkage": shrinkage, "numbers": kept.numbers(),
                   "named": sum(named) / len(named)}  # fmt: skip
            rows.append(row)
            print(row, flush=True)
    lda.SHRINKAGE = usual
    return {"seed": 0, "samples": "validation", "candidates": rows}


def _kept(stream: TaskStream, first: SeenTask, kind: MapKind, size: int, seed: int) -> lda.Discriminant:
    kept: lda.Discriminant | None = None
    for task in range(len(stream)):
        train: DeviceSplit = to_device(in_scale_of(first, stream[task].train), CPU)
        batches = (train.rows(part) for part in train.parts(BATCH))
        pairs = ((mapped(kind, x, GuessSettings(kind, size), seed), labels) for x, labels in batches)
        kept = lda.Discriminant.of(*lda.add_up(pairs, stream[task].classes), kept)
    assert kept is not None
    return kept


def _mapped(split: Split, first: SeenTask, kind: MapKind, size: int, seed: int) -> Tensor:
    inputs = in_scale_of(first, split).inputs()
    return torch.cat([mapped(kind, some, GuessSettings(kind, size), seed) for some in inputs.split(BATCH)])


def main() -> None:
    """Measure what is not on record yet."""
    parser = argparse.ArgumentParser(prog="python -m replication.guessing.measure", description=__doc__.splitlines()[0])
    parser.add_argument("stream", choices=sorted(EPOCHS))
    parser.add_argument("--seeds", default="0,1,2,3")
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--data")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    RESULTS.mkdir(exist_ok=True)
    todo = ["choice"] if asked.choose else [f"seed{seed}" for seed in parse_seeds(asked.seeds) or (0,)]
    for what in todo:
        place = RESULTS / f"{asked.stream}-{what}.json"
        if place.exists():
            continue
        if asked.choose:
            found = choose(asked.stream, asked.data)
        else:
            found = measure(asked.stream, int(what.removeprefix("seed")), asked.data)
        facts = {
            "stream": asked.stream,
            "command": f"python -m replication.guessing.measure {' '.join(sys.argv[1:])}",
            "date": datetime.now(UTC).date().isoformat(),
            "versions": versions(),
            "machine": machine(CPU),
        }
        place.write_text(json.dumps({**facts, **found}, indent=1) + "\n", encoding="utf-8")
        print(place, flush=True)


if __name__ == "__main__":
    main()

"""AdaLoRA, as PEFT has it, on the tasks of ``text-sections``: ranks that are pruned while one adapter is trained.

python -m replication.pretrained.adalora OUT.json --rank 4 [--seeds 0,1] [--data FOLDER] [--device cuda] [--set a.b=c …]

It takes samples, recipe and batches of the preset. ``--rank`` is the average rank that is left at the end, over all
linear layers of the encoder; an adapter begins with half as much again. What is stored for a task is counted as its
ranks are at the end, and with its head.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bocl.cli.comma_lists import parse_seeds
from bocl.experiment.build import build_pretrained, build_stream
from bocl.experiment.config import Config, load_config
from bocl.experiment.provenance import machine, versions
from bocl.networks.low_rank.plan import make_plan
from bocl.seeding import seed_for
from bocl.tasks.task import TaskStream
from bocl.training.batches import DeviceSplit, epoch_order, task_to_device, to_device
from bocl.training.device import resolve_device
from bocl.training.evaluation import accuracy
from bocl.training.precision import repeatable_products

PRESET = "text-sections"
WARM_UP, SETTLED = 0.1, 0.3  # shares of the steps before ranks are pruned, and after they are
EVERY = 5  # steps between two prunings


class _WithHead(nn.Module):
    def __init__(self, encoder: nn.Module, features: int, classes: int) -> None:
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(features, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x))  # type: ignore[no-any-return]


def learn_task(
    config: Config, stream: TaskStream, index: int, rank: int, device: torch.device, data: str | None
) -> Any:
    """Train one adapter and return its accuracies, what it stores and how long it took."""
    from peft import AdaLoraConfig, get_peft_model

    task = task_to_device(stream[index], index, device)
    encoder = build_pretrained(config.network, data).eval()
    layers = make_plan(encoder, groups={}, depth=config.growth.depth, head=None).layers
    torch.manual_seed(seed_for(config.seed, "adalora", index))
    with torch.no_grad():
        features = encoder.to(device)(task.train.rows(slice(2))[0]).shape[1]
    model = _WithHead(encoder, features, task.classes).to(device)
    recipe, size = config.recipe, len(task.train)
    epochs = recipe.epochs_of(recipe.steps(size))
    steps = epochs * recipe.steps(size)
    adapted = get_peft_model(
        model,
        AdaLoraConfig(
            target_modules="|".join(rf"encoder\.{re.escape(layer.name)}" for layer in layers),
            modules_to_save=["head"],
            init_r=math.ceil(1.5 * rank),
            target_r=rank,
            lora_alpha=config.growth.scale,
            tinit=int(WARM_UP * steps),
            tfinal=int(SETTLED * steps),
            deltaT=EVERY,
            total_step=steps,
        ),
    )
    trained = [parameter for parameter in adapted.parameters() if parameter.requires_grad]
    optimiser = torch.optim.Adam(trained, recipe.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    generator = torch.Generator().manual_seed(seed_for(config.seed, "order", index))
    began, step = time.perf_counter(), 0
    with repeatable_products(recipe.precision):
        for _ in range(epochs):
            order = epoch_order(size, recipe.batch_size, generator, task.train.lengths)
            for rows, columns in zip(order, task.train.columns(order), strict=True):
                x, labels = task.train.take(rows.to(device), columns)
                loss = F.cross_entropy(adapted(x), labels) + _orthogonality(adapted)
                loss.backward()
                optimiser.step()
                schedule.step()
                adapted.base_model.update_and_allocate(step)  # without which it is plain LoRA
                optimiser.zero_grad()
                step += 1
    seconds = time.perf_counter() - began
    adapted.eval()
    test: DeviceSplit = to_device(stream.test_split(index), device)
    with torch.no_grad():
        scores = accuracy(adapted, task.validation), accuracy(adapted, test)
    return {"validation": scores[0], "test": scores[1], "parameters": _stored(adapted), "seconds": round(seconds, 2)}


def _orthogonality(adapted: nn.Module) -> Tensor:
    """Return the term that keeps factors orthogonal, which PEFT adds to losses that a model itself returns only."""
    terms = []
    for name, factor in adapted.named_parameters():
        if "lora_A" in name or "lora_B" in name:
            product = factor @ factor.T if "lora_A" in name else factor.T @ factor
            terms.append((product - torch.eye(len(product), device=product.device)).norm())
    weight: float = adapted.peft_config["default"].orth_reg_weight  # type: ignore[union-attr, index]
    return weight * torch.stack(terms).mean()


def _stored(adapted: nn.Module) -> int:
    """Count the head, and what is left of the factors: those of the singular values that are not 0."""
    total = 0
    values = {name.rpartition(".lora_E")[0]: part for name, part in adapted.named_parameters() if ".lora_E." in name}
    for name, part in adapted.named_parameters():
        if "modules_to_save" in name:
            total += part.numel()
    for prefix, singular in values.items():
        layer: Any = adapted.get_submodule(prefix)
        left = int((singular != 0).sum())
        total += left * (layer.in_features + layer.out_features + 1)
    return total


def main() -> None:
    """Learn every task of every seed, and write what came of it."""
    parser = argparse.ArgumentParser(
        prog="python -m replication.pretrained.adalora", description=__doc__.splitlines()[0]
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--seeds", default="0,1,2,3")
    parser.add_argument("--data")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    asked = parser.parse_args()
    device = resolve_device(asked.device)
    runs = []
    for seed in parse_seeds(asked.seeds) or (0,):
        config = load_config(PRESET, [*asked.overrides, f"seed={seed}"])
        stream = build_stream(config, asked.data)
        tasks = [learn_task(config, stream, index, asked.rank, device, asked.data) for index in range(len(stream))]
        runs.append({"seed": seed, "tasks": tasks})
        mean = sum(task["test"] for task in tasks) / len(tasks)
        print(f"rank {asked.rank}  seed {seed}  {100 * mean:.2f} %", flush=True)
    facts = {"rank": asked.rank, "overrides": asked.overrides, "versions": versions(), "machine": machine(device)}
    asked.out.write_text(json.dumps({**facts, "runs": runs}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

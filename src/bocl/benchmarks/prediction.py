"""What predicting one sample costs: a learner's ``predict`` beside a plain module of the same weights, in one run.

The module is what anybody would write: layers, the task's gates and, for bytes, their scaling. A learner also checks
the sample, and puts aside what its caller has set.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from bocl.benchmarks.speed import wait
from bocl.methods.fixed import Fixed
from bocl.networks.architectures import mlp
from bocl.networks.attention import NAMES
from bocl.networks.compact import CompactNetwork
from bocl.networks.growth import PAPERS_WAY
from bocl.tasks.arrays import from_arrays
from bocl.tasks.task import Task
from bocl.training.recipe import Recipe
from bocl.wording import counted

Prediction = Callable[[Tensor], Tensor]

INPUTS, HIDDEN, CLASSES, TASKS = 64, (48, 24), 10, 5


@dataclass(frozen=True)
class PredictionRow:
    """One measurement; ``bocl bench --predict --json`` prints these."""

    samples: str  # their type
    tasks: int  # learnt so far
    task: int  # the one predicted for
    threads: int
    plain_microseconds: float
    predict_microseconds: float
    times_plain: float

    def describe(self) -> str:
        """Say it in one line."""
        return (
            f"{self.samples:7} task {self.task} of {self.tasks}  {counted(self.threads, 'thread')}  "
            f"plain {self.plain_microseconds:7.1f} µs  predict {self.predict_microseconds:7.1f} µs  "
            f"{self.times_plain:5.2f} x plain"
        )


def measure_predictions(
    device: torch.device, *, quick: bool = False, tell: Callable[[PredictionRow], None]
) -> list[PredictionRow]:
    """Measure one sample of the first task after one task and after five, and of the fifth, in floats and in bytes.

    ``tell`` is called with each row as it is done.
    """
    rows: list[PredictionRow] = []
    for kind in ("float32", "uint8"):
        recipe = Recipe("sgd", 0.05, batch_size=64, epochs=1)
        learner = Fixed(mlp(INPUTS, HIDDEN), growth=PAPERS_WAY, recipe=recipe, device=device)
        for count, task in enumerate(_tasks(kind), start=1):
            learner.learn(task)
            for number in {1: (0,), TASKS: (0, TASKS - 1)}.get(count, ()):
                plain, predict = plain_prediction(learner, number), partial(learner.predict, task=number)
                x = task.train.raw[:1].to(device)
                theirs, ours = _seconds(plain, predict, x, rounds=100 if quick else 2000)
                threads = torch.get_num_threads()
                rows.append(PredictionRow(kind, count, number, threads, 1e6 * theirs, 1e6 * ours, ours / theirs))
                tell(rows[-1])
    return rows


def _tasks(kind: str) -> list[Task]:
    """Return random tasks: what a prediction costs does not depend on what was learnt."""
    samples = np.random.default_rng(0).integers(256, size=(TASKS, 100, INPUTS), dtype=np.uint8)
    floats = samples.astype(np.float32) / 128 - 1
    labels = np.arange(100) % CLASSES
    return list(from_arrays([(part, labels) for part in (samples if kind == "uint8" else floats)]))


def plain_prediction(learner: Fixed, task: int) -> Prediction:
    """Return the logits of one task as a tutorial would compute them."""
    compact = learner.network.tasks[task]
    assert isinstance(compact, CompactNetwork)
    module = _module(compact).eval()
    seen, device = learner.seen[task], learner.device
    mean, std = torch.tensor(seen.mean, device=device), torch.tensor(seen.std, device=device)

    def predict(x: Tensor) -> Tensor:
        with torch.no_grad():
            logits: Tensor = module((x.float() / 255 - mean) / std if seen.in_bytes else x)
            return logits

    return predict


def _module(network: CompactNetwork) -> nn.Sequential:
    """Return an MLP, its gates included, as layers of PyTorch."""
    layers: list[nn.Module] = []
    for layer in (*network.graph.layers, network.graph.head):
        if layers:
            layers.append(nn.ReLU())
        gate = [f"gate/{layer.name}/{name}" for name in NAMES]
        if gate[0] in network.weights:
            layers.append(_Gate(*(network.weights[name] for name in gate)))
        layers.append(_linear(*network.weight_and_bias(layer)))
    return nn.Sequential(*layers)


class _Gate(nn.Module):
    def __init__(self, w_c: Tensor, b_c: Tensor, w_s: Tensor, b_s: Tensor) -> None:
        super().__init__()
        self.reduce, self.expand = _linear(w_c, b_c), _linear(w_s, b_s)

    def forward(self, x: Tensor) -> Tensor:
        """Return F ⊙ β."""
        return x * torch.sigmoid(self.expand(torch.relu(self.reduce(x))))


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    assert bias is not None, "an MLP has them"
    layer = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
    layer.weight, layer.bias = nn.Parameter(weight), nn.Parameter(bias)
    return layer


def _seconds(plain: Prediction, predict: Prediction, x: Tensor, *, rounds: int) -> tuple[float, float]:
    """Return the best mean of 20 calls for both. They take short turns, so that whatever else runs slows both alike."""
    best = [math.inf, math.inf]
    for _ in range(rounds):
        for place, call in enumerate((plain, predict)):
            call(x)
            began = time.perf_counter()
            for _ in range(20):
                call(x)
            wait(x.device)
            best[place] = min(best[place], (time.perf_counter() - began) / 20)
    return best[0], best[1]

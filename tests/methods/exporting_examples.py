"""Learners of every form of network, and samples of every type for them."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import bocl
from bocl.networks.library import make_network

sys.path.append(str(Path(__file__).parents[1] / "networks"))
from low_rank_examples import MODULES, trained
from network_examples import IMAGE
from test_pretrained_methods import stream, text_stream

BATCHES = (1, 7, 128)
TYPES = ("float32", "float64", "uint8", "int16")
RECIPE = bocl.Recipe("adam", learning_rate=0.02, batch_size=16, epochs=1)
ENCODER = {"vocabulary": 30, "width": 8, "layers": 2, "heads": 2, "inner": 12, "positions": 16}


@cache
def typed_stream(kind: str = "float32"):
    """Return three tasks of 3, 2 and 3 classes whose samples have this type, each with a scale of its own."""
    pairs = []
    for task, classes in enumerate((3, 2, 3)):
        rng = np.random.default_rng(task)
        y = np.arange(36) % classes
        x = rng.normal(100, 30 + 10 * task, (36, *IMAGE)) + 20 * y[:, None, None, None]
        pairs.append((np.clip(x, 0, 255).astype(kind), y))
    return bocl.from_arrays(pairs, validation=0.3, standardise=kind != "uint8")


def fixed(module: nn.Module, kind: str = "float32", tasks: int = 3, **options) -> bocl.Fixed:
    """Return a learner that has grown by units for every task."""
    learner = bocl.Fixed(module, settings=bocl.FixedSettings(widths=1), recipe=RECIPE, device="cpu", **options)
    for index in range(tasks):
        learner.learn(typed_stream(kind)[index])
    return learner


def adapted(name: str, form: str = "low-rank", tasks: int = 2) -> bocl.Learner:
    """Return a learner that adapts a module: by factors, or as whole copies."""
    module = trained(make_network("text-encoder", ENCODER) if name == "text" else MODULES[name][0]())
    options = {"recipe": RECIPE, "device": "cpu", "pretrained": True}
    if form == "whole":
        learner: bocl.Learner = bocl.Independent(module, **options)
    else:
        norms = "task" if "own norms" in form else "frozen"
        growth = bocl.GrowthSettings("all", form="low-rank", norms=norms, gate_bias=0.5)
        learner = bocl.Fixed(module, growth=growth, settings=bocl.FixedSettings(widths=2), **options)
    for task in text_stream(tasks) if name == "text" else stream(tasks, MODULES[name][1]):
        learner.learn(task)
    return learner


def samples_for(learner: bocl.Learner, task: int, count: int, kind: str = "float32") -> Tensor:
    """Return samples as they come for a task."""
    about = learner.seen[task]
    if about.padding is not None:
        rng = np.random.default_rng(count)
        ids = rng.integers(1, 30, (count, *about.shape))
        return torch.from_numpy(np.where(np.arange(about.shape[0]) < rng.integers(1, 13, (count, 1)), ids, 0))
    rng = np.random.default_rng(count)
    return torch.from_numpy(np.clip(rng.normal(100, 40, (count, *about.shape)), 0, 255).astype(kind))

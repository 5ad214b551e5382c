"""A small learner and a small stream for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from bocl.methods.bocl import BOCL
from bocl.networks.architectures import mlp
from bocl.search.settings import SearchSettings
from bocl.tasks.arrays import ArrayStream, from_arrays
from bocl.training.recipe import Recipe
from paper_settings import PAPER_GROWTH, PAPER_REWARD

CLASSES = (3, 2, 4, 2)
SHAPE = (2, 6, 6)
RECIPE = Recipe("adam", learning_rate=0.02, batch_size=16, epochs=4)
SEARCH = SearchSettings("random", trials=3, patience=3, warm_points=1, bounds=3, round_size=2)
PAPER_SEARCH = replace(SEARCH, halving=False)


def small_cnn() -> nn.Module:
    """Return conv, batch norm, pool, linear, head: groups of 4 and 5 units."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(36, 5), nn.ReLU(), nn.Linear(5, 3),
    )  # fmt: skip


def small_mlp() -> nn.Module:
    """Return an MLP: groups of 6 and 5 units."""
    return mlp(72, [6, 5], 3)


def make_bocl(network: nn.Module | None = None, **options: Any) -> BOCL:
    """Return a learner that searches little."""
    return BOCL(network or small_mlp(), **{"search": SEARCH, "recipe": RECIPE, "device": "cpu"} | options)


def paper_bocl(network: nn.Module | None = None, **options: Any) -> BOCL:
    """Return one that does so in the paper's way."""
    paper = {"growth": PAPER_GROWTH, "reward": PAPER_REWARD, "search": PAPER_SEARCH}
    return make_bocl(network, **paper | options)


def hard_stream(spread: float = 1.0) -> ArrayStream:
    """Return four tasks of 3, 2, 4 and 2 classes; the wider the spread, the harder."""
    pairs = []
    for task, classes in enumerate(CLASSES):
        rng = np.random.default_rng(task)
        labels = np.arange(48) % classes
        inputs = rng.normal(0, 1, (classes, *SHAPE))[labels] + rng.normal(0, spread, (48, *SHAPE))
        pairs.append((inputs.astype(np.float32), labels))
    return from_arrays(pairs, validation=0.4, test_fraction=0.1)

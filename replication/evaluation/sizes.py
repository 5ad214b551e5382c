"""What a system stores after all tasks of a stream, and the overrides that bring it to a number of parameters.

Sizes are counted. A learner learns as many tasks of noise as the stream has, in a step or two each, and says what it
stores, so no rule of counting stands here a second time. Accuracies play no part.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, sqrt
from typing import Any

import numpy as np

import bocl
from bocl.experiment.build import build_base, build_method
from bocl.experiment.config import Config, config_with
from bocl.settings import to_plain

Overrides = tuple[str, ...]
SHAPES = {"permuted-digits": (1, 8, 8), "split-cifar100": (3, 32, 32)}
MNIST = (1, 28, 28)
CLASSES, EACH = 10, 4  # of a task of noise, and samples of each
WIDTHS = {"mlp": "hidden", "lenet": "widths"}  # the argument that says the widths of a network
CLOSE, MOST_STEPS = 0.01, 12
BUDGETS = ("den.budget", "fixed.budget", "goal.total_budget")


def stored(config: Config) -> int:
    """Return the parameters stored after all tasks, heads, gates, norms and masks (bits / 32) included."""
    recipe = replace(config.recipe, epochs=1, batch_size=CLASSES * EACH, average="off", use_validation=False)
    config = replace(config, recipe=recipe, seed=0)
    learner: bocl.Learner = build_method(config, build_base(config), "cpu")
    rng = np.random.default_rng(0)
    shape = SHAPES.get(config.stream.name, MNIST)
    noise = rng.integers(0, 256, (CLASSES * EACH, *shape), dtype=np.uint8), np.arange(CLASSES * EACH) % CLASSES
    for task in bocl.from_arrays([noise] * (config.stream.tasks or 1)):
        learner.learn(task)
    return sum(learner.parameters().values())


def sized(config: Config, setting: str, parameters: float, *, seen: float = 1.0) -> Overrides:
    """Return the overrides that let a system store so many parameters, as nearly as its widths allow.

    setting  `network`, for the widths of its base network in their proportions; the name of a factor of widths; or that
             of a budget
    seen     what a run of these settings stored, as a multiple of what is counted on noise: a subnetwork is as large as
             training made it
    """
    if setting in BUDGETS:
        return (f"{setting}={round(parameters)}",)
    overrides = _network(config) if setting == "network" else lambda factor: (f"{setting}={factor:.4g}",)
    plain, factor, low, high = to_plain(config), 1.0, 0.0, inf
    found: list[tuple[float, Overrides]] = []
    for _ in range(MOST_STEPS):
        words = overrides(factor)
        share = seen * stored(config_with(words, plain)) / parameters
        found.append((abs(share - 1), words))
        if abs(share - 1) < CLOSE:
            break
        low, high = (factor, high) if share < 1 else (low, factor)
        between = low and high < inf
        # Sizes grow faster than widths and slower than their squares, in steps of a unit.
        factor = sqrt(low * high) if between else factor / share ** (2 / 3)
    return min(found)[1]


def _network(config: Config) -> Callable[[float], Overrides]:
    argument = WIDTHS[config.network.build]
    base: Sequence[int] = config.network.arguments[argument]

    def scaled(factor: float) -> Overrides:
        widths: Any = [max(1, round(factor * width)) for width in base]
        return (f"network.arguments.{argument}={json.dumps(widths, separators=(',', ':'))}",)

    return scaled

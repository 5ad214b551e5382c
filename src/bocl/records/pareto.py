"""Accuracy against parameters, from the trials of one task. Nothing is trained: every child is on record.

Accuracies are those on validation samples, each of one training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

from pydantic import Field

from bocl.checks import NonNegative, Positive, PositiveInt, section
from bocl.errors import InputError
from bocl.records.record import Trial

Item = TypeVar("Item")


@section("")
@dataclass(frozen=True)
class Criterion:
    """Which of a task's trials is wanted; nothing set: the one with the best reward recorded.

    alpha   α: rewards are taken at this price of a unit, A - α cost, instead of as recorded
    budget  most parameters it may add
    target  the one with the fewest parameters that is as accurate, else the most accurate; a price has no part in it
    """

    alpha: NonNegative | None = None
    budget: PositiveInt | None = None
    target: Annotated[Positive, Field(le=1)] | None = None

    def __post_init__(self) -> None:
        if self.alpha is not None and self.target is not None:
            raise InputError("alpha and target are two ways to choose; give one of them")


def front(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials that no other beats: none is as accurate with fewer parameters, nor better with as many.

    From the fewest parameters on, so accuracies rise. Of trials alike in both one is returned.
    """
    trained = sorted(_trained(trials), key=lambda trial: trial.widths)
    return front_of(trained, lambda trial: trial.parameters, lambda trial: trial.accuracy)


def front_of(items: Iterable[Item], size: Callable[[Item], float], worth: Callable[[Item], float]) -> list[Item]:
    """Return the items worth more than every other that is no larger, smallest first; of equals the first."""
    kept: list[Item] = []
    for item in sorted(items, key=lambda item: (size(item), -worth(item))):
        if not kept or worth(item) > worth(kept[-1]):
            kept.append(item)
    return kept


def best_within(trials: Sequence[Trial], budgets: Sequence[int]) -> list[Trial | None]:
    """Return the most accurate trial within each number of parameters; None where none is within it."""
    best = front(trials)
    found = [[trial for trial in best if trial.parameters <= budget] for budget in budgets]
    return [within[-1] if within else None for within in found]


def reward_at(trial: Trial, alpha: float) -> float:
    """Return r = A - α cost of a trial at another price of a unit."""
    if math.isnan(trial.cost):
        raise InputError("alpha: what units cost was not recorded when these trials were made; choose by widths")
    return trial.accuracy - alpha * trial.cost


def choose(trials: Sequence[Trial], by: Criterion) -> Trial:
    """Return the trial that is wanted; of equals the one with fewer parameters, then with the smaller widths."""
    trained = [trial for trial in _trained(trials) if by.budget is None or trial.parameters <= by.budget]
    if not trained:
        fewest = min((trial.parameters for trial in _trained(trials)), default=0)
        raise InputError(f"budget {by.budget:,}: no trial adds so few parameters; the smallest adds {fewest:,}")
    if by.target is not None:
        reached = [trial for trial in trained if trial.accuracy >= by.target]
        if reached:
            return min(reached, key=lambda trial: (trial.parameters, trial.widths))
        return min(trained, key=lambda trial: (-trial.accuracy, trial.parameters, trial.widths))
    rewards = {trial: trial.reward if by.alpha is None else reward_at(trial, by.alpha) for trial in trained}
    return min(trained, key=lambda trial: (-rewards[trial], trial.parameters, trial.widths))


def _trained(trials: Sequence[Trial]) -> list[Trial]:
    return [trial for trial in trials if not trial.failed]

"""Accuracy against parameters, from the recorded trials of one task; nothing is trained.

Accuracies are those on validation samples, each from a single training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

from pydantic import Field

from bocl.checks import Fraction, NonNegative, Positive, PositiveInt, section
from bocl.errors import InputError
from bocl.records.record import Trial

Item = TypeVar("Item")


@section("")
@dataclass(frozen=True)
class Criterion:
    """By what one of a task's trials is chosen; with nothing set, by the best reward recorded.

    alpha      α: by the reward at this price of a unit, A - α cost, instead of the one recorded
    budget     the most parameters that it may add
    target     the smallest that is at least so accurate, or else the most accurate
    tolerance  the smallest that is at most so much less accurate than the most accurate one within the budget

    Of alpha, target and tolerance at most one is given.
    """

    alpha: NonNegative | None = None
    budget: PositiveInt | None = None
    target: Annotated[Positive, Field(le=1)] | None = None
    tolerance: Fraction | None = None

    def __post_init__(self) -> None:
        ways = {"alpha": self.alpha, "target": self.target, "tolerance": self.tolerance}
        given = [name for name, value in ways.items() if value is not None]
        if len(given) > 1:
            raise InputError(f"{' and '.join(given)} are different ways to choose; give one of them")


def front(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials that no other beats: none is as accurate with fewer parameters, nor better with as many.

    They are ordered by parameters, so accuracies rise. If several have the same of both, one is returned.
    """
    trained = sorted(_trained(trials), key=lambda trial: trial.widths)
    return front_of(trained, lambda trial: trial.parameters, lambda trial: trial.accuracy)


def front_of(items: Iterable[Item], size: Callable[[Item], float], worth: Callable[[Item], float]) -> list[Item]:
    """Return the items worth more than all others that are no larger, smallest first; the first of equals."""
    kept: list[Item] = []
    for item in sorted(items, key=lambda item: (size(item), -worth(item))):
        if not kept or worth(item) > worth(kept[-1]):
            kept.append(item)
    return kept


def best_within(trials: Sequence[Trial], budgets: Sequence[int]) -> list[Trial | None]:
    """Return the most accurate trial within each number of parameters, or None."""
    best = front(trials)
    found = [[trial for trial in best if trial.parameters <= budget] for budget in budgets]
    return [within[-1] if within else None for within in found]


def reward_at(trial: Trial, alpha: float) -> float:
    """Return r = A - α cost of a trial at another price of a unit."""
    if math.isnan(trial.cost):
        raise InputError("alpha: what units cost was not recorded when these trials were made; choose by widths")
    return trial.accuracy - alpha * trial.cost


def choose(trials: Sequence[Trial], by: Criterion) -> Trial:
    """Return the best trial by a criterion; among equals the one with fewer parameters, then with smaller widths."""
    trained = [trial for trial in _trained(trials) if by.budget is None or trial.parameters <= by.budget]
    if not trained:
        fewest = min((trial.parameters for trial in _trained(trials)), default=0)
        raise InputError(f"budget {by.budget:,}: no trial adds so few parameters; the smallest adds {fewest:,}")
    wanted = by.target
    if by.tolerance is not None:
        wanted = max(trial.accuracy for trial in trained) - by.tolerance
    if wanted is not None:
        reached = [trial for trial in trained if trial.accuracy >= wanted]
        if reached:
            return min(reached, key=lambda trial: (trial.parameters, trial.widths))
        return min(trained, key=lambda trial: (-trial.accuracy, trial.parameters, trial.widths))
    rewards = {trial: trial.reward if by.alpha is None else reward_at(trial, by.alpha) for trial in trained}
    return min(trained, key=lambda trial: (-rewards[trial], trial.parameters, trial.widths))


def _trained(trials: Sequence[Trial]) -> list[Trial]:
    return [trial for trial in trials if not trial.failed]

"""When a search is over: N, H, an exhausted space; pending points take room."""

from __future__ import annotations

import math

import pytest

from bocl.records.record import Trial
from bocl.search.settings import SearchSettings
from bocl.search.stopping import trials_left, trials_without_gain

NAN = math.nan
SETTINGS = SearchSettings(trials=6, patience=3, warm_points=2)


def told(*rewards: float) -> list[Trial]:
    """One trial per reward; NaN makes a failed one."""
    return [Trial((index,), reward, 0, reward) for index, reward in enumerate(rewards)]


@pytest.mark.parametrize(
    ("rewards", "stale"),
    [
        ((), 0),
        ((0.5, 0.4), 0),  # the opening points have no patience to lose
        ((0.5, 0.4, 0.3), 1),
        ((0.5, 0.4, 0.5), 1),  # as good is not better
        ((0.5, 0.4, 0.6), 0),
        ((0.5, 0.4, 0.1, 0.6, 0.2, 0.3), 2),
        ((0.5, 0.4, NAN, NAN), 2),
        ((NAN, NAN, 0.1), 0),
        ((NAN, NAN, NAN), 1),
    ],
)
def test_trials_without_a_new_best(rewards: tuple[float, ...], stale: int) -> None:
    assert trials_without_gain(told(*rewards), SETTINGS) == stale


@pytest.mark.parametrize(
    ("rewards", "pending", "untried", "left"),
    [
        ((), 0, 99, 2 + 3),  # two opening points, then patience for three
        ((), 4, 99, 1),
        ((), 5, 99, 0),
        ((0.1,), 1, 99, 3),
        ((0.1, 0.2), 0, 99, 3),
        ((0.1, 0.2, 0.3, 0.4), 0, 99, 3),
        ((0.1, 0.2, 0.3, 0.4, 0.5), 0, 99, 3),
        ((0.1, 0.2, 0.3, 0.4, 0.5, 0.6), 0, 99, 2),  # N leaves less than H
        ((0.1, 0.2, 0.3, 0.4, 0.5, 0.6), 1, 99, 1),
        ((0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7), 0, 99, 1),
        ((0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8), 0, 99, 0),  # N reached
        ((0.1, 0.2, 0.1, 0.1), 0, 99, 1),
        ((0.1, 0.2, 0.1, 0.1, 0.1), 0, 99, 0),  # H reached
        ((0.1, 0.2, NAN, NAN, NAN), 0, 99, 0),
        ((0.1, 0.2), 0, 1, 1),
        ((0.1, 0.2), 0, 0, 0),  # nothing untried
    ],
)
def test_room(rewards: tuple[float, ...], pending: int, untried: int, left: int) -> None:
    assert trials_left(told(*rewards), pending=pending, untried=untried, settings=SETTINGS) == left


def test_more_trials_than_asked_for_end_the_search() -> None:
    rewards = [index / 100 for index in range(50)]
    assert trials_left(told(*rewards), pending=0, untried=99, settings=SETTINGS) == 0

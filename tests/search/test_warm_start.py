"""The warm start: nearest difficulty first, random points fill up."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from bocl.errors import InputError
from bocl.records.record import Experience, Trial
from bocl.search.ledger import Ledger
from bocl.search.paper import PaperSearch, earlier_points
from bocl.search.problem import Problem
from bocl.search.settings import SearchSettings

SETTINGS = SearchSettings()
ZERO = Trial((0, 0), 0.5, 0, 0.5)


def problem(
    history: list[tuple[float, tuple[int, ...]]], difficulty: float = 0.5, trained: tuple[Trial, ...] = ()
) -> Problem:
    return Problem(
        bounds=(9, 9),
        parameters=lambda z: z.sum(1),
        penalty=lambda z: np.zeros(len(z)),
        trained=trained,
        history=tuple(Experience(each, best, ()) for each, best in history),
        difficulty=difficulty,
        seed=3,
    )


EARLIER = [(0.1, (1, 0)), (0.45, (2, 0)), (0.95, (3, 0)), (0.6, (4, 0)), (0.52, (5, 0))]


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (2, []),
        (3, [(1, 0)]),
        (4, [(2, 0), (1, 0)]),
        (5, [(2, 0), (1, 0), (3, 0)]),
        (6, [(2, 0), (4, 0), (1, 0)]),
        (7, [(5, 0), (2, 0), (4, 0)]),
    ],
)
def test_opening_points_by_task(task: int, expected: list[tuple[int, int]]) -> None:
    """Tasks 2 … t-1 came before; what they lack of three is random."""
    asked = PaperSearch(problem(EARLIER[: task - 2]), SETTINGS).ask(8)
    assert len(asked) == len(set(asked)) == 3
    assert asked[: len(expected)] == expected


def test_asking_one_at_a_time_opens_with_the_same_points() -> None:
    together = PaperSearch(problem(EARLIER[:2]), SETTINGS).ask(3)
    alone = PaperSearch(problem(EARLIER[:2]), SETTINGS)
    assert [alone.ask(1)[0] for _ in range(3)] == together


def test_of_equally_near_tasks_the_more_recent_comes_first() -> None:
    earlier = [(0.25, (1, 1)), (0.75, (2, 2)), (0.25, (3, 3))]
    assert earlier_points(problem(earlier)) == [(3, 3), (2, 2), (1, 1)]


def test_what_cannot_be_asked_for_is_passed_over() -> None:
    earlier = [
        (0.50, (0, 0)),  # trained already
        (0.51, (1, 2, 3)),  # another network
        (0.52, (10, 0)),  # outside the bounds
        (0.53, (4, 4)),
        (0.54, (4, 4)),  # the same again
        (0.60, (5, 5)),
    ]
    asked = PaperSearch(problem(earlier, trained=(ZERO,)), SETTINGS).ask(3)
    assert asked[:2] == [(4, 4), (5, 5)]
    assert asked[2] not in {(0, 0), (4, 4), (5, 5)}
    assert earlier_points(problem(earlier)) == [(0, 0), (4, 4), (5, 5)]


def test_no_warm_points_means_none() -> None:
    searcher = PaperSearch(problem([(0.5, (7, 7))]), SearchSettings(warm_points=0))
    assert searcher.ask(8) != [(7, 7)]


def test_an_infinite_difficulty_is_refused() -> None:
    with pytest.raises(InputError, match="the task has difficulty inf"):
        PaperSearch(problem([], difficulty=math.inf), SETTINGS)
    with pytest.raises(InputError, match=r"history\[1\] has difficulty -inf"):
        PaperSearch(problem([(0.1, (1, 1)), (-math.inf, (2, 2))]), SETTINGS)


def test_an_unknown_difficulty_is_nearest_to_nothing() -> None:
    earlier = [(math.nan, (4, 4)), (0.1, (1, 1)), (math.nan, (2, 2)), (0.4, (3, 3))]
    assert earlier_points(problem(earlier)) == [(3, 3), (1, 1), (2, 2), (4, 4)], "the more recent first"
    cold = problem(earlier, difficulty=math.nan)
    assert earlier_points(cold) == []
    asked = PaperSearch(cold, SETTINGS).ask(8)
    assert asked == PaperSearch(problem([], difficulty=0.5), SETTINGS).ask(8), "it starts cold"


def test_widths_over_the_budget_are_left_out() -> None:
    for most, opening in ((3, [(2, 0), (1, 0), (3, 0)]), (0, [])):
        tight = replace(problem(EARLIER), budget=most)
        assert Ledger(tight, SETTINGS).free(earlier_points(tight)) == opening

"""Random search: the same points whatever the round size, and the same totals as every searcher."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bocl.records.record import Trial
from bocl.search.problem import Problem
from bocl.search.random_search import RandomSearch
from bocl.search.settings import SearchSettings
from bocl.widths import Widths


def tried(bounds: Widths, search: SearchSettings, count: int, seed: int) -> list[Widths]:
    problem = Problem(bounds, lambda z: z.sum(1), lambda z: np.zeros(len(z)), seed=seed)
    searcher = RandomSearch(problem, search)
    points: list[Widths] = []
    while asked := searcher.ask(count):
        points += asked
        searcher.tell([Trial(widths, 0.01 * sum(widths), 0, 0.01 * sum(widths)) for widths in asked])
    return points


@given(
    bounds=st.lists(st.integers(0, 5), min_size=1, max_size=3).map(tuple),
    search=st.builds(
        SearchSettings, trials=st.integers(1, 12), patience=st.integers(1, 6), warm_points=st.integers(0, 4)
    ),
    count=st.integers(2, 16),
    seed=st.integers(0, 1000),
)
@settings(max_examples=100, deadline=None)
def test_the_round_size_changes_nothing(bounds: Widths, search: SearchSettings, count: int, seed: int) -> None:
    points = tried(bounds, search, count, seed)
    assert points == tried(bounds, search, 1, seed)
    assert len(points) == len(set(points)) <= search.warm_points + search.trials


def test_other_seeds_give_other_points() -> None:
    search = SearchSettings(trials=5)
    assert tried((29,) * 4, search, 8, seed=0) != tried((29,) * 4, search, 8, seed=1)

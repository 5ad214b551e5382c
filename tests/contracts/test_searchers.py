"""What every searcher must do, whatever it is made of."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bocl.errors import InputError, WorkError
from bocl.records.record import Trial
from bocl.search.problem import Problem, Searcher
from bocl.search.searchers import SEARCHERS, make_searcher, wants_difficulty
from bocl.search.settings import SearchKind, SearchSettings
from bocl.widths import Widths

KINDS = get_args(SearchKind)
every_searcher = pytest.mark.parametrize("kind", KINDS)


def problem(bounds: Widths, trained: tuple[Trial, ...] = (), difficulty: float = 0.0) -> Problem:
    return Problem(bounds, lambda z: z.sum(1), lambda z: 1e-3 * z.sum(1), trained=trained, difficulty=difficulty)


def judge(widths: Widths) -> Trial:
    accuracy = 0.9 - sum(math.exp(-width / 5) for width in widths) / (2 * len(widths))
    return Trial(widths, accuracy, 10 * sum(widths), accuracy - 1e-3 * sum(widths))


def failed(widths: Widths) -> Trial:
    return Trial(widths, math.nan, 10 * sum(widths), math.nan)


def make(kind: SearchKind, bounds: Widths, trained: tuple[Trial, ...] = (), **numbers: int) -> Searcher:
    """A searcher with patience for everything unless told otherwise."""
    chosen = SearchSettings(kind=kind, **{"trials": 6, "patience": 10_000, "least_gain": 0, **numbers})
    return make_searcher(problem(bounds, trained), chosen)


def tried(searcher: Searcher, count: int = 8) -> list[Widths]:
    points: list[Widths] = []
    while asked := searcher.ask(count):
        assert len(asked) <= count
        points += asked
        searcher.tell([judge(widths) for widths in asked])
    return points


def test_every_kind_has_a_searcher() -> None:
    assert set(SEARCHERS) == set(KINDS)


@every_searcher
@pytest.mark.parametrize("bounds", [(29,), (29, 60), (29, 0, 29), (8, 16, 29, 29), (29,) * 8])
def test_points_are_new_integers_inside_the_bounds(kind: SearchKind, bounds: Widths) -> None:
    zero = judge((0,) * len(bounds))
    points = tried(make(kind, bounds, (zero,), trials=4))
    assert len(points) == len({*points, zero.widths}) - 1 == 3 + 4
    for point in points:
        assert isinstance(point, tuple)
        assert len(point) == len(bounds)
        for width, bound in zip(point, bounds, strict=True):
            assert type(width) is int
            assert 0 <= width <= bound


@every_searcher
@pytest.mark.parametrize("bounds", [(0,), (0, 0, 0), (1,), (5,), (2, 2), (1, 0, 2)])
def test_a_small_space_is_used_up_and_then_it_is_over(kind: SearchKind, bounds: Widths) -> None:
    searcher = make(kind, bounds, trials=100)
    points = tried(searcher)
    assert len(points) == len(set(points)) == math.prod(bound + 1 for bound in bounds)
    assert searcher.ask(1) == []
    assert searcher.best() == min(map(judge, points), key=lambda trial: (-trial.reward, trial.parameters)).widths


@every_searcher
def test_a_space_of_the_trained_child_alone_is_over_at_once(kind: SearchKind) -> None:
    searcher = make(kind, (0, 0), (judge((0, 0)),))
    assert searcher.ask(8) == []
    assert searcher.best() == (0, 0)


@every_searcher
@given(
    bounds=st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple),
    trials=st.integers(1, 4),
    warm_points=st.integers(0, 3),
    count=st.integers(1, 9),
)
@settings(max_examples=8, deadline=None, derandomize=True)
def test_totals(kind: SearchKind, bounds: Widths, trials: int, warm_points: int, count: int) -> None:
    points = tried(make(kind, bounds, trials=trials, warm_points=warm_points), count)
    assert len(points) == len(set(points)) == min(warm_points + trials, math.prod(bound + 1 for bound in bounds))


@every_searcher
def test_patience_ends_the_search(kind: SearchKind) -> None:
    searcher = make(kind, (29, 29), trials=20, patience=2)
    searcher.tell([Trial((9, 9), 0.9, 1, 0.9), Trial((9, 8), 0.8, 1, 0.8), Trial((8, 9), 0.8, 1, 0.8)])
    told = 0
    while asked := searcher.ask(8):
        searcher.tell([Trial(widths, 0.1, 1, 0.1) for widths in asked])
        told += len(asked)
    assert told == 2
    searcher.tell([Trial((7, 7), 0.95, 1, 0.95)])  # a user's own child is a new best: the search goes on
    assert len(searcher.ask(8)) >= 1


@every_searcher
def test_pending_points_take_room(kind: SearchKind) -> None:
    searcher = make(kind, (29, 29), trials=2, warm_points=3)
    handed_out: list[Widths] = []
    while asked := searcher.ask(4):
        handed_out += asked
    assert len(handed_out) == len(set(handed_out)) == 5
    searcher.tell([judge(widths) for widths in reversed(handed_out)])
    assert searcher.ask(1) == []


@every_searcher
def test_telling_in_any_order_and_in_parts(kind: SearchKind) -> None:
    searcher = make(kind, (29, 29), trials=3)
    points: list[Widths] = []
    late: list[Widths] = []
    while asked := searcher.ask(3):
        points += asked
        searcher.tell([judge(widths) for widths in [*reversed(asked[1:]), *late]])
        late = asked[:1]
    searcher.tell([judge(widths) for widths in late])
    assert len(points) == len(set(points)) == 6
    assert judge(searcher.best()).reward == max(judge(widths).reward for widths in points)


@every_searcher
def test_failed_children_are_trials_that_never_win(kind: SearchKind) -> None:
    searcher = make(kind, (4, 4), trials=5)
    points: list[Widths] = []
    while asked := searcher.ask(2):
        searcher.tell([failed(widths) if len(points) % 2 else judge(widths) for widths in asked])
        points += asked
    assert len(points) == len(set(points)) == 8
    assert not math.isnan(judge(searcher.best()).reward)


@every_searcher
def test_all_failed(kind: SearchKind) -> None:
    searcher = make(kind, (4, 4), trials=2)
    with pytest.raises(WorkError, match="no child was trained"):
        searcher.best()
    while asked := searcher.ask(8):
        searcher.tell([failed(widths) for widths in asked])
    with pytest.raises(WorkError, match="all 5 children failed"):
        searcher.best()
    with_zero = make(kind, (4, 4), (judge((0, 0)),), trials=2)
    with_zero.tell([failed((1, 1))])
    assert with_zero.best() == (0, 0)


@every_searcher
def test_the_best_child_is_so_by_reward(kind: SearchKind) -> None:
    searcher = make(kind, (99, 99), (Trial((0, 0), 0.5, 0, 0.5),))
    assert searcher.best() == (0, 0)
    searcher.tell([Trial((5, 5), 0.9, 100, 0.89), Trial((99, 99), 0.99, 120, 0.792), failed((1, 1))])
    assert searcher.best() == (5, 5)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "bayesian"])  # which goes by its posterior mean
def test_of_equal_children_the_smaller_is_best(kind: SearchKind) -> None:
    searcher = make(kind, (9, 9), (Trial((0, 0), 0.5, 0, 0.5),))
    searcher.tell([Trial((5, 5), 0.9, 100, 0.8), Trial((6, 6), 0.99, 120, 0.7)])
    assert searcher.best() == (5, 5)
    searcher.tell([Trial((7, 2), 0.9, 90, 0.8)])
    assert searcher.best() == (7, 2)  # as good with fewer parameters
    searcher.tell([Trial((7, 1), 0.9, 90, 0.8), Trial((8, 0), 0.9, 90, 0.8)])
    assert searcher.best() == (7, 1)


@every_searcher
def test_same_seed_same_points(kind: SearchKind) -> None:
    assert tried(make(kind, (29, 29), trials=2)) == tried(make(kind, (29, 29), trials=2))


@every_searcher
def test_a_thousand_trials_of_the_users_own(kind: SearchKind) -> None:
    bounds = (29,) * 4
    searcher = make(kind, bounds, trials=2000)
    rows = np.unique(np.random.default_rng(0).integers(0, 30, (1100, 4)), axis=0)[:1000]
    own = [tuple(row) for row in rows.tolist()]
    searcher.tell([judge(widths) for widths in own])
    asked = searcher.ask(8)
    assert asked
    assert not {*asked} & {*own}
    assert judge(searcher.best()).reward == max(judge(widths).reward for widths in own)


@every_searcher
@pytest.mark.parametrize("count", [0, -1])
def test_asking_for_nothing_is_refused(kind: SearchKind, count: int) -> None:
    with pytest.raises(InputError, match=f"asked for {count} points"):
        make(kind, (4, 4)).ask(count)


@every_searcher
@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (Trial((1, 2, 3), 0.5, 1, 0.5), r"\(1, 2, 3\) is not one whole number per group"),
        (Trial((1, 5), 0.5, 1, 0.5), r"\(1, 5\).*bounds \(4, 4\)"),
        (Trial((-1, 2), 0.5, 1, 0.5), r"\(-1, 2\)"),
        (Trial((1, 2.5), 0.5, 1, 0.5), r"\(1, 2\.5\)"),  # type: ignore[arg-type]
        (Trial((1, 2), 0.5, 1, math.nan), "reward nan"),
        (Trial((1, 2), math.inf, 1, math.inf), "reward inf"),
        (Trial((0, 0), 0.5, 1, 0.5), "told already"),
        (Trial((3, 3), 0.5, 1, 0.5), "told already"),
    ],
)
def test_wrong_trials_are_refused_and_change_nothing(kind: SearchKind, wrong: Trial, named: str) -> None:
    searcher = make(kind, (4, 4), (Trial((0, 0), 0.5, 0, 0.5),))
    searcher.tell([Trial((3, 3), 0.6, 1, 0.6)])
    with pytest.raises(InputError, match=named):
        searcher.tell([Trial((4, 4), 0.9, 1, 0.9), wrong])
    assert searcher.best() == (3, 3)
    searcher.tell([Trial((4, 4), 0.9, 1, 0.9)])
    assert searcher.best() == (4, 4)


@every_searcher
def test_only_candidates_are_asked_for(kind: SearchKind) -> None:
    candidates = ((0, 0), (3, 7), (9, 1), (12, 12), (20, 4), (29, 29), (1, 25))
    restricted = replace(problem((29, 29), trained=(judge((0, 0)),)), candidates=candidates)
    searcher = make_searcher(restricted, SearchSettings(kind=kind, trials=20, patience=20, least_gain=0))
    assert sorted(tried(searcher, 2)) == sorted(candidates[1:])
    assert searcher.ask(1) == []
    with pytest.raises(InputError, match=r"candidate \(3, 30\)"):
        make_searcher(replace(restricted, candidates=((3, 30),)), SearchSettings(kind=kind))


@every_searcher
def test_wrong_problems_are_refused(kind: SearchKind) -> None:
    chosen = SearchSettings(kind=kind)
    for bounds in [(), (-1, 3), (2.5, 1)]:
        with pytest.raises(InputError, match="bounds are"):
            make_searcher(problem(bounds), chosen)
    with pytest.raises(InputError, match="difficulty inf"):
        make_searcher(problem((4,), difficulty=math.inf), chosen)
    with pytest.raises(InputError, match=r"trial \(0, 0\) is not one whole number per group"):
        make_searcher(problem((4,), trained=(judge((0, 0)),)), chosen)


@every_searcher
@given(
    bounds=st.lists(st.integers(0, 3), min_size=1, max_size=2).map(tuple),
    prices=st.tuples(*[st.integers(0, 9)] * 2),
    together=st.integers(0, 3),
    budget=st.integers(0, 30),
)
@settings(max_examples=8, deadline=None, derandomize=True)
def test_a_budget_is_kept_and_what_it_allows_is_used_up(
    kind: SearchKind, bounds: Widths, prices: Widths, together: int, budget: int
) -> None:
    def parameters(z):
        return z @ np.array(prices[: len(bounds)]) + together * z[:, 0] * z[:, -1]

    box = itertools.product(*(range(bound + 1) for bound in bounds))
    inside = {point for point in box if parameters(np.array([point]))[0] <= budget}
    limited = replace(problem(bounds, (judge((0,) * len(bounds)),)), parameters=parameters, budget=budget)
    searcher = make_searcher(limited, SearchSettings(kind, trials=1000, patience=10_000, warm_points=2))
    points = tried(searcher)
    assert len(points) == len(set(points)) == len(inside) - 1
    assert set(points) == inside - {(0,) * len(bounds)}
    assert searcher.best() in inside
    if bounds not in inside:
        with pytest.raises(InputError, match=f"exceed the budget of {budget} parameters"):
            searcher.tell([judge(bounds)])


@every_searcher
def test_a_corner_of_a_large_space_is_searched(kind: SearchKind) -> None:
    bounds = (29,) * 8
    limited = replace(problem(bounds, (judge((0,) * 8),)), budget=6)
    points = tried(make_searcher(limited, SearchSettings(kind, trials=5, patience=10_000)))
    assert len(points) == len(set(points)) == 3 + 5
    assert max(map(sum, points)) <= 6


@every_searcher
def test_with_a_target_the_smallest_that_reaches_it_is_the_best(kind: SearchKind) -> None:
    wanted = replace(problem((9, 9)), target=0.7)

    def judged(widths: Widths) -> Trial:
        row, accuracy = np.array([widths]), judge(widths).accuracy
        return Trial(widths, accuracy, sum(widths), float(wanted.reward(np.array([accuracy]), row)[0]))

    searcher = make_searcher(wanted, SearchSettings(kind, trials=6, patience=10_000))
    told: list[Trial] = []
    while asked := searcher.ask(4):
        told += [judged(widths) for widths in asked]
        searcher.tell(told[-len(asked) :])
    reached = [trial for trial in told if trial.accuracy >= 0.7]
    assert reached, "or this shows nothing"
    best = next(trial for trial in told if trial.widths == searcher.best())
    assert best in reached
    assert best.parameters == min(trial.parameters for trial in reached)


@every_searcher
@pytest.mark.parametrize("fails", [False, True])
def test_a_pending_child_is_told_with_the_first_round_and_counts_as_no_trial(kind: SearchKind, fails: bool) -> None:
    zero = failed((0, 0)) if fails else Trial((0, 0), 1.0, 0, 1.0)
    chosen = SearchSettings(kind=kind, trials=4, patience=99, least_gain=0, warm_points=2)
    searcher = make_searcher(replace(problem((2, 2)), pending=((0, 0),)), chosen)
    first = searcher.ask(3)
    searcher.tell([*map(judge, first), zero])
    points = first + tried(searcher, 3)
    assert len(points) == len(set(points)) == 6
    assert (0, 0) not in points
    assert fails == (searcher.best() != (0, 0))
    with pytest.raises(InputError, match="told already"):
        searcher.tell([zero])


def test_a_pending_child_outside_the_bounds_is_refused() -> None:
    with pytest.raises(InputError, match=r"pending child \(3, 0\) is not one whole number per group within the bounds"):
        make_searcher(replace(problem((2, 2)), pending=((3, 0),)), SearchSettings())


class OnlyZero:
    """A searcher of one's own that says nothing of the difficulty."""

    def __init__(self, problem: Problem, settings: SearchSettings, name: str = "") -> None:
        self.problem = problem

    def ask(self, count: int) -> list[Widths]:
        return []

    def tell(self, trials: Sequence[Trial]) -> None:
        pass

    def best(self) -> Widths:
        return (0,) * len(self.problem.bounds)


class Asking(OnlyZero):
    """One that declares that it wants it."""

    wants_difficulty = True


@every_searcher
def test_the_difficulty_is_measured_for_who_declares_to_want_it(kind: SearchKind) -> None:
    settings = SearchSettings(kind=kind)
    assert wants_difficulty(make_searcher, settings) == wants_difficulty(SEARCHERS[kind], settings) == (kind == "paper")
    assert not wants_difficulty(OnlyZero, settings)
    assert not wants_difficulty(lambda problem, settings: Asking(problem, settings), settings)
    assert wants_difficulty(Asking, settings)
    assert wants_difficulty(partial(Asking, name="mine"), settings)

"""The integer box, huge and tiny."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bocl.search.lattice import lattice_size, lies_in, listed, nearest_untried, random_untried, room


def everything(z: np.ndarray) -> np.ndarray:
    return np.ones(len(z), dtype=bool)


BOUNDS = st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple)


def box(bounds: tuple[int, ...]) -> set[tuple[int, ...]]:
    return set(itertools.product(*(range(bound + 1) for bound in bounds)))


def test_size() -> None:
    assert lattice_size((0, 0)) == 1
    assert lattice_size((29,) * 8) == 30**8


@pytest.mark.parametrize(
    ("widths", "inside"),
    [
        ((0, 0), True),
        ((3, 5), True),
        ((np.int64(3), 5), True),
        ((4, 0), False),
        ((-1, 0), False),
        ((1,), False),
        ((1, 1, 0), False),
        ((1.0, 1), False),
    ],
)
def test_inside(widths: tuple[int, ...], inside: bool) -> None:
    assert lies_in(widths, (3, 5)) is inside


@given(bounds=BOUNDS, seed=st.integers(0, 2**63 - 1))
@settings(max_examples=30, deadline=None)
def test_random_points_cover_the_box_without_repeats(bounds: tuple[int, ...], seed: int) -> None:
    taken: set[tuple[int, ...]] = set()
    for index in range(lattice_size(bounds)):
        point = random_untried(bounds, taken, seed + index, everything)
        assert point not in taken
        taken.add(point)
    assert taken == box(bounds)


@pytest.mark.parametrize("taken", [set(), {(0, 0), (1, 1), (2, 2), (0, 1)}, {(0, 0), (1, 1), (2, 2), (0, 1), (1, 0)}])
def test_random_points_are_uniform(taken: set[tuple[int, ...]]) -> None:
    """Over 900 seeds each free point comes up 900 / free times, within five standard deviations."""
    free = box((2, 2)) - taken
    counts = Counter(random_untried((2, 2), taken, seed, everything) for seed in range(900))
    assert set(counts) == free
    share = 1 / len(free)
    for point in free:
        assert abs(counts[point] - 900 * share) < 5 * (900 * share * (1 - share)) ** 0.5


@pytest.mark.parametrize("groups", [4, 8])
def test_a_huge_box_is_not_listed(groups: int) -> None:
    bounds = (29,) * groups
    taken: set[tuple[int, ...]] = set()
    for index in range(200):
        taken.add(random_untried(bounds, taken, index, everything))
    assert len(taken) == 200
    assert all(lies_in(point, bounds) for point in taken)
    assert len(nearest_untried((0,) * groups, bounds, {(0,) * groups}, everything)) == groups


def budgets(draw, bounds: tuple[int, ...]):
    """What a budget allows, as a function of points: a price per unit, and one for units of two groups together."""
    prices = [draw(st.integers(0, 5)) for _ in bounds]
    together = draw(st.integers(0, 2))
    most = draw(st.integers(0, 30))
    return lambda z: z @ np.array(prices) + together * z[:, 0] * z[:, -1] <= most


@given(bounds=BOUNDS, data=st.data())
@settings(max_examples=60, deadline=None)
def test_what_a_budget_allows_is_listed_and_used_up(bounds: tuple[int, ...], data: st.DataObject) -> None:
    allowed = budgets(data.draw, bounds)
    inside = {point for point in box(bounds) if allowed(np.array([point]))[0]}
    assert list(listed(bounds, allowed)) == sorted(inside)
    taken: set[tuple[int, ...]] = set()
    for index in range(len(inside)):
        taken.add(random_untried(bounds, taken, index, allowed))
        assert len(taken) == index + 1
    assert taken == inside


@given(bounds=BOUNDS, data=st.data())
@settings(max_examples=60, deadline=None)
def test_the_nearest_points_are_the_nearest_that_are_allowed(bounds: tuple[int, ...], data: st.DataObject) -> None:
    allowed = budgets(data.draw, bounds)
    centre = tuple(data.draw(st.integers(0, bound)) for bound in bounds)
    inside = {point for point in box(bounds) if allowed(np.array([point]))[0]}
    taken = {point for point in sorted(inside) if data.draw(st.booleans())}
    found = nearest_untried(centre, bounds, taken, allowed)
    if not inside - taken:
        assert found == []
        return
    assert set(found) <= inside - taken
    if centre in inside:
        distance = {point: sum(abs(a - b) for a, b in zip(point, centre, strict=True)) for point in inside - taken}
        assert found == [point for point in sorted(distance) if distance[point] == min(distance.values())]


@given(bounds=BOUNDS, data=st.data())
@settings(max_examples=60, deadline=None)
def test_room_is_the_most_that_is_allowed(bounds: tuple[int, ...], data: st.DataObject) -> None:
    allowed = budgets(data.draw, bounds)
    points = np.array([point for point in sorted(box(bounds)) if allowed(np.array([point]))[0]])
    for group, bound in enumerate(bounds):
        for point, most in zip(points.tolist(), room(points, group, bounds, allowed).tolist(), strict=True):
            fits = [allowed(np.array([[*point[:group], width, *point[group + 1 :]]]))[0] for width in range(bound + 1)]
            assert most == sum(fits) - 1


@pytest.mark.parametrize("groups", [8, 14])
def test_a_corner_of_a_huge_box_is_found(groups: int) -> None:
    """The corner has about one in 10⁹ of the points and more: drawing from the box alone would never end."""
    bounds, taken = (29,) * groups, {(0,) * groups}
    for index in range(40):
        taken.add(random_untried(bounds, taken, index, lambda z: z.sum(1) <= 9))
    assert len(taken) == 41
    assert all(sum(point) <= 9 for point in taken)
    assert sum(nearest_untried((29,) * groups, bounds, taken, lambda z: z.sum(1) <= 9)[0]) <= 9


def test_nearest_untried_grows_only_as_far_as_needed() -> None:
    bounds = (3, 3)
    taken = {(1, 1), (0, 1), (1, 0), (1, 2), (2, 1)}
    assert set(nearest_untried((1, 1), bounds, taken - {(1, 2)}, everything)) == {(1, 2)}
    assert set(nearest_untried((1, 1), bounds, taken, everything)) == {(0, 0), (0, 2), (2, 0), (2, 2), (1, 3), (3, 1)}
    assert nearest_untried((1, 1), bounds, box(bounds), everything) == []
    assert nearest_untried((1, 1), bounds, box(bounds) - {(3, 3)}, everything) == [(3, 3)]

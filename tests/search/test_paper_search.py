"""The paper's search: what the process sees, what is asked for, and that it pays."""

from __future__ import annotations

import itertools
import math
import statistics
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bocl.records.record import Trial
from bocl.search import gaussian_process, paper
from bocl.search.ledger import usable_trials
from bocl.search.paper import MOST_DATA, PaperSearch, scale, unscale
from bocl.search.problem import FloatArray, Problem, Searcher
from bocl.search.searchers import make_searcher
from bocl.search.settings import SearchSettings
from bocl.widths import Widths


def problem(bounds: Widths, seed: int = 0, trained: tuple[Trial, ...] = ()) -> Problem:
    return Problem(bounds, lambda z: z.sum(1), lambda z: np.zeros(len(z)), trained=trained, seed=seed)


def saturating(widths: Widths) -> Trial:
    """More units help less and less and cost the same: r = Σ a_i (1 - exp(-z_i / b_i)) - c z_i."""
    accuracy = 0.5 + sum(0.1 * (1 - math.exp(-width / (3 + 2 * group))) for group, width in enumerate(widths))
    return Trial(widths, accuracy, sum(widths), accuracy - 0.002 * sum(widths))


def run(searcher: Searcher, count: int, judge: Callable[[Widths], Trial] = saturating) -> list[list[Widths]]:
    rounds = []
    while asked := searcher.ask(count):
        rounds.append(asked)
        searcher.tell([judge(widths) for widths in asked])
    return rounds


def test_one_round_of_opening_points_then_one_at_a_time() -> None:
    rounds = run(PaperSearch(problem((29, 29)), SearchSettings(trials=4, patience=4, warm_points=3)), count=8)
    assert [len(asked) for asked in rounds[:2]] == [3, 1]
    assert all(len(asked) == 1 for asked in rounds[1:])


def test_count_splits_the_opening_points() -> None:
    rounds = run(PaperSearch(problem((29, 29)), SearchSettings(trials=1, warm_points=3)), count=2)
    assert [len(asked) for asked in rounds] == [2, 1, 1]


@given(
    bounds=st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple),
    search=st.builds(
        SearchSettings, trials=st.integers(1, 5), patience=st.integers(1, 5), warm_points=st.integers(0, 3)
    ),
    count=st.integers(1, 8),
    told_at_once=st.booleans(),
)
@settings(max_examples=10, deadline=None, derandomize=True)
def test_no_point_is_tried_twice(bounds: Widths, search: SearchSettings, count: int, told_at_once: bool) -> None:
    zero = Trial((0,) * len(bounds), 0.5, 0, 0.5)
    searcher = PaperSearch(problem(bounds, trained=(zero,)), search)
    seen = [zero.widths]
    while asked := searcher.ask(count):
        if not told_at_once:
            asked += searcher.ask(1)  # while the others are pending
        seen += asked
        searcher.tell([saturating(widths) for widths in reversed(asked)])
    assert len(seen) == len(set(seen)) <= 1 + search.warm_points + search.trials
    space = math.prod(bound + 1 for bound in bounds)
    assert len(seen) == space or len(seen) - 1 - search.warm_points >= min(search.trials, search.patience)


def test_a_line_is_searched_to_its_end() -> None:
    searcher = PaperSearch(problem((6,)), SearchSettings(trials=20, patience=20, warm_points=2))
    tried = [widths for asked in run(searcher, 1) for widths in asked]
    assert sorted(tried) == [(width,) for width in range(7)]


@pytest.fixture
def fitted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[FloatArray, FloatArray]]:
    """What every fit was given."""
    calls: list[tuple[FloatArray, FloatArray]] = []
    real = gaussian_process.fit

    def spy(inputs: FloatArray, rewards: FloatArray) -> gaussian_process.GaussianProcess:
        calls.append((inputs, rewards))
        return real(inputs, rewards)

    monkeypatch.setattr(gaussian_process, "fit", spy)
    return calls


def test_the_process_sees_neither_earlier_nor_failed_children(
    fitted: list[tuple[FloatArray, FloatArray]],
) -> None:
    trained = (Trial((0, 0, 0), 0.99, 0, 0.99),)
    searcher = PaperSearch(problem((10, 0, 4), trained=trained), SearchSettings(trials=9, patience=9, warm_points=0))
    searcher.tell(
        [
            Trial((5, 0, 4), 0.7, 9, 0.7),
            Trial((1, 0, 1), math.nan, 2, math.nan),
            Trial((10, 0, 1), 0.6, 11, 0.6),
        ]
    )
    (asked,) = searcher.ask(1)
    assert asked[1] == 0
    ((inputs, rewards),) = fitted
    np.testing.assert_array_equal(inputs, [[0.5, 1.0], [1.0, 0.25]])  # the group of bound 0 is left out
    np.testing.assert_array_equal(rewards, [0.7, 0.6])
    assert searcher.best() == (0, 0, 0)


@pytest.mark.parametrize(
    "rewards", [(), (0.5,), (0.5, math.nan, math.nan), (0.5, 0.5, 0.5), (math.nan, math.nan, math.nan)]
)
def test_without_anything_to_fit_the_point_is_random(
    rewards: tuple[float, ...], fitted: list[tuple[FloatArray, FloatArray]]
) -> None:
    def next_point(seed: int) -> Widths:
        searcher = PaperSearch(problem((29, 29), seed), SearchSettings(warm_points=0))
        searcher.tell([Trial((index, 1), reward, 0, reward) for index, reward in enumerate(rewards)])
        (point,) = searcher.ask(8)
        return point

    assert len({next_point(seed) for seed in range(5)}) > 2
    assert fitted == []


def told_some() -> PaperSearch:
    searcher = PaperSearch(problem((5, 5)), SearchSettings(trials=40, patience=40, warm_points=0))
    searcher.tell([saturating(widths) for widths in [(0, 0), (5, 5), (2, 3), (3, 2), (1, 4), (3, 3)]])
    return searcher


def ascent_ends_at(monkeypatch: pytest.MonkeyPatch, *ends: Widths) -> None:
    def climb(process: object, best: float, seed: int) -> FloatArray:
        return np.array(ends) / 5.0

    monkeypatch.setattr(paper.gaussian_process, "maximise_improvement", climb)


def improvement(points: list[Widths]) -> dict[Widths, float]:
    """Log EI of points after ``told_some``."""
    told = sorted([(0, 0), (5, 5), (2, 3), (3, 2), (1, 4), (3, 3)])
    rewards = np.array([saturating(widths).reward for widths in told])
    process = gaussian_process.fit(np.array(told) / 5.0, rewards)
    values = gaussian_process.log_expected_improvement(process, np.array(points) / 5.0, float(rewards.max()))
    return dict(zip(points, values.tolist(), strict=True))


def test_the_best_rounded_ascent_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    ascent_ends_at(monkeypatch, (4, 1), (0, 5))
    assert told_some().ask(1) == [(4, 1)]


def test_a_tried_point_gives_way_to_the_best_other_ascent(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [(0, 5), (4, 3), (5, 0)]
    values = improvement(others)
    ascent_ends_at(monkeypatch, (2, 3), *others, (3, 2))
    assert told_some().ask(1) == [max(others, key=values.__getitem__)]


def test_then_to_the_best_untried_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    ascent_ends_at(monkeypatch, (3, 3), (2, 3))
    neighbours = [(3, 4), (4, 3)]  # (2, 3) and (3, 2) were tried
    values = improvement(neighbours)
    searcher = told_some()
    assert searcher.ask(1) == [max(neighbours, key=values.__getitem__)]
    assert searcher.ask(1) == [min(neighbours, key=values.__getitem__)]  # the first is pending


def test_a_stubborn_ascent_still_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ascent_ends_at(monkeypatch, (3, 3))
    searcher = told_some()
    tried = [widths for asked in run(searcher, 1) for widths in asked]
    assert len(tried) == len(set(tried)) == 30
    distances = [abs(a - 3) + abs(b - 3) for a, b in tried]
    assert distances == sorted(distances)


def test_scaling_there_and_back() -> None:
    bounds = (29, 0, 1, 60)
    points = list(itertools.product(range(0, 30, 7), [0], range(2), range(0, 61, 13)))
    scaled = scale(points, bounds)
    assert scaled.shape == (len(points), 3)
    assert scaled.min() == 0
    assert scaled.max() <= 1
    assert unscale(scaled, bounds) == points
    assert unscale(np.array([[0.49, 0.6, 1.0000001]]), bounds) == [(14, 0, 1, 60)]


def test_data_is_bounded_and_keeps_the_best_and_the_latest() -> None:
    told = [Trial((index,), 0.5, 0, float(1000 - index)) for index in range(1000)]
    kept = [trial.widths[0] for trial in usable_trials(told, MOST_DATA)]
    half = MOST_DATA // 2
    assert kept == [*range(half), *range(1000 - half, 1000)]
    assert usable_trials(told[:MOST_DATA], MOST_DATA) == told[:MOST_DATA]


def test_the_order_of_telling_changes_no_ask() -> None:
    def next_point(order: int) -> Widths:
        searcher = PaperSearch(problem((29, 29)), SearchSettings(trials=9, patience=9, warm_points=4))
        asked = searcher.ask(4)
        searcher.tell([saturating(widths) for widths in asked[::order]])
        return searcher.ask(1)[0]

    assert next_point(1) == next_point(-1)


def test_same_seed_same_asks_and_no_trace_left_in_torch_or_numpy() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        torch_state = torch.get_rng_state()
        numpy_state = np.random.get_state()[1].tobytes()  # noqa: NPY002
        search = SearchSettings(trials=3, patience=3)
        first = run(PaperSearch(problem((29, 29), seed=7), search), 8)
        assert torch.equal(torch.get_rng_state(), torch_state)
        assert np.random.get_state()[1].tobytes() == numpy_state  # noqa: NPY002
        assert torch.get_num_threads() == 2

        torch.manual_seed(12345)
        assert run(PaperSearch(problem((29, 29), seed=7), search), 8) == first
        assert run(PaperSearch(problem((29, 29), seed=8), search), 8) != first
        torch.set_rng_state(torch_state)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("groups", [2, 4])
def test_it_does_no_worse_than_random(groups: int) -> None:
    """Best reward after N trials: the median over 3 seeds against random search's over 15."""

    def best(kind: str, seed: int) -> float:
        search = SearchSettings(kind=kind, trials=15, patience=15)  # type: ignore[arg-type]
        searcher = make_searcher(problem((29,) * groups, seed), search)
        run(searcher, 8)
        return saturating(searcher.best()).reward

    ours = statistics.median(best("paper", seed) for seed in range(3))
    assert ours >= statistics.median(best("random", seed) for seed in range(15))


@pytest.mark.parametrize(("modules", "heavy"), [("problem, bocl.search.settings", "torch"), ("searchers", "botorch")])
def test_what_takes_seconds_is_imported_when_it_is_used(modules: str, heavy: str) -> None:
    code = f"import sys, bocl.search.{modules}; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""The smallest network within a tolerance, and what to read: which child wins, and what is asked for on the way."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bocl.records.record import Experience, ReadsKind, Trial
from bocl.search import accuracy_model
from bocl.search.bayesian import BayesianSearch
from bocl.search.ledger import Ledger
from bocl.search.problem import IntArray, Problem, Searcher
from bocl.search.searchers import make_searcher
from bocl.search.settings import SearchKind, SearchSettings
from bocl.widths import Widths

KINDS = get_args(SearchKind)
CHOICES: list[tuple[ReadsKind, ...]] = [(), ("own",), ("first",), ("first", "own"), ("first", "near", "all", "own")]
FEW = settings(max_examples=25, deadline=None, derandomize=True)
INPUTS, CLASSES, BASE = 4, 2, (6, 5)
READ: dict[ReadsKind, Widths] = {"first": (6, 5), "near": (8, 6), "all": (12, 9), "own": (0, 0)}


def parameters_of(choices: tuple[ReadsKind, ...]) -> Callable[[IntArray], IntArray]:
    """Return what an MLP of two hidden layers adds, by what it reads, as a function of points."""

    def parameters(points: IntArray) -> IntArray:
        read = [READ[choices[point[2]]] if choices else READ["first"] for point in points.tolist()]
        (b1, b2), (z1, z2) = np.array(read, dtype=np.int64).reshape(-1, 2).T, points[:, :2].T
        counted: IntArray = z1 * (INPUTS + 1) + z2 * (b1 + z1 + 1) + b2 * z1 + (b2 + z2 + 1) * CLASSES
        return counted

    return parameters


def make_problem(choices: tuple[ReadsKind, ...], bounds: Widths, **options: object) -> Problem:
    """Return a problem with the default goal."""
    whole = (*bounds, len(choices) - 1) if choices else bounds
    given = {"tolerance": 0.005, **options}
    return Problem(whole, parameters_of(choices), lambda z: 0.0 * z[:, 0], choices=choices, **given)  # type: ignore[arg-type]


def own_network(problem: Problem) -> int:
    """Count what a network of its own takes, of the base network's shape."""
    point = np.array([(*BASE, 0)], dtype=np.int64)
    return int(parameters_of(("own",))(point)[0])


def trial_at(problem: Problem, point: Widths, accuracy: float) -> Trial:
    row = np.array([point], dtype=np.int64)
    reward = float(problem.reward(np.array([accuracy]), row)[0])
    return Trial(point, accuracy, int(problem.parameters(row)[0]), reward)


class Simulated:
    """Accuracies that rise with widths to a level of each choice, measured on so many samples."""

    def __init__(
        self, problem: Problem, seed: int, samples: int, level: float, gain: float, reuse: float = 0.0
    ) -> None:
        self.problem, self.samples, self.level, self.gain, self.reuse = problem, samples, level, gain, reuse
        self._draw = np.random.default_rng(seed)

    def true(self, point: Widths) -> float:
        """Return the accuracy without noise; what is read is worth ``reuse`` of the gain."""
        kind = self.problem.choices[point[2]] if self.problem.choices else "first"
        grown = 1 - math.exp(-sum(point[:2]) / 4)
        share = grown if kind == "own" else self.reuse + (1 - self.reuse) * grown
        return min(max(self.level - self.gain * (1 - share), 0.0), 1.0)

    def __call__(self, point: Widths) -> Trial:
        right = self._draw.binomial(self.samples, self.true(point)) / self.samples
        return trial_at(self.problem, point, right)


def searched(searcher: Searcher, judge: Callable[[Widths], Trial], first: tuple[Widths, ...] = ()) -> list[Trial]:
    """Run a search to its end, z = 0 and a network of its own told with the first round."""
    told: list[Trial] = []
    while asked := searcher.ask(4):
        round_ = [judge(point) for point in ((*first, *asked) if not told else asked)]
        searcher.tell(round_)
        told += round_
    if not told:
        told = [judge(point) for point in first]
        searcher.tell(told)
    return told


def first_of(problem: Problem) -> tuple[Widths, ...]:
    """Return what every search is told first: z = 0, or the smallest network of its own, and one of the base shape."""
    choices = problem.choices
    least = (1, 1, 0) if choices and "first" not in choices else (0,) * len(problem.bounds)
    own = [(*BASE, choices.index("own"))] if "own" in choices else []
    fits = [point for point in own if all(map(int.__le__, point, problem.bounds))]
    allowed = [point for point in fits if problem.allowed(np.array([point]))[0]]
    return (least, *allowed)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Problem, Simulated, SearchSettings]:
    choices = draw(st.sampled_from(CHOICES), label="choices")
    bounds = draw(st.sampled_from([(6, 5), (2, 2), (12, 20), (40, 40)]), label="bounds")
    plain = make_problem(choices, bounds, seed=draw(st.integers(0, 99), label="seed"))
    budget = draw(st.sampled_from([None, own_network(plain), own_network(plain) // 2]), label="budget")
    plain = replace(plain, budget=budget, tolerance=draw(st.sampled_from([0.0, 0.005, 0.03]), label="tolerance"))
    first = first_of(plain)
    problem = replace(plain, pending=first) if plain.allowed(np.array(first)).all() else replace(plain, budget=None)
    if not problem.pending:
        problem = replace(problem, pending=first_of(problem))
    judge = Simulated(
        problem,
        draw(st.integers(0, 99), label="noise"),
        draw(st.sampled_from([200, 50_000]), label="samples"),
        draw(st.sampled_from([1.0, 0.998, 0.8, 0.52]), label="level"),
        draw(st.sampled_from([0.0, 0.02, 0.4]), label="gain"),
        draw(st.sampled_from([0.0, 0.5, 1.0]), label="reuse"),
    )
    how = SearchSettings(trials=9, patience=9, warm_points=draw(st.sampled_from([0, 3])), round_size=4)
    return problem, judge, how


@FEW
@given(problems())
def test_no_smaller_child_is_within_the_tolerance_of_the_best(drawn):
    problem, judge, how = drawn
    searcher = BayesianSearch(problem, how)
    told = searched(searcher, judge, problem.pending)
    (winner,) = [trial for trial in told if trial.widths == searcher.best()]
    model = searcher._model()
    points = [trial.widths for trial in told]
    believed = np.array([trial.accuracy for trial in told])
    if model is not None:
        believed = accuracy_model.predict(model, searcher._inputs(points))[0]
    smaller = [place for place, trial in enumerate(told) if trial.parameters < winner.parameters]
    assert problem.tolerance is not None
    assert all(believed[place] < believed.max() - problem.tolerance for place in smaller)
    kept = points.index(winner.widths)
    assert believed[kept] >= believed.max() - 2 * problem.tolerance, "a standard error counts as two tolerances at most"


@FEW
@given(problems())
def test_what_is_asked_for_is_new_allowed_and_a_network(drawn):
    problem, judge, how = drawn
    told = searched(BayesianSearch(problem, how), judge, problem.pending)
    points = [trial.widths for trial in told]
    assert len(set(points)) == len(points)
    for point in points:
        assert all(
            type(entry) is int and 0 <= entry <= bound for entry, bound in zip(point, problem.bounds, strict=True)
        )
        if problem.choices and problem.choices[point[-1]] == "own":
            assert min(point[:-1]) >= 1, "a network without units in some layer computes nothing"
    if problem.budget is not None:
        assert max(trial.parameters for trial in told) <= problem.budget


@FEW
@given(problems(), st.randoms(use_true_random=False))
def test_the_order_of_telling_changes_nothing(drawn, random):
    problem, judge, how = drawn
    told = searched(BayesianSearch(problem, how), judge, problem.pending)
    shuffled = list(told)
    random.shuffle(shuffled)
    one, other = BayesianSearch(problem, how), BayesianSearch(problem, how)
    one.tell(told)
    other.tell(shuffled[::2])
    other.tell(shuffled[1::2])
    assert one.best() == other.best()


@FEW
@given(problems())
def test_a_search_asks_for_the_same_again_however_its_rounds_were_told(drawn):
    problem, judge, how = drawn
    known: dict[Widths, Trial] = {}

    def remembered(point: Widths) -> Trial:
        return known.setdefault(point, judge(point)) if point not in known else known[point]

    one, other, first = BayesianSearch(problem, how), BayesianSearch(problem, how), True
    while asked := one.ask(4):
        assert other.ask(4) == asked
        round_ = [remembered(point) for point in ((*problem.pending, *asked) if first else asked)]
        one.tell(round_)
        other.tell(round_[::-1])
        first = False
    assert other.ask(4) == []
    if known:
        assert one.best() == other.best()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("choices", CHOICES, ids=lambda choices: "-".join(choices) or "none")
@pytest.mark.parametrize("share", [None, 0.25, 0.5, 0.75])
def test_a_small_space_of_several_choices_is_used_up(kind, choices, share):
    problem = make_problem(choices, (2, 2))
    points = list(itertools.product(*[range(bound + 1) for bound in problem.bounds]))
    if share is not None:
        sizes = problem.parameters(np.array(points))
        budget = int(sizes.min() + share * (sizes.max() - sizes.min()))
        problem = replace(problem, budget=budget)
    wanted = {point for point, allowed in zip(points, problem.allowed(np.array(points)), strict=True) if allowed}
    searcher = make_searcher(problem, SearchSettings(kind, trials=500, patience=10**6, least_gain=0))
    judge = Simulated(problem, 0, 50_000, 0.9, 0.2)
    told = [trial.widths for trial in searched(searcher, judge)]
    assert len(told) == len(set(told))
    assert set(told) == wanted


@pytest.mark.parametrize("budget", [0, 11, 20, 60])
def test_the_nearest_points_are_found_on_both_sides_of_what_is_not_allowed(budget):
    problem = make_problem(("first", "own"), (3, 3), budget=budget)
    points = list(itertools.product(range(4), range(4), range(2)))
    allowed = [point for point, fits in zip(points, problem.allowed(np.array(points)), strict=True) if fits]
    for centre in points:
        ledger = Ledger(problem, SearchSettings())
        ledger.taken.add(centre)
        free = [point for point in allowed if point != centre]
        found = ledger.nearest(centre)
        assert set(found) <= set(free)
        assert bool(found) == bool(free)
        if centre in allowed:
            distance = {point: sum(abs(a - b) for a, b in zip(point, centre, strict=True)) for point in free}
            assert sorted(found) == sorted(point for point in free if distance[point] == min(distance.values()))


# -- which child wins --------------------------------------------------------------------------------


def winner(problem: Problem, judge: Simulated, **options: object) -> Trial:
    how = SearchSettings(**{"trials": 24, "patience": 24, "round_size": 4, **options})
    searcher = BayesianSearch(replace(problem, pending=first_of(problem)), how)
    told = searched(searcher, judge, first_of(problem))
    return next(trial for trial in told if trial.widths == searcher.best())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("samples", [200, 50_000])
@pytest.mark.parametrize("level", [1.0, 0.52])
def test_where_units_are_worth_nothing_none_are_added(level, samples, seed):
    problem = make_problem(("first", "own"), (12, 10), seed=seed)
    problem = replace(problem, budget=own_network(problem))
    found = winner(problem, Simulated(problem, seed, samples, level, gain=0.0))
    assert found.parameters <= own_network(problem)
    if samples > 200 or level == 1.0:  # else luck is worth more than the tolerance
        assert found.widths in {(0, 0, 0), (1, 1, 1)}, "the two smallest networks"


@pytest.mark.parametrize("seed", range(4))
def test_where_reuse_is_worthless_a_network_of_its_own_wins(seed):
    """Reading is worth nothing however many units are added; a network of its own is worth 20 %."""
    problem = make_problem(("first", "near", "all", "own"), BASE, seed=seed)
    problem = replace(problem, budget=own_network(problem))

    class Worthless(Simulated):
        def true(self, point: Widths) -> float:
            return super().true(point) if problem.choices[point[2]] == "own" else 0.6

    judge = Worthless(problem, seed, 50_000, 0.9, 0.3)
    found = winner(problem, judge)
    assert problem.choices[found.widths[2]] == "own"
    assert found.parameters <= own_network(problem)


@pytest.mark.parametrize("seed", range(4))
def test_where_reuse_is_all_that_is_needed_nothing_is_added(seed):
    problem = make_problem(("first", "near", "all", "own"), BASE, seed=seed)
    problem = replace(problem, budget=own_network(problem))
    found = winner(problem, Simulated(problem, seed, 50_000, 0.95, 0.3, reuse=1.0))
    assert found.widths == (0, 0, 0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tolerance", [0.005, 0.05])
def test_the_winner_is_about_as_good_as_it_may_be(seed, tolerance):
    """Measured without noise worth speaking of, its accuracy is within the tolerance of the best found, or nearly."""
    problem = make_problem((), (12, 10), seed=seed, tolerance=tolerance)
    judge = Simulated(problem, seed, 10_000_000, 0.9, 0.3)
    how = SearchSettings(trials=24, patience=24, round_size=4)
    searcher = BayesianSearch(replace(problem, pending=((0, 0),)), how)
    told = searched(searcher, judge, ((0, 0),))
    best = max(trial.accuracy for trial in told)
    assert judge.true(searcher.best()) >= best - tolerance - 0.01


@pytest.mark.parametrize("measure", ["accuracy", "confidence"])
def test_children_are_compared_by_what_the_problem_says(measure):
    """Measured by one of the two, the widest child is far better; by the other, the child that adds nothing."""
    problem = make_problem((), BASE, measure=measure)
    searcher = BayesianSearch(problem, SearchSettings(trials=6, patience=6, warm_points=3, round_size=3))

    def judge(point: Widths) -> Trial:
        share = sum(point) / sum(BASE)
        scores = {"accuracy": share, "confidence": 1 - share} if measure == "accuracy" else {}
        scores = scores or {"accuracy": 1 - share, "confidence": share}
        trial = replace(trial_at(problem, point, scores["accuracy"]), confidence=scores["confidence"])
        return replace(trial, reward=float(problem.reward(np.array([scores[measure]]), np.array([point]))[0]))

    told = searched(searcher, judge, ((0, 0), BASE))
    assert searcher.best() == max(told, key=lambda trial: sum(trial.widths)).widths
    assert all(problem.measured(trial) == getattr(trial, measure) for trial in told)
    assert problem.measured(Trial((0, 0), 0.5, 1, 0.5)) == 0.5, "early records have accuracies only"


# -- what earlier tasks tried ------------------------------------------------------------------------


def test_trials_of_earlier_tasks_are_taken_by_what_they_read():
    problem = make_problem(("first", "own"), BASE)
    kinds: list[ReadsKind] = ["first", "near", "all", "own"]
    trials = tuple(Trial((1, number), 0.5, 10, 0.5, reads=kind) for number, kind in enumerate(kinds))
    assert [problem.point_of(trial) for trial in trials] == [(1, 0, 0), None, None, (1, 3, 1)]
    plain = make_problem((), BASE)
    assert [plain.point_of(trial) for trial in trials] == [None, None, (1, 2), None], "early ones read all"
    searcher = BayesianSearch(replace(problem, history=(Experience(0.1, (1, 0), trials),)), SearchSettings())
    assert [(point, accuracy) for _, point, accuracy in searcher._earlier] == [((1, 0, 0), 0.5), ((1, 3, 1), 0.5)]


def test_stopped_children_neither_win_nor_come_again():
    problem = make_problem(("first", "own"), BASE)
    searcher = BayesianSearch(problem, SearchSettings(trials=8, patience=8, warm_points=3))
    judge = Simulated(problem, 0, 50_000, 0.9, 0.3)
    told: list[Trial] = []
    while asked := searcher.ask(4):
        round_ = [judge(point) for point in asked]
        round_ = [replace(trial, rungs=(trial.accuracy - 0.1,)) for trial in round_]
        stopped = [replace(trial, accuracy=math.nan, reward=math.nan) for trial in round_[2:]]
        searcher.tell([*round_[:2], *stopped])
        told += [*round_[:2], *stopped]
    assert any(trial.stopped for trial in told)
    assert len({trial.widths for trial in told}) == len(told)
    assert not next(trial for trial in told if trial.widths == searcher.best()).failed

"""The front of accuracy and parameters, and which trial is wanted."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bocl.errors import InputError
from bocl.records.pareto import Criterion, best_within, choose, front, reward_at
from bocl.records.record import Trial
from bocl.search.ledger import Ledger
from bocl.search.problem import Problem
from bocl.search.settings import SearchSettings

ALPHA = 0.01
BOUNDS = (6, 6)
PROBLEM = Problem(BOUNDS, lambda z: 50 + 7 * z[:, 0] + 5 * z[:, 1], lambda z: ALPHA * cost(z))


def cost(z):
    return z.sum(1) / 2


def trial(widths: tuple[int, ...], accuracy: float, problem: Problem = PROBLEM) -> Trial:
    row = np.array([widths])
    reward = float(problem.reward(np.array([accuracy]), row)[0])
    return Trial(widths, accuracy, int(problem.parameters(row)[0]), reward, float(cost(row)[0]))


ACCURACIES = st.integers(0, 20).map(lambda twentieths: twentieths / 20) | st.just(math.nan)
CHILDREN = st.dictionaries(st.tuples(st.integers(0, 6), st.integers(0, 6)), ACCURACIES, min_size=1, max_size=15)


def trials_of(children, problem: Problem = PROBLEM) -> list[Trial]:
    return [trial(widths, accuracy, problem) for widths, accuracy in children.items()]


def beats(one: Trial, other: Trial) -> bool:
    better = one.accuracy > other.accuracy or one.parameters < other.parameters
    return one.accuracy >= other.accuracy and one.parameters <= other.parameters and better


@given(CHILDREN)
def test_the_front_is_what_no_other_trial_beats(children) -> None:
    trials = trials_of(children)
    found, trained = front(trials), [one for one in trials if not one.failed]
    assert {(one.accuracy, one.parameters) for one in found} == {
        (one.accuracy, one.parameters) for one in trained if not any(beats(other, one) for other in trained)
    }
    assert [one.parameters for one in found] == sorted({one.parameters for one in found})
    assert [one.accuracy for one in found] == sorted({one.accuracy for one in found})


@given(CHILDREN, st.lists(st.integers(40, 140), max_size=6))
def test_the_best_within_a_budget_is_the_most_accurate(children, budgets) -> None:
    trials = trials_of(children)
    for budget, best in zip(budgets, best_within(trials, budgets), strict=True):
        within = [one for one in trials if not one.failed and one.parameters <= budget]
        assert (best is None) == (not within)
        if best is not None:
            assert best.parameters <= budget
            assert best.accuracy == max(one.accuracy for one in within)


def usable(children):
    return any(not math.isnan(accuracy) for accuracy in children.values())


@given(CHILDREN.filter(usable))
def test_scored_anew_at_the_same_price_they_are_as_recorded(children) -> None:
    trials = trials_of(children)
    for one in trials:
        if not one.failed:
            assert reward_at(one, ALPHA) == one.reward
    assert choose(trials, Criterion(alpha=ALPHA)) == choose(trials, Criterion())


@given(CHILDREN.filter(usable), st.none() | st.integers(1, 20).map(lambda twentieths: twentieths / 20))
@settings(max_examples=200)
def test_what_is_wanted_is_what_a_search_for_it_keeps(children, target) -> None:
    """Without a target by price, with one by the smallest that reaches it: the reward says the same as the rule."""
    problem = Problem(BOUNDS, PROBLEM.parameters, PROBLEM.penalty, target=target)
    trials = trials_of(children, problem)
    ledger = Ledger(problem, SearchSettings())
    ledger.take_in(trials)
    criterion = Criterion(alpha=ALPHA) if target is None else Criterion(target=target)
    assert ledger.best() == choose(trials, criterion).widths == choose(trials, Criterion()).widths


@given(CHILDREN.filter(usable), st.integers(1, 20).map(lambda twentieths: twentieths / 20), st.integers(50, 140))
def test_a_target_wants_the_smallest_that_reaches_it_else_the_most_accurate(children, target, budget) -> None:
    trials = trials_of(children)
    within = [one for one in trials if not one.failed and one.parameters <= budget]
    if not within:
        with pytest.raises(InputError, match=f"budget {budget}: no trial adds so few"):
            choose(trials, Criterion(budget=budget))
        return
    found = choose(trials, Criterion(budget=budget, target=target))
    assert found in within
    reached = [one for one in within if one.accuracy >= target]
    if reached:
        assert found in reached
        assert found.parameters == min(one.parameters for one in reached)
    else:
        assert found.accuracy == max(one.accuracy for one in within)


def test_a_higher_price_wants_a_smaller_network() -> None:
    trials = [trial((0, 0), 0.5), trial((2, 2), 0.8), trial((6, 6), 0.9)]
    assert [choose(trials, Criterion(alpha=alpha)).widths for alpha in (0.0, 0.05, 1.0)] == [(6, 6), (2, 2), (0, 0)]


def test_a_price_needs_what_units_cost() -> None:
    old = Trial((1, 1), 0.5, 60, 0.49)
    assert choose([old], Criterion()) == old
    with pytest.raises(InputError, match="was not recorded"):
        choose([old], Criterion(alpha=0.1))


@pytest.mark.parametrize(
    ("criterion", "message"),
    [
        ({"alpha": -1.0}, "alpha is -1.0"),
        ({"alpha": math.nan}, "alpha is nan"),
        ({"budget": 0}, "budget is 0"),
        ({"target": 1.5}, "target is 1.5"),
        ({"target": 0.0}, "target is 0.0"),
        ({"target": 0.5, "alpha": 0.1}, "give one of them"),
    ],
)
def test_a_criterion_that_cannot_be_is_refused(criterion, message) -> None:
    with pytest.raises(InputError, match=message):
        Criterion(**criterion)


def test_a_tolerance_takes_the_smallest_that_is_close_enough_to_the_best():
    trials = trials_of({(0, 0): 0.90, (1, 0): 0.965, (2, 2): 0.97, (6, 6): 0.98})
    wanted = {0.0: (6, 6), 0.0101: (2, 2), 0.02: (1, 0), 1.0: (0, 0)}
    for tolerance, widths in wanted.items():
        assert choose(trials, Criterion(tolerance=tolerance)).widths == widths
    within = trial((2, 2), 0.97).parameters
    assert choose(trials, Criterion(budget=within, tolerance=0.0)).widths == (2, 2), "of those within the budget"


@pytest.mark.parametrize("both", [{"alpha": 0.1, "target": 0.5}, {"target": 0.5, "tolerance": 0.1}])
def test_two_ways_to_choose_are_refused(both):
    with pytest.raises(InputError, match=f"{' and '.join(both)} are different ways to choose"):
        Criterion(**both)

"""One price of a parameter for the whole stream: what is kept, what it goes with, and that a run keeps to it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from method_examples import RECIPE, hard_stream, make_bocl, small_cnn, small_mlp

import bocl
from bocl.errors import ConfigError
from bocl.methods.bocl import BOCL
from bocl.methods.budget import GoalSettings
from bocl.methods.rcl import RCL, RCLSettings
from bocl.methods.reward import RewardSettings, parameter_price
from bocl.methods.rounds import TrainedChild
from bocl.methods.saving import load
from bocl.networks.growth import GrowthSettings, initialise
from bocl.records.pareto import Criterion, choose
from bocl.records.record import Trial
from bocl.search.bayesian import BayesianSearch
from bocl.search.ledger import LedgerSearch
from bocl.search.problem import Problem
from bocl.search.random_search import RandomSearch
from bocl.search.settings import SearchSettings
from bocl.training.trainer import Effort, Fit

TASK = hard_stream()[0]
EVERY = SearchSettings("random", trials=9, patience=9, warm_points=3, bounds=6)


def worth(asked, network, _data, _callback, *_options):
    """Children that were never trained: units are worth less and less, and luck plays its part."""
    return [
        TrainedChild(
            initialise(network.space(asked.classes, reads), z, reads=reads, seed=seed),
            Fit(1 - 0.7 / (1 + sum(z)) - np.random.default_rng(seed).uniform(0, 0.05), 1.0, 1, Effort()),
        )
        for z, seed, reads in zip(asked.widths, asked.seeds, asked.reads, strict=True)
    ]


def learner_at(price, network=None, **options):
    goal = GoalSettings(price=price, **options.pop("goal", {}))
    return make_bocl(network, **{"goal": goal, "search": EVERY, "tasks": 4} | options)


def worth_at(price, trial):
    return trial.accuracy - price * trial.parameters / 1000


# -- which child is kept -----------------------------------------------------------------------------


@pytest.mark.parametrize("network", [small_mlp, small_cnn])
@pytest.mark.parametrize("attention", [True, False])
@pytest.mark.parametrize("price", [0.0, 0.02, 0.2, 5.0])
def test_the_child_is_kept_that_is_worth_most_after_its_price(network, attention, price):
    learner = learner_at(price, network(), growth=GrowthSettings(attention=attention))
    for _ in range(3):
        before = sum(learner.parameters().values())
        learned = learner.learn(TASK, trainer=worth)
        trials = [trial for trial in learned.trials if not trial.failed]
        assert len({trial.parameters for trial in trials}) > 2, "or this shows nothing"
        best = max(trials, key=lambda trial: worth_at(price, trial))
        assert learned.added_parameters == best.parameters == sum(learner.parameters().values()) - before
        for trial in trials:
            assert trial.reward == pytest.approx(worth_at(price, trial))
        assert choose(learned.trials, Criterion()).widths == learned.widths, "what `bocl pareto` calls the best reward"


def test_for_nothing_the_most_accurate_is_kept_and_dear_parameters_are_few():
    free, dear = (learner_at(price).learn(TASK, trainer=worth) for price in (0.0, 1e6))
    assert free.widths == max(free.trials, key=lambda trial: trial.accuracy).widths
    assert dear.added_parameters == min(trial.parameters for trial in dear.trials)


PARTS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 20), st.floats(0, 1, width=32)),
    min_size=1,
    max_size=12,
    unique_by=lambda part: part[:2],
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(PARTS, st.floats(1e-3, 0.5), st.sampled_from([RandomSearch, BayesianSearch]))
def test_twice_the_price_never_keeps_a_larger_child_of_the_same_trials(parts, price, searcher):
    sizes = []
    for at in (price, 2 * price):
        problem = problem_at(at)
        search: LedgerSearch | BayesianSearch = searcher(problem, SearchSettings())
        rows = np.array([part[:2] for part in parts], dtype=np.int64)
        rewards = problem.reward(np.array([part[2] for part in parts]), rows)
        added = problem.parameters(rows)
        trials = [
            Trial((first, second), accuracy, int(size), float(reward))
            for (first, second, accuracy), size, reward in zip(parts, added, rewards, strict=True)
        ]
        search.tell(trials)
        sizes.append(next(trial.parameters for trial in trials if trial.widths == search.best()))
    assert sizes[1] <= sizes[0]


def problem_at(price):
    def parameters(z):
        counted = 70 * z[:, 0] + (z[:, 0] + 12) * z[:, 1]
        return counted.astype(np.int64)

    return Problem((20, 20), parameters, lambda z: parameter_price(price, parameters(z)))


# -- what else holds ---------------------------------------------------------------------------------


def test_the_first_task_obeys_it_too():
    sizes = [learner_at(price).learn(TASK, trainer=worth).added_parameters for price in (0.0, 0.2, 1e6)]
    assert sizes == sorted(set(sizes), reverse=True)


@pytest.mark.parametrize("least", [0, 150])
def test_budgets_limit_what_a_price_would_allow(least):
    plain = learner_at(0.0)
    plain.learn(TASK, trainer=worth)
    smallest = min(trial.parameters for trial in plain.learn(TASK, trainer=worth).trials)
    learner = learner_at(0.0, goal={"budget": smallest + least})
    learner.learn(TASK, trainer=worth)
    learned = learner.learn(TASK, trainer=worth)
    assert max(trial.parameters for trial in learned.trials) <= smallest + least
    total = sum(learner.parameters().values()) + 2 * (smallest + least)
    learner = learner_at(0.0, goal={"total_budget": total})
    for _ in range(4):
        learner.learn(TASK, trainer=worth)
    assert sum(learner.parameters().values()) <= total


def test_what_kept_a_child_from_growing_is_the_price():
    assert learner_at(0.2).learn(TASK, trainer=worth).limit == "price"


@pytest.mark.parametrize("learns", ["bocl", "rcl", "low-rank"])
def test_a_learner_goes_on_with_its_price(tmp_path, learns):
    stream = hard_stream()
    if learns == "rcl":
        learner: BOCL = RCL(
            small_mlp(), settings=RCLSettings(trials=3), goal=GoalSettings(price=0.2), recipe=RECIPE, device="cpu"
        )
    else:
        low_rank = {"growth": GrowthSettings(form="low-rank"), "pretrained": True} if learns == "low-rank" else {}
        learner = learner_at(0.2, search=replace(EVERY, bounds=2), **low_rank)
    learner.learn(stream[0])
    learned = learner.learn(stream[1])
    for trial in [trial for trial in learned.trials if not trial.failed]:
        paid = trial.confidence - 0.2 * trial.parameters / 1000
        assert trial.reward == pytest.approx(paid), "by confidence, as there are few samples"
    learner.save(tmp_path / "model")
    again = load(tmp_path / "model", network=small_mlp() if learns == "low-rank" else None, device="cpu")
    assert isinstance(again, BOCL)
    assert (again.goal, again.reward) == (learner.goal, learner.reward)
    one, other = again.learn(stream[2]), learner.learn(stream[2])
    assert repr(one.trials) == repr(other.trials)
    assert one.widths == other.widths


@pytest.mark.parametrize("kind", ["bocl", "rcl"])
@pytest.mark.parametrize(
    ("goal", "reward", "other"),
    [
        ({"target": 0.9}, None, "goal.target"),
        ({"tolerance": 0.01}, None, "goal.tolerance"),
        ({}, 0.005, "reward.alpha"),
        ({}, 0.0, "reward.alpha"),
    ],
)
def test_it_is_the_only_goal(kind, goal, reward, other):
    made = {"bocl": BOCL, "rcl": RCL}[kind]
    with pytest.raises(ConfigError, match=rf"^goal\.price and {other} are different goals; give one of them[^\n]*$"):
        made(small_mlp(), goal=GoalSettings(price=0.01, **goal), reward=RewardSettings(reward))


@pytest.mark.parametrize("price", [-0.1, float("nan"), "0.01"])
def test_a_price_that_cannot_be_is_refused(price):
    with pytest.raises(ConfigError, match=r"^goal\.price is "):
        GoalSettings(price=price)


def test_networks_that_are_of_no_use_are_told():
    never = (np.ones((200, 2), dtype="float32"), np.arange(200) % 10 < 7)
    learner = bocl.BOCL(bocl.mlp(2, [3]), goal=GoalSettings(price=0.01), recipe=bocl.Recipe(epochs=1), device="cpu")
    with pytest.warns(bocl.GoalWarning, match="no better than always answering the most common class"):
        learner.learn(bocl.from_arrays([never])[0])

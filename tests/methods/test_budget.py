"""Budgets of a search: kept in every task and in all, whatever is chosen, and never in the way of z = 0."""

from __future__ import annotations

import re
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from method_examples import RECIPE, hard_stream, make_bocl, small_cnn, small_mlp

from bocl.errors import ConfigError, InputError
from bocl.methods.budget import GoalSettings
from bocl.methods.rcl import RCL, RCLSettings
from bocl.methods.reward import RewardSettings
from bocl.methods.rounds import TrainedChild
from bocl.methods.saving import load
from bocl.networks.growth import GrowthSettings, GrowthSpace, initialise
from bocl.networks.trace import trace
from bocl.search.settings import SearchSettings
from bocl.training.trainer import Effort, Fit
from paper_settings import PAPER_GROWTH, PAPER_REWARD

TASK = hard_stream()[0]
GRAPHS = [trace(small_mlp()), trace(small_cnn())]
FULL = PAPER_GROWTH


def lottery(asked, network, _data, _callback, *_options):
    """Children that were never trained; what they are worth is drawn, and larger ones tend to be worth more."""
    drawn = [np.random.default_rng(seed).uniform(0, 0.5) for seed in asked.seeds]
    return [
        TrainedChild(
            initialise(network.space(asked.classes, reads), z, reads=reads, seed=seed),
            Fit(accuracy + min(sum(z), 10) / 20, 1.0, 1, Effort()),
        )
        for z, seed, accuracy, reads in zip(asked.widths, asked.seeds, drawn, asked.reads, strict=True)
    ]


def never(*_arguments):
    raise AssertionError("nothing is to be trained")


def learner_of(graph, goal, **options):
    return make_bocl(graph, **{"goal": goal, "tasks": 4, "growth": PAPER_GROWTH, "reward": PAPER_REWARD} | options)


def added(graph, before, z, growth=FULL):
    return int(GrowthSpace(graph, before, TASK.classes, growth).count_all(z))


def least(graph, growth=FULL):
    """What the base network stores, and what one more task adds without growing."""
    groups = len(graph.groups)
    return added(graph, (0,) * groups, graph.widths, growth), added(graph, graph.widths, (0,) * groups, growth)


@given(
    graph=st.sampled_from(GRAPHS),
    growth=st.builds(
        GrowthSettings,
        st.sampled_from(["choose", "all", "first"]),
        st.sampled_from(["full", "lean", "forward"]),
        st.booleans(),
        st.sampled_from(["unit", "sample"]),
    ),
    kind=st.sampled_from(["random", "reinforce"]),
    spare=st.none() | st.integers(0, 2000),
    spare_in_all=st.none() | st.integers(0, 4000),
    target=st.sampled_from([None, 0.6]),
    seed=st.integers(0, 99),
)
@settings(max_examples=25, deadline=None)
def test_budgets_are_kept_in_every_task(graph, growth, kind, spare, spare_in_all, target, seed):
    base, each = least(graph, growth)
    budget = None if spare is None else each + spare
    total = None if spare_in_all is None else base + 3 * each + spare_in_all
    learner = learner_of(
        graph,
        GoalSettings(budget, total, target),
        growth=growth,
        search=SearchSettings(kind, trials=3, patience=3, warm_points=2, bounds=6),
        reward=RewardSettings(alpha=0.0),
        seed=seed,
    )
    assert learner.learn(TASK, trainer=lottery).added_parameters == base
    for _ in range(3):
        network = learner.network
        learned = learner.learn(TASK, trainer=lottery)
        assert learned.added_parameters == added(graph, network.widths(learned.reads), learned.widths, growth)
        if budget is not None:
            assert max(trial.parameters for trial in learned.trials) <= budget
    if total is not None:
        assert sum(learner.parameters().values()) <= total


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("setting", ["budget", "total_budget"])
def test_the_least_that_will_do_is_said_and_does(graph, setting):
    base, each = least(graph)
    fewest = each if setting == "budget" else base + 3 * each
    learner = learner_of(graph, GoalSettings(**{setting: fewest - 1}))
    with pytest.raises(ConfigError, match=rf"goal\.{setting} is {fewest - 1:,}.*; give at least {fewest:,}$"):
        learner.learn(TASK, trainer=never)
    learner = learner_of(graph, GoalSettings(**{setting: fewest}))
    learned = [learner.learn(TASK, trainer=lottery) for _ in range(4)]
    assert [entry.widths for entry in learned[1:]] == [(0, 0)] * 3
    if setting == "total_budget":
        assert sum(learner.parameters().values()) == fewest


def test_what_one_task_leaves_the_next_may_use():
    base, each = least(GRAPHS[0])
    learner = learner_of(GRAPHS[0], GoalSettings(total_budget=base + 3 * each + 900), searcher=Shares)
    Shares.seen.clear()
    for _ in range(4):
        learner.learn(TASK, trainer=lottery)
    left = 3 * each + 900
    assert Shares.seen == [left // 3, (left - each) // 2, left - 2 * each]


class Shares:
    """A searcher that asks for nothing and notes what it might have had."""

    seen: ClassVar[list[int]] = []

    def __init__(self, problem, settings):
        self.seen.append(problem.budget)

    def ask(self, count):
        return []

    def tell(self, trials):
        assert [trial.widths for trial in trials] == [(0, 0)]

    def best(self):
        return (0, 0)


def test_a_task_of_more_classes_that_no_longer_fits_is_refused():
    base, each = least(GRAPHS[0])
    learner = learner_of(GRAPHS[0], GoalSettings(total_budget=base + 3 * each))
    learner.learn(TASK, trainer=lottery)
    with pytest.raises(ConfigError, match="what is stored, and 3 more tasks without growing, take"):
        learner.learn(hard_stream()[2], trainer=lottery)
    assert len(learner.seen) == 1


def test_a_searcher_that_asks_over_the_budget_is_refused():
    class Greedy(Shares):
        def ask(self, count):
            return [(3, 3)]

    _, each = least(GRAPHS[0])
    learner = learner_of(GRAPHS[0], GoalSettings(budget=each + 1), searcher=Greedy)
    learner.learn(TASK, trainer=lottery)
    with pytest.raises(InputError, match=rf"gave \(3, 3\), which adds \d+ parameters; the budget is {each + 1:,}"):
        learner.learn(TASK, trainer=lottery)


def test_a_target_wants_the_smallest_that_reaches_it():
    learner = learner_of(
        GRAPHS[0], GoalSettings(target=0.45), search=SearchSettings("random", trials=9, patience=9, bounds=29)
    )
    learner.learn(TASK, trainer=lottery)
    learned = learner.learn(TASK, trainer=lottery)
    reached = [trial for trial in learned.trials if trial.accuracy >= 0.45]
    assert 0 < len(reached) < len(learned.trials), "or this shows nothing"
    assert learned.added_parameters == min(trial.parameters for trial in reached)


def test_rcl_keeps_to_a_budget_too():
    graph, growth = GRAPHS[0], GrowthSettings("all", attention=False)
    base, each = least(graph, growth)
    learner = RCL(
        graph,
        settings=RCLSettings(trials=4),
        goal=GoalSettings(total_budget=base + each + 200),
        tasks=2,
        recipe=RECIPE,
        device="cpu",
    )
    learner.learn(TASK, trainer=lottery)
    assert max(trial.parameters for trial in learner.learn(TASK, trainer=lottery).trials) <= each + 200


def test_a_goal_survives_a_restart(tmp_path):
    base, each = least(GRAPHS[0])
    goal = GoalSettings(each + 300, base + 3 * each + 600, 0.9)
    learner = learner_of(GRAPHS[0], goal)
    for _ in range(2):
        learner.learn(TASK, trainer=lottery)
    learner.save(tmp_path / "model")
    again = load(tmp_path / "model", device="cpu")
    assert again.goal == goal
    assert again.learn(TASK, trainer=lottery).trials == learner.learn(TASK, trainer=lottery).trials


@pytest.mark.parametrize(
    ("goal", "message"),
    [
        ({"budget": 0}, "goal.budget is 0; it must be at least 1"),
        ({"budget": 1.5}, "goal.budget is 1.5; it must be an integer"),
        ({"total_budget": 10**13}, "goal.total_budget is 10000000000000; it must be at most"),
        ({"target": 0}, "goal.target is 0; it must be above 0"),
        ({"target": 97}, "goal.target is 97;"),
    ],
)
def test_a_goal_that_cannot_be_is_refused(goal, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        GoalSettings(**goal)

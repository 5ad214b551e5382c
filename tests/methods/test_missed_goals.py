"""A task that was learnt, but not as well as was wanted, is told."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import bocl

QUICK = {"recipe": bocl.Recipe(epochs=1), "search": bocl.SearchSettings(trials=1, warm_points=1), "device": "cpu"}
NEVER = "no better than always answering the most common class"


def noise(**more):
    """Return tasks that cannot be learnt: seven of ten labels are the same, and so are all samples."""
    pairs = [(np.ones((200, 2), dtype="float32"), np.arange(200) % 10 < 7) for _ in range(2)]
    return bocl.from_arrays(pairs, names=["spring", "summer"], **more)


def told(learner, stream):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for task in stream:
            learner.learn(task)
    return [str(each.message) for each in found if each.category is bocl.GoalWarning], found


def test_a_target_that_no_network_reaches():
    learner = bocl.BOCL(bocl.mlp(2, [3]), goal=bocl.GoalSettings(target=0.99), **QUICK)
    messages, found = told(learner, noise())
    assert [message.split(":")[0] for message in messages] == ["task 'spring'", "task 'summer'"]
    assert "no network reached the target of 99.00 %; the best has " in messages[0]
    assert found[0].filename == __file__, "it names the line that called learn"


def test_networks_that_are_of_no_use_with_a_tolerance_as_goal():
    messages, _ = told(bocl.BOCL(bocl.mlp(2, [3]), **QUICK), noise())
    assert len(messages) == 2
    assert all(NEVER in message for message in messages)


@pytest.mark.parametrize("goal", [{"reward": bocl.RewardSettings(0.01)}, {"goal": bocl.GoalSettings(target=0.01)}])
def test_with_another_goal_that_is_reached_nothing_is_said(goal):
    assert told(bocl.BOCL(bocl.mlp(2, [3]), **goal, **QUICK), noise())[0] == []


def test_where_classes_have_weights_nothing_is_said():
    assert told(bocl.BOCL(bocl.mlp(2, [3]), **QUICK), noise(class_weight="balanced"))[0] == []

"""PackNet: train what is free, keep the largest of it, train that again."""

from __future__ import annotations

import pytest
import torch
from method_examples import RECIPE, hard_stream, small_cnn, small_mlp

from bocl.errors import ConfigError
from bocl.methods.packnet import PackNet, PackNetSettings, largest, retraining
from bocl.records.events import EpochDone, RoundStarted
from bocl.training.recipe import Recipe

OPTIONS = {"recipe": RECIPE, "seed": 0, "device": "cpu"}


def test_tasks_keep_equal_parts_until_nothing_is_free():
    learner = PackNet(small_cnn(), tasks=3, **OPTIONS)
    stream, taken = hard_stream(), []
    for index in range(4):
        before = {name: used.clone() for name, used in learner.network.used.items()}
        learned = learner.learn(stream[index])
        taken.append([int((learner.network.used[name] & ~used).sum()) for name, used in before.items()])
        for name, used in before.items():
            assert learner.network.mask(index)[name][used].all(), "a task uses all weights of earlier tasks"
    sizes = [used.numel() for used in learner.network.used.values()]
    for layer, size in enumerate(sizes):
        parts = [task[layer] for task in taken]
        assert sum(parts[:3]) == size
        assert max(parts[:3]) - min(parts[:3]) <= 1
        assert parts[3] == 0
    assert learned.parameters["heads"] > 0
    assert learned.validation_accuracy > 0.3


def test_a_task_keeps_the_share_that_is_set():
    learner = PackNet(small_mlp(), settings=PackNetSettings(keep=0.25), **OPTIONS)
    learner.learn(hard_stream()[0])
    learner.learn(hard_stream()[1])
    assert [int(used.sum()) for used in learner.network.used.values()] == [108 + 81, 8 + 6]  # of 432 and 30


def test_the_largest_free_weights_are_kept():
    weights = torch.tensor([[0.1, -3.0, 2.0], [0.0, 0.5, -0.4]])
    free = torch.tensor([[True, False, True], [True, True, True]])
    assert largest(weights, free, 0.4).tolist() == [[False, False, True], [False, True, False]]
    assert largest(weights, free, 1.0).equal(free)
    assert largest(weights, free, 1e-9).sum() == 1
    assert largest(weights, ~free & False, 0.5).sum() == 0


def test_what_was_pruned_is_trained_no_more_and_what_is_kept_is_trained_again():
    heard = []
    learner = PackNet(small_mlp(), settings=PackNetSettings(retrain=0.75), **OPTIONS)
    learned = learner.learn(hard_stream()[0], heard.append)
    steps = [event.purpose for event in heard if isinstance(event, RoundStarted)]
    assert steps == ["base", "retraining"]
    assert [event.total for event in heard if isinstance(event, EpochDone)] == [4] * 4 + [3] * 3
    assert learned.effort.samples == 7 * 32  # batches are full
    for name, weight in learner.network.weights.items():
        assert (weight[~learner.network.used[name]] == 0).all()


def test_retraining_is_shorter_and_slower():
    recipe = retraining(Recipe(epochs=20, learning_rate=0.5), 100, 0.5)
    assert (recipe.epochs, recipe.learning_rate) == (10, pytest.approx(0.05))
    assert retraining(Recipe(epochs=1), 100, 0.1).epochs == 1
    assert retraining(Recipe(batch_size=10), 100, 0.5).epochs == 50  # of the 100 that make 1,000 steps


@pytest.mark.parametrize(("name", "value"), [("keep", 0.0), ("keep", 1.5), ("retrain", 0.0), ("retrain", None)])
def test_shares_are_between_0_and_1(name, value):
    with pytest.raises(ConfigError, match=rf"packnet\.{name} is {value}"):
        PackNetSettings(**{name: value})

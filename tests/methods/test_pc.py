"""Progress & Compress: a column learns from labels, the base from the column, held to what it knew."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from method_examples import RECIPE, hard_stream, small_cnn, small_mlp

from bocl.errors import ConfigError, NetworkError
from bocl.methods import pc
from bocl.methods.method import State, split_extra
from bocl.methods.pc import PC, PCSettings
from bocl.methods.plain import fine_tune

SGD = replace(RECIPE, optimiser="sgd", learning_rate=0.05)
NETWORKS = {"mlp": small_mlp, "cnn": small_cnn}


def make(network, recipe=RECIPE, **settings):
    return PC(network, settings=PCSettings(**settings), recipe=recipe, device="cpu")


def learn(learner, *tasks):
    for task in tasks:
        learner.learn(hard_stream()[task])
    return learner


@pytest.fixture
def compressed(monkeypatch):
    """Return the tasks that bases are trained on, as they come."""
    found = []

    def spy(network, data, *rest, **options):
        found.append(data)
        return fine_tune(network, data, *rest, **options)

    monkeypatch.setattr(pc, "fine_tune", spy)
    return found


@pytest.mark.parametrize("recipe", [RECIPE, SGD], ids=["adam", "sgd"])
@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_with_a_huge_strength_the_base_does_not_move(network, recipe):
    learner = learn(make(network(), recipe, strength=1e12), 0)
    before, firm = learner.network, learner.precision
    learn(learner, 1, 2)
    moved = 0
    for name, precision in firm.items():
        here, there = learner.network.tensors[name], before.tensors[name]
        assert torch.equal(here[precision > 1e-2], there[precision > 1e-2]), name
        torch.testing.assert_close(here[precision > 1e-6], there[precision > 1e-6], rtol=0, atol=1e-5)
        moved += (precision > 1e-6).sum()
    assert moved > 100  # there was something to hold


def test_the_stronger_the_less_is_forgotten():
    def drift(strength):
        learner = learn(make(small_mlp(), strength=strength), 0)
        x = hard_stream()[0].train.raw
        before = learner.predict(x, 0)
        return (learn(learner, 1).predict(x, 0) - before).norm().item()

    drifts = [drift(strength) for strength in (0, 0.01, 1, 1e3)]
    assert drifts == sorted(drifts, reverse=True)
    assert drifts[-1] < 0.2 * drifts[0]


def test_the_base_learns_what_the_column_says(compressed):
    learner = learn(make(small_mlp(), replace(RECIPE, epochs=60)), 0)
    (data,) = compressed
    x, labels = data.train.rows(slice(None))
    said, learnt = data.teacher(x).softmax(1), learner.predict(x, 0).softmax(1)
    assert (said.argmax(1) == labels).double().mean() > 0.9, "the column has learnt the task"
    assert (said - learnt).abs().mean() < 0.05


def test_labels_reach_the_base_through_the_column_only(monkeypatch):
    def lie(network, data, *rest, **options):
        wrong = replace(data.train, labels=(data.train.labels + 1) % data.classes)
        return fine_tune(network, replace(data, train=wrong), *rest, **options)

    honest = learn(make(small_mlp()), 0).network.tensors
    monkeypatch.setattr(pc, "fine_tune", lie)
    for name, tensor in learn(make(small_mlp()), 0).network.tensors.items():
        assert torch.equal(tensor, honest[name]), name


def test_the_column_reads_the_base_and_is_not_kept(compressed):
    learner = learn(make(small_mlp(), adapter=0.5), 0)
    base = learner.network.tensors
    learn(learner, 1)
    first, second = (data.teacher.func.__self__.columns for data in compressed)
    assert len(first) == 1
    assert not any(name.startswith("lateral/") for name in first[0])
    assert len(second) == 2
    assert all(torch.equal(second[0][name], tensor) for name, tensor in base.items())
    assert second[1]["lateral/fc2/reduce.weight"].shape == (3, 6)
    assert not any(name.startswith("lateral/") for name in learner.state().tensors)
    assert learner.extra_numbers() == sum(precision.numel() for precision in learner.precision.values())


@pytest.mark.parametrize("decay", [1.0, 0.5])
def test_every_task_counts_the_same_and_less_as_others_follow(decay):
    learner, totals = make(small_mlp(), decay=decay), []
    for task in range(3):
        learn(learner, task)
        parts = torch.cat([precision.flatten() for precision in learner.precision.values()])
        totals.append(parts.mean().item())
    assert totals == pytest.approx([1, 1 + decay, 1 + decay + decay**2], rel=1e-4)
    assert all(learner.network.is_shared(name) for name in learner.precision)


def test_both_phases_count_as_effort():
    learned = make(small_mlp()).learn(hard_stream()[0])
    steps = -(-len(hard_stream()[0].train.labels) // 16)
    assert learned.effort.samples == 2 * 4 * 16 * steps


@pytest.mark.parametrize(
    "change",
    [
        lambda kept: kept.pop("precision/layer/fc1/bias"),
        lambda kept: kept.update({"precision/head0/weight": torch.zeros(3, 5)}),
        lambda kept: kept["precision/layer/fc1/rows"].neg_(),
        lambda kept: kept["precision/layer/fc1/rows"].fill_(torch.nan),
        lambda kept: kept.clear(),
    ],
    ids=["missing", "a head", "negative", "not finite", "nothing"],
)
def test_a_saved_precision_that_cannot_be_is_refused(change):
    learner = learn(make(small_mlp()), 0)
    kept = {name: tensor.clone() for name, tensor in split_extra(learner.state().tensors)[0].items()}
    learner._check_kept(State({}, kept), learner.seen)
    change(kept)
    with pytest.raises(NetworkError, match="tensor '"):
        learner._check_kept(State({}, kept), learner.seen)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("strength", -1), ("strength", 1e13), ("decay", 1.1), ("adapter", 0), ("adapter", 101), ("labels", "all"),
        ("fisher_samples", 0),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(name, value):
    with pytest.raises(ConfigError, match=rf"pc\.{name} is .*; it must be"):
        PCSettings(**{name: value})

"""The controls: fixed growth, one fine-tuned network, a network per task, all tasks at once."""

from __future__ import annotations

import pytest
import torch
from method_examples import CLASSES, RECIPE, hard_stream, small_cnn, small_mlp

from bocl.errors import ConfigError, DataError
from bocl.methods.fixed import Fixed
from bocl.methods.independent import Independent
from bocl.methods.joint import Joint
from bocl.methods.sn import SN

OPTIONS = {"recipe": RECIPE, "seed": 0, "device": "cpu"}
X = torch.randn(9, 2, 6, 6, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", [Fixed, Independent])
def test_growing_and_separate_networks_forget_nothing(kind):
    learner, said = kind(small_cnn(), **OPTIONS), []
    for index in range(3):
        learner.learn(hard_stream()[index])
        assert all(torch.equal(learner.predict(X, task), logits) for task, logits in enumerate(said))
        said.append(learner.predict(X, index))


def test_one_network_fine_tuned_forgets():
    learner = SN(small_cnn(), **OPTIONS)
    learner.learn(hard_stream()[0])
    before = learner.predict(X, 0)
    learner.learn(hard_stream()[1])
    assert not torch.allclose(learner.predict(X, 0), before, atol=1e-3)


def test_fixed_growth_adds_the_same_for_every_task():
    learner = Fixed(small_cnn(), widths=(2, 1), **OPTIONS)
    learned = [learner.learn(hard_stream()[index]) for index in range(3)]
    assert [entry.widths for entry in learned] == [(4, 5), (2, 1), (2, 1)]
    assert learner.network.widths == (8, 7)


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        ((1,), r"fixed\.widths has 1 entry \(1,\), but the network has 2 hidden groups"),
        ((1, 2, 3), r"fixed\.widths has 3 entries \(1, 2, 3\), but the network has 2 hidden groups"),
        ((1, -1), r"fixed\.widths\[1\] is -1; it must be at least 0"),
        (-2, r"fixed\.widths is -2; it must be at least 0"),
        (1.5, r"fixed\.widths is 1\.5; it must be a whole number"),
        ("a", r"fixed\.widths is 'a'; it must be a whole number"),
        ((), r"fixed\.widths is empty"),
        (100_001, r"fixed\.widths is 100001; it must be at most 100000"),
    ],
)
def test_a_fixed_growth_that_does_not_fit_is_refused(widths, message):
    with pytest.raises(ConfigError, match=message):
        Fixed(small_cnn(), widths=widths, **OPTIONS)


def test_a_fixed_growth_may_be_a_list():
    assert Fixed(small_cnn(), widths=[2, 1], **OPTIONS).widths == (2, 1)


@pytest.mark.parametrize("shared_head", ["no", None, 1])
def test_a_shared_head_is_yes_or_no(shared_head):
    with pytest.raises(ConfigError, match=r"sn\.shared_head is"):
        SN(small_mlp(), shared_head=shared_head, **OPTIONS)


def test_networks_of_fixed_size_add_a_head_per_task():
    for kind in (SN, Joint):
        learner = kind(small_mlp(), **OPTIONS)
        learned = [learner.learn(hard_stream()[index]) for index in range(3)]
        assert [entry.parameters["heads"] for entry in learned] == [6 * classes for classes in CLASSES[:3]]
        assert [entry.parameters["shared"] for entry in learned[1:]] == [0, 0]
        assert [entry.widths for entry in learned] == [(6, 5), (0, 0), (0, 0)]


def test_a_shared_head_is_one_head():
    stream = hard_stream()
    learner = SN(small_mlp(), shared_head=True, **OPTIONS)
    learner.learn(stream[1])
    learned = learner.learn(stream[3])
    assert learned.added_parameters == 0
    assert torch.equal(learner.predict(X, 0), learner.predict(X, 1))


def test_a_shared_head_refuses_other_classes_and_stays_as_it_was():
    stream = hard_stream()
    learner = SN(small_mlp(), shared_head=True, **OPTIONS)
    learner.learn(stream[1])
    before = learner.predict(X, 0)
    with pytest.raises(DataError, match="4 classes but the shared head has 2"):
        learner.learn(stream[2])
    assert len(learner.seen) == 1
    assert torch.equal(learner.predict(X, 0), before)


def test_joint_training_keeps_what_fine_tuning_loses():
    def scores(kind: type) -> list[float]:
        learner = kind(small_mlp(), **OPTIONS)
        for index in range(3):
            learner.learn(stream[index])
        return [
            (learner.predict(stream[task].validation.raw, task).argmax(1) == stream[task].validation.labels)
            .double()
            .mean()
            .item()
            for task in range(3)
        ]

    stream = hard_stream(0.5)
    assert min(scores(Joint)) > max(0.6, min(scores(SN)) - 0.05)


def test_joint_training_starts_afresh_and_follows_its_data():
    stream = hard_stream()
    learner = Joint(small_mlp(), **OPTIONS)
    learner.learn(stream[0])
    learner.learn(stream[1])
    other = Joint(small_mlp(), **OPTIONS)
    other.seen = list(learner.seen[:1])
    other.recall([stream[0]])
    other.learn(stream[1])
    for name, tensor in learner.state().tensors.items():
        assert torch.equal(tensor, other.state().tensors[name])


def test_restoring_replaces_what_a_learner_knew():
    learner = Fixed(small_mlp(), widths=1, **OPTIONS)
    for index in range(2):
        learner.learn(hard_stream()[index])
    learner.restore(learner.state())
    assert len(learner.network.tasks) == len(learner.network.growths) == len(learner.seen) == 2


def test_an_interrupted_fine_tuning_leaves_nothing_behind():
    def interrupt(_event):
        raise KeyboardInterrupt

    learner, other = SN(small_mlp(), **OPTIONS), SN(small_mlp(), **OPTIONS)
    with pytest.raises(KeyboardInterrupt):
        learner.learn(hard_stream()[0], interrupt)
    for index in range(2):
        learner.learn(hard_stream()[index])
        other.learn(hard_stream()[index])
    assert learner.state().tensors.keys() == other.state().tensors.keys()

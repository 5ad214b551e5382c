"""EWC: the Fisher information, the quadratic that stands for all earlier tasks, and what it holds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from method_examples import RECIPE, hard_stream, small_cnn, small_mlp
from torch import nn

from bocl.errors import ConfigError, NetworkError
from bocl.methods import ewc
from bocl.methods.ewc import EWC, EWCSettings, Quadratic, fisher_information
from bocl.methods.method import State, split_extra
from bocl.methods.sn import SN, SNSettings
from bocl.networks.architectures import lenet, resnet
from bocl.networks.plain import PlainNetwork
from bocl.networks.trace import trace

SGD = replace(RECIPE, optimiser="sgd", learning_rate=0.05)
NETWORKS = {"mlp": small_mlp, "cnn": small_cnn}


def make(network, recipe=RECIPE, **settings):
    return EWC(network, settings=EWCSettings(**settings), recipe=recipe, device="cpu")


def learn(learner, *tasks):
    for task in tasks:
        learner.learn(hard_stream()[task])
    return learner


def grouped():
    """Return a network with a group norm, a padding-sensitive activation, dropout and pools of each kind."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.Sigmoid(), nn.AvgPool2d(2), nn.Conv2d(4, 3, 2),
        nn.ELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(3, 3),
    )  # fmt: skip


@pytest.mark.parametrize("recipe", [RECIPE, SGD], ids=["adam", "sgd"])
@pytest.mark.parametrize("shared_head", [False, True])
@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_without_strength_it_is_fine_tuning_to_the_bit(network, shared_head, recipe):
    tasks = (1, 3) if shared_head else (0, 1, 2)
    held = learn(make(network(), recipe, strength=0, shared_head=shared_head), *tasks)
    free = learn(SN(network(), settings=SNSettings(shared_head), recipe=recipe, device="cpu"), *tasks)
    for name, tensor in free.network.tensors.items():
        assert torch.equal(held.network.tensors[name], tensor), name


@pytest.mark.parametrize("form", ["separate", "online"])
@pytest.mark.parametrize("recipe", [RECIPE, SGD], ids=["adam", "sgd"])
@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_with_a_huge_strength_what_matters_does_not_move(network, recipe, form):
    learner = learn(make(network(), recipe, strength=1e12, form=form), 0)
    before, firm = learner.network, learner.quadratic.precision
    learn(learner, 1, 2)
    moved = 0
    for name, precision in firm.items():
        here, there = learner.network.tensors[name], before.tensors[name]
        assert torch.equal(here[precision > 1e-3], there[precision > 1e-3]), name
        torch.testing.assert_close(here[precision > 1e-7], there[precision > 1e-7], rtol=0, atol=1e-5)
        moved += (precision > 1e-7).sum()
    assert moved > 100  # there was something to hold


def test_the_stronger_the_less_is_forgotten():
    def drift(strength):
        learner = learn(make(small_mlp(), strength=strength), 0)
        x = hard_stream()[0].train.raw
        before = learner.predict(x, 0)
        return (learn(learner, 1).predict(x, 0) - before).norm().item()

    drifts = [drift(strength) for strength in (0, 10, 1e3, 1e6)]
    assert drifts == sorted(drifts, reverse=True)
    assert drifts[-1] < 0.2 * drifts[0]


def plain(module, classes=(3, 2), shape=(2, 6, 6), shared_head=False):
    """Return an untrained network with heads, its running statistics moved from their start, and samples for it."""
    network = PlainNetwork(trace(module), shared_head=shared_head)
    for task, count in enumerate(classes):
        network.add_task(count, seed=task)
    generator = torch.Generator().manual_seed(0)
    for name, tensor in network.tensors.items():
        if name.endswith(("/mean", "/var")):
            tensor += torch.rand(tensor.shape, generator=generator)
    return network, torch.randn(11, *shape, generator=generator), torch.arange(11) % classes[-1]


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (small_mlp, (2, 6, 6)),
        (small_cnn, (2, 6, 6)),
        (grouped, (2, 6, 6)),
        (lambda: lenet(3, 2), (3, 32, 32)),
        (lambda: resnet(3, (2, 3)), (3, 16, 16)),
    ],
    ids=["mlp", "cnn", "grouped", "lenet", "resnet"],
)
@pytest.mark.parametrize("shared_head", [False, True])
def test_the_fisher_information_is_the_mean_of_squared_gradients_one_by_one(module, shape, shared_head, monkeypatch):
    network, inputs, labels = plain(module(), (2, 2), shape, shared_head)
    monkeypatch.setattr(ewc, "MOST_GRADIENTS", 4 * sum(tensor.numel() for tensor in network.tensors.values()))
    found = fisher_information(network, inputs, labels, task=1)
    trained = network.trainable()
    trained.training = False
    wanted = {name: torch.zeros_like(tensor[0]) for name, tensor in trained.parameters.items()}
    for x, label in zip(inputs, labels, strict=True):
        for parameter in trained.parameters.values():
            parameter.grad = None
        F.cross_entropy(trained(x[None], 1)[0], label[None]).backward()
        for name, parameter in trained.parameters.items():
            if parameter.grad is not None:
                wanted[name] += parameter.grad[0].square() / len(labels)
    heads = {name for name in wanted if name.startswith("head")}
    assert found.keys() == wanted.keys() - (set() if shared_head else heads)
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, wanted[name], rtol=1e-4, atol=1e-9)
    assert sum(tensor.sum() for tensor in found.values()) > 0


def test_the_sum_of_the_tasks_quadratics_is_one_quadratic():
    draw = torch.Generator().manual_seed(0)
    fishers = [torch.rand(50, generator=draw, dtype=torch.float64) for _ in range(4)]
    for fisher in fishers:
        fisher[:10] = 0  # no task minds
    fishers[1][10:20] = 0
    stars = [torch.randn(50, generator=draw, dtype=torch.float64) for _ in range(4)]
    quadratic = Quadratic({"w": fishers[0]}, {"w": stars[0]})
    for fisher, star in zip(fishers[1:], stars[1:], strict=True):
        quadratic = quadratic.add({"w": fisher}, {"w": star})
    theta = torch.randn(50, generator=draw, dtype=torch.float64)
    gradient = sum(fisher * (theta - star) for fisher, star in zip(fishers, stars, strict=True))
    torch.testing.assert_close(quadratic.precision["w"] * (theta - quadratic.centre["w"]), gradient)
    assert quadratic.centre["w"].isfinite().all()


def test_the_online_form_holds_to_the_latest_and_lets_go_of_the_oldest():
    quadratic = Quadratic({"w": torch.tensor([4.0])}, {"w": torch.tensor([1.0])})
    moved = quadratic.move({"w": torch.tensor([3.0])}, {"w": torch.tensor([5.0])}, decay=0.5)
    assert (moved.precision["w"].item(), moved.centre["w"].item()) == (5.0, 5.0)


def test_the_pull_is_the_minimum_of_the_quadratic_and_the_way_there():
    quadratic = Quadratic({"w": torch.tensor([2.0, 0.0, 1e30])}, {"w": torch.tensor([1.0, 1.0, 1.0])})
    theta = torch.tensor([[3.0, 3.0, 3.0]])
    quadratic.pull(10.0)({"w": theta}, lambda _: 0.1)  # w = 0.1 · 10 · 2
    torch.testing.assert_close(theta, torch.tensor([[(3.0 + 2.0 * 1.0) / (1 + 2.0), 3.0, 1.0]]))


@pytest.mark.parametrize("form", ["separate", "online"])
def test_every_task_is_added_in_the_form_asked_for(form):
    learner = learn(make(small_mlp(), form=form, decay=0.5, fisher_samples=20), 0)
    first = learner.quadratic
    learn(learner, 1)
    for name, precision in learner.quadratic.precision.items():
        kept = first.precision[name] * (0.5 if form == "online" else 1)
        assert (precision >= kept).all()
        assert (precision > kept).any()
        latest = torch.equal(learner.quadratic.centre[name], learner.network.tensors[name])
        assert latest == (form == "online")


def test_the_fisher_information_is_that_of_the_task_just_learnt(monkeypatch):
    used = []

    def spy(network, inputs, labels, task):
        used.append(task)
        assert {tuple(x.flatten().tolist()) for x in inputs} <= {
            tuple(x.flatten().tolist()) for x in hard_stream()[task].train.raw
        }
        return fisher_information(network, inputs, labels, task)

    monkeypatch.setattr(ewc, "fisher_information", spy)
    learn(make(small_mlp()), 0, 1, 2)
    assert used == [0, 1, 2]


def test_labels_are_sampled_or_true(monkeypatch):
    used = []

    def spy(network, inputs, labels, task):
        used.append((inputs, labels))
        return fisher_information(network, inputs, labels, task)

    monkeypatch.setattr(ewc, "fisher_information", spy)
    stream = hard_stream(spread=4.0)  # too hard to be sure of
    pairs = {
        tuple(x.flatten().tolist()): y.item() for x, y in zip(stream[0].train.raw, stream[0].train.labels, strict=True)
    }
    for labels in ("true", "sampled"):
        learner = make(small_mlp(), labels=labels, fisher_samples=20)
        learner.learn(stream[0])
        inputs, given = used.pop()
        assert len(given) == 20 == len({tuple(x.flatten().tolist()) for x in inputs})
        right = [pairs[tuple(x.flatten().tolist())] == y.item() for x, y in zip(inputs, given, strict=True)]
        assert all(right) == (labels == "true")
        guessed = learner.predict(inputs, 0).argmax(1)
        assert labels == "true" or not torch.equal(guessed, given)


def test_a_shared_head_is_held_too():
    learner = learn(make(small_mlp(), shared_head=True), 1, 3)
    assert {"head0/weight", "head0/bias"} <= learner.quadratic.precision.keys()
    own = learn(make(small_mlp()), 0, 1)
    assert not any(name.startswith("head") for name in own.quadratic.precision)


@pytest.mark.parametrize(
    "change",
    [
        lambda kept: kept.pop("precision/layer/fc1/bias"),
        lambda kept: kept.update({"centre/head0/weight": torch.zeros(3, 5)}),
        lambda kept: kept["precision/layer/fc1/rows"].neg_(),
        lambda kept: kept["centre/layer/fc1/rows"].fill_(torch.nan),
        lambda kept: kept.clear(),
    ],
    ids=["missing", "a head", "negative", "not finite", "nothing"],
)
def test_a_saved_quadratic_that_cannot_be_is_refused(change):
    learner = learn(make(small_mlp()), 0)
    kept = {name: tensor.clone() for name, tensor in split_extra(learner.state().tensors)[0].items()}
    learner._check_kept(State({}, kept), learner.seen)
    change(kept)
    with pytest.raises(NetworkError, match="tensor '"):
        learner._check_kept(State({}, kept), learner.seen)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("strength", -1), ("strength", 1e13), ("strength", "a"), ("form", "both"), ("decay", 1.1), ("decay", -0.1),
        ("labels", "all"), ("fisher_samples", 0), ("fisher_samples", 1.5), ("shared_head", "no"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(name, value):
    with pytest.raises(ConfigError, match=rf"ewc\.{name} is .*; it must be"):
        EWCSettings(**{name: value})


@pytest.mark.parametrize("wrong", [None, {"strength": 1}, 5.0])
def test_settings_of_another_kind_are_refused(wrong):
    with pytest.raises(ConfigError, match=r"settings is .*; it must be a EWCSettings"):
        EWC(small_mlp(), settings=wrong, device="cpu")

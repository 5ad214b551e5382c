"""IMM: what the mean and the mode of networks are, and what the transfers do."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from method_examples import RECIPE, hard_stream, small_cnn, small_mlp

from bocl.errors import ConfigError, NetworkError
from bocl.methods import imm
from bocl.methods.ewc import EWC, EWCSettings
from bocl.methods.imm import IMM, IMMSettings
from bocl.methods.method import State, split_extra
from bocl.methods.sn import SN, SNSettings
from bocl.networks.architectures import resnet
from bocl.networks.drop_transfer import AroundEarlier
from bocl.networks.plain import PlainNetwork
from bocl.networks.stacked import _Value
from bocl.networks.trace import trace

SGD = replace(RECIPE, optimiser="sgd", learning_rate=0.05)
NETWORKS = {"mlp": small_mlp, "cnn": small_cnn, "resnet": lambda: resnet(2, (4, 4), 3)}
FORMS = ("mean", "mode")
PLAIN = {"l2": 0.0, "drop": 0.0}  # weight-transfer alone


def make(network, recipe=RECIPE, **settings):
    return IMM(network, settings=IMMSettings(**settings), recipe=recipe, device="cpu")


def learn(learner, *tasks):
    for task in tasks:
        learner.learn(hard_stream()[task])
    return learner


def merged(learner, tensors=None):
    """Return what is merged of a learner's network."""
    found = learner.network.tensors if tensors is None else tensors
    return {name: tensor for name, tensor in found.items() if learner._is_merged(name)}


def each_task(learner, *tasks):
    """Learn tasks; return the network that was trained for each."""
    return [merged(learner, learn(learner, task).latest) for task in tasks]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_what_is_merged_of_one_network_is_that_network(network, form):
    learner = learn(make(network(), form=form), 0)
    alone = learn(SN(network(), recipe=RECIPE, device="cpu"), 0)
    assert learner.network.tensors.keys() == alone.network.tensors.keys()
    for name, tensor in alone.network.tensors.items():
        assert torch.equal(learner.network.tensors[name], tensor), name


@pytest.mark.parametrize("shared_head", [False, True])
@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_the_mean_is_the_mean_of_the_tasks_networks(network, shared_head):
    tasks = (1, 3, 1) if shared_head else (0, 1, 2)
    learner = make(network(), form="mean", shared_head=shared_head)
    networks = each_task(learner, *tasks)
    assert ("head0/weight" in networks[0]) == shared_head
    for name, tensor in merged(learner).items():
        torch.testing.assert_close(tensor, torch.stack([one[name] for one in networks]).mean(0))
        if "/rows" in name:
            assert not torch.equal(networks[0][name], networks[2][name])


def test_the_mode_weighs_networks_by_their_fisher_information(monkeypatch):
    used = []

    def spy(*arguments):
        used.append(estimated(*arguments))
        return used[-1]

    estimated = imm.estimated_fisher
    monkeypatch.setattr(imm, "estimated_fisher", spy)
    learner = make(small_cnn(), form="mode")
    networks = each_task(learner, 0, 1, 2)
    for name in used[0]:
        weights = torch.stack([fisher[name].double() + 1e-30 for fisher in used])
        wanted = (weights * torch.stack([one[name] for one in networks])).sum(0) / weights.sum(0)
        torch.testing.assert_close(learner.network.tensors[name], wanted.float(), rtol=1e-4, atol=1e-6)
    statistics = torch.stack([one["norm/1/mean"] for one in networks])
    torch.testing.assert_close(learner.network.tensors["norm/1/mean"], statistics.mean(0))


@pytest.mark.parametrize("form", FORMS)
def test_the_newest_network_counts_as_much_as_it_should(monkeypatch, form):
    equal = lambda network, *_: {  # noqa: E731
        name: torch.ones_like(tensor) for name, tensor in network.tensors.items() if network.is_shared(name)
    }
    monkeypatch.setattr(imm, "estimated_fisher", equal)
    learner = make(small_cnn(), form=form, newest=0.7)
    first, second, third = each_task(learner, 0, 1, 2)
    for name, tensor in merged(learner).items():
        torch.testing.assert_close(tensor, 0.3 * (0.3 * first[name] + 0.7 * second[name]) + 0.7 * third[name])


@pytest.mark.parametrize("size", [0.0, 0.3])
def test_the_mode_with_equal_fisher_information_is_the_mean(monkeypatch, size):
    equal = lambda network, *_: {  # noqa: E731
        name: torch.full_like(tensor, size) for name, tensor in network.tensors.items() if network.is_shared(name)
    }
    monkeypatch.setattr(imm, "estimated_fisher", equal)
    mode, mean = (learn(make(small_cnn(), form=form), 0, 1, 2) for form in ("mode", "mean"))
    for name, tensor in mean.network.tensors.items():
        torch.testing.assert_close(mode.network.tensors[name], tensor)


def test_the_fisher_information_is_that_of_ewc():
    recipe, settings = RECIPE, {"fisher_samples": 20, "labels": "true"}
    held = learn(EWC(small_mlp(), settings=EWCSettings(**settings), recipe=recipe, device="cpu"), 0)
    learner = learn(make(small_mlp(), **settings), 0)
    for name, precision in held.quadratic.precision.items():
        torch.testing.assert_close(learner.information[name], precision)


@pytest.mark.parametrize("shared_head", [False, True])
def test_with_weight_transfer_alone_every_network_is_fine_tuned_from_the_one_before(shared_head):
    tasks = (1, 3) if shared_head else (0, 1, 2)
    learner = learn(make(small_cnn(), shared_head=shared_head, **PLAIN), *tasks)
    free = learn(SN(small_cnn(), settings=SNSettings(shared_head), recipe=RECIPE, device="cpu"), *tasks)
    for name, tensor in learner.latest.items():
        assert torch.equal(tensor, free.network.tensors[name]), name
    last = f"head{0 if shared_head else 2}/weight"
    assert torch.equal(learner.network.tensors[last], free.network.tensors[last]) != shared_head


def test_without_weight_transfer_every_network_starts_anew():
    def moved(weight):
        still = replace(RECIPE, learning_rate=1e-12)
        one, other = each_task(make(small_mlp(), still, form="mean", weight=weight, l2=1e-9, drop=0), 0, 1)
        return (one["layer/fc1/rows"] - other["layer/fc1/rows"]).abs().max()

    assert moved(weight=True) < 1e-6
    assert moved(weight=False) > 0.1


@pytest.mark.parametrize("recipe", [RECIPE, SGD], ids=["adam", "sgd"])
def test_the_stronger_l2_transfer_the_nearer_networks_stay(recipe):
    def distance(strength):
        one, other = each_task(make(small_mlp(), recipe, form="mean", l2=strength, drop=0), 0, 1)
        return sum((one[name] - other[name]).norm().item() for name in one)

    distances = [distance(strength) for strength in (0, 0.1, 10, 1e12)]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 1e-4 < distances[0]


@pytest.mark.parametrize("module", NETWORKS.values(), ids=NETWORKS)
def test_a_dropped_unit_has_the_earlier_network_s_weights(module):
    network, earlier = PlainNetwork(trace(module())), PlainNetwork(trace(module()))
    for seed, one in enumerate((network, earlier)):
        one.add_task(3, seed=seed)
    x = torch.randn(64, 2, 6, 6, generator=torch.Generator().manual_seed(0))
    dropping, layer = AroundEarlier(network, earlier.tensors, 0.25), network.graph.layers[0]
    assert dropping.draws
    value = _Value(shared=x if layer.kernel else x.flatten(1))
    torch.manual_seed(0)
    found = dropping._layer(layer, value, "head0", skip_frozen=False).own[0]
    now, then = (one.trainable()._layer(layer, value, "head0", skip_frozen=False).own[0] for one in (network, earlier))
    wide = found.flatten(2) if found.dim() > 2 else found.unsqueeze(2)
    kept, dropped = (
        (found - wanted).abs().reshape(wide.shape).amax(2) < 1e-4 for wanted in (then + (now - then) / 0.75, then)
    )
    assert (kept ^ dropped).all(), "a unit is dropped for a sample, at all its places"
    assert 0.6 < kept.double().mean() < 0.9


def test_drop_transfer_is_over_once_a_network_is_trained():
    network = PlainNetwork(trace(small_cnn()))
    network.add_task(3, seed=0)
    dropping = AroundEarlier(network, {name: torch.zeros_like(tensor) for name, tensor in network.tensors.items()}, 0.5)
    x = torch.randn(9, 2, 6, 6, generator=torch.Generator().manual_seed(0))
    assert not torch.equal(dropping(x), dropping(x))
    dropping.training = False
    network.take(dropping)  # running statistics moved
    torch.testing.assert_close(dropping(x).detach()[0], network.predict(x, 0))


def test_drop_transfer_changes_every_task_but_the_first():
    dropped, plain = (each_task(make(small_mlp(), l2=1e-9, drop=drop), 0, 1) for drop in (0.5, 0))
    assert torch.equal(dropped[0]["layer/fc1/rows"], plain[0]["layer/fc1/rows"])
    assert not torch.equal(dropped[1]["layer/fc1/rows"], plain[1]["layer/fc1/rows"])


@pytest.mark.parametrize(
    ("settings", "copies"),
    [({}, 2), ({"form": "mean"}, 1), ({"form": "mean", "weight": False, **PLAIN}, 0), ({"weight": False, **PLAIN}, 1)],
)
def test_it_counts_the_numbers_that_it_keeps_to_merge_with(settings, copies):
    learner = make(small_mlp(), **settings)
    for task in range(3):
        learn(learner, task)
        assert learner.extra_numbers() == copies * learner.parameters()["shared"]


@pytest.mark.parametrize(
    "change",
    [
        lambda kept: kept.pop("information/layer/fc1/bias"),
        lambda kept: kept.pop("latest/layer/fc1/bias"),
        lambda kept: kept.update({"latest/head0/weight": torch.zeros(3, 5)}),
        lambda kept: kept["information/layer/fc1/rows"].neg_(),
        lambda kept: kept["latest/layer/fc1/rows"].fill_(torch.nan),
        lambda kept: kept.clear(),
    ],
    ids=["missing", "missing", "a head", "negative", "not finite", "nothing"],
)
def test_saved_tensors_that_cannot_be_are_refused(change):
    learner = learn(make(small_mlp()), 0)
    kept = {name: tensor.clone() for name, tensor in split_extra(learner.state().tensors)[0].items()}
    learner._check_kept(State({}, kept), learner.seen)
    change(kept)
    with pytest.raises(NetworkError, match="tensor '"):
        learner._check_kept(State({}, kept), learner.seen)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("form", "median"), ("newest", 0),
        ("newest", 1.1), ("weight", 1), ("l2", -1), ("l2", 1e13), ("drop", 1), ("drop", -0.1), ("labels", "all"),
        ("fisher_samples", 0), ("shared_head", "no"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(name, value):
    with pytest.raises(ConfigError, match=rf"imm\.{name} is .*; it must be"):
        IMMSettings(**{name: value})

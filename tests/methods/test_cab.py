"""CAB: what is free after earlier tasks, and that no step leaves it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from method_examples import RECIPE, hard_stream, small_cnn, small_mlp

from bocl.errors import ConfigError, NetworkError, WorkError
from bocl.methods import cab
from bocl.methods.cab import CAB, CABSettings, free_share
from bocl.methods.method import State, split_extra
from bocl.methods.sn import SN, SNSettings
from bocl.networks.plain import plain_logits
from bocl.training.recipe import Recipe

PLAIN = Recipe("sgd", learning_rate=0.05, momentum=0, weight_decay=0, batch_size=16, epochs=4)
RECIPES = {
    "plain": PLAIN,
    "momentum": replace(PLAIN, momentum=0.9),
    "decay": replace(PLAIN, weight_decay=0.1),
    "adam": RECIPE,
}
NETWORKS = {"mlp": small_mlp, "cnn": small_cnn}


def make(network, recipe=PLAIN, **settings):
    return CAB(network, settings=CABSettings(**settings), recipe=recipe, device="cpu")


def learn(learner, *tasks):
    for task in tasks:
        learner.learn(hard_stream()[task])
    return learner


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
@pytest.mark.parametrize("shared_head", [False, True])
@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_with_nothing_occupied_it_trains_as_the_recipe_does(network, shared_head, recipe):
    tasks = (1, 3) if shared_head else (0, 1, 2)
    held = learn(make(network(), recipe, aperture=0, shared_head=shared_head), *tasks)
    free = learn(SN(network(), settings=SNSettings(shared_head), recipe=recipe, device="cpu"), *tasks)
    for name, tensor in free.network.tensors.items():
        torch.testing.assert_close(held.network.tensors[name], tensor, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_with_everything_occupied_nothing_that_tasks_share_moves(network, recipe):
    learner = learn(make(network(), recipe), 0)
    before = learner.network
    learner.occupied = {
        name: 1e30 * torch.eye(r.shape[-1]).double().expand_as(r) for name, r in learner.occupied.items()
    }
    learn(learner, 1)
    for name, tensor in before.tensors.items():
        assert before.is_shared(name) <= torch.equal(learner.network.tensors[name], tensor), name


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_with_a_large_aperture_earlier_inputs_get_the_answers_they_got(recipe):
    learner = learn(make(small_mlp(), recipe, aperture=1e4, shared_head=True), 1)
    x = hard_stream()[1].train.raw
    before, weights = learner.predict(x, 0), learner.network.tensors
    learn(learner, 3)
    torch.testing.assert_close(learner.predict(x, 0), before, rtol=0, atol=1e-4)
    moved = (learner.network.tensors["layer/fc1/rows"] - weights["layer/fc1/rows"]).norm()
    assert moved > 0.1, "28 samples leave most of the 73 directions free"


def test_the_larger_the_aperture_the_less_is_forgotten():
    def drift(aperture):
        learner = learn(make(small_mlp(), aperture=aperture), 0)
        x = hard_stream()[0].train.raw
        before = learner.predict(x, 0)
        return (learn(learner, 1).predict(x, 0) - before).norm().item()

    drifts = [drift(aperture) for aperture in (0, 0.3, 1, 10, 1000)]
    assert drifts == sorted(drifts, reverse=True)
    assert drifts[-1] < 0.1 * drifts[0]


def test_one_step_of_plain_sgd_is_the_equation():
    learner = learn(make(small_mlp(), aperture=0.7, shared_head=True), 1)
    task, before = hard_stream()[3], learner.network.tensors
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in before.items()}
    F.cross_entropy(plain_logits(learner.graph, leaves, task.train.inputs(), "head0"), task.train.labels).backward()
    occupied = learner.occupied
    learner.recipe = replace(PLAIN, batch_size=len(task.train.labels), epochs=1)
    learner.learn(task)
    for weight, (r,) in occupied.items():
        bias = weight.rpartition("/")[0] + "/bias"
        conceptor = r @ torch.linalg.inv(r + 0.7**-2 * torch.eye(len(r)))
        gradient = torch.cat([leaves[weight].grad, leaves[bias].grad[:, None]], 1).double()
        step = -0.05 * gradient @ (torch.eye(len(r)) - conceptor)
        now = learner.network.tensors
        found = torch.cat([now[weight] - before[weight], (now[bias] - before[bias])[:, None]], 1)
        torch.testing.assert_close(found.double(), step, rtol=0, atol=1e-7)
        assert step.norm() > 1e-3


def test_the_conceptor_of_the_sum_is_that_of_one_or_the_other():
    draw, one = torch.Generator().manual_seed(0), torch.eye(6, dtype=torch.float64)
    both = [x.T @ x / 9 for x in torch.randn(2, 9, 6, generator=draw, dtype=torch.float64)]
    first, second = (r @ torch.linalg.inv(r + one / 4) for r in both)
    neither = torch.linalg.inv(torch.linalg.inv(one - first) + torch.linalg.inv(one - second) - one)
    torch.testing.assert_close(free_share(sum(both)[None], 2.0)[0], neither.float())


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1.0, 1e12, 1e60])
def test_the_free_share_is_finite_whatever_the_activations(scale):
    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(0)).double()
    free = free_share(scale * (x.T @ x)[None], 1e4)
    assert free.isfinite().all()
    assert torch.linalg.eigvalsh(free).max() < 1 + 1e-5


def test_it_adds_what_each_task_occupies(monkeypatch):
    asked = []

    def spy(network, maps, x, task):
        asked.append((len(x), task))
        return {entry.weight: torch.ones(entry.groups, entry.columns, entry.columns).double() for entry in maps}

    monkeypatch.setattr(cab, "correlations", spy)
    learner = learn(make(small_mlp(), samples=20, aperture=0.1), 0, 1, 2)
    assert asked == [(20, 0), (20, 1), (20, 2)]
    assert {name: r.flatten()[0].item() for name, r in learner.occupied.items()} == {
        "layer/fc1/rows": 3,
        "layer/fc2/rows": 3,
    }
    assert learner.extra_numbers() == 73**2 + 7**2


def test_a_shared_head_is_held_too():
    assert "head0/weight" in learn(make(small_mlp(), shared_head=True), 1, 3).occupied
    assert not any(name.startswith("head") for name in learn(make(small_mlp()), 0, 1).occupied)


def test_activations_that_are_not_finite_are_a_failed_training(monkeypatch):
    monkeypatch.setattr(cab, "correlations", lambda *_: {"w": torch.full((1, 2, 2), torch.inf)})
    with pytest.raises(WorkError, match="task 'task 1': what layers read is not finite"):
        learn(make(small_mlp()), 0)


@pytest.mark.parametrize(
    "change",
    [
        lambda kept: kept.pop("correlation/layer/fc1/rows"),
        lambda kept: kept.update({"correlation/head0/weight": torch.zeros(1, 6, 6).double()}),
        lambda kept: kept["correlation/layer/fc1/rows"].neg_(),
        lambda kept: kept["correlation/layer/fc1/rows"].fill_(torch.nan),
        lambda kept: kept.update({name: tensor.float() for name, tensor in kept.items()}),
        lambda kept: kept.update({name: tensor[0] for name, tensor in kept.items()}),
        lambda kept: kept.clear(),
    ],
    ids=["missing", "a head", "negative", "not finite", "single precision", "shape", "nothing"],
)
def test_saved_correlations_that_cannot_be_are_refused(change):
    learner = learn(make(small_mlp()), 0)
    kept = {name: tensor.clone() for name, tensor in split_extra(learner.state().tensors)[0].items()}
    learner._check_kept(State({}, kept), learner.seen)
    change(kept)
    with pytest.raises(NetworkError, match="correlation"):
        learner._check_kept(State({}, kept), learner.seen)


@pytest.mark.parametrize(
    ("name", "value"), [("aperture", -1), ("aperture", 1e5), ("aperture", "a"), ("samples", 0), ("shared_head", "no")]
)
def test_settings_that_cannot_be_are_refused(name, value):
    with pytest.raises(ConfigError, match=rf"cab\.{name} is .*; it must be"):
        CABSettings(**{name: value})

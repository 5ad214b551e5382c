"""What PackNet, SupSup and WSN have in common: a bit per weight and task, and weights that no later task changes."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from math import prod

import pytest
import torch
from method_examples import RECIPE, hard_stream, small_cnn, small_mlp
from torch import nn

from bocl.errors import ConfigError, NetworkError
from bocl.methods.method import State
from bocl.methods.packnet import PackNet
from bocl.methods.saving import load, save_added
from bocl.methods.subnetworks import try_densities
from bocl.methods.supsup import SupSup, SupSupSettings
from bocl.methods.wsn import WSN, WSNSettings
from bocl.networks.bits import unpacked
from bocl.networks.by_task import join_tensors
from bocl.records.record import StoredFile

METHODS = (PackNet, SupSup, WSN)
INPUTS = [torch.randn(size, 2, 6, 6, generator=torch.Generator().manual_seed(size)) for size in (1, 7, 128)]
RECIPES = {
    "adam": replace(RECIPE, weight_decay=0.1),
    "adamw": replace(RECIPE, optimiser="adamw", weight_decay=0.5),
    "momentum": replace(RECIPE, optimiser="sgd", momentum=0.99, weight_decay=0.1, schedule="cosine"),
    "averaged": replace(RECIPE, average="exponential", weight_decay=0.1),
    "patient": replace(RECIPE, patience=1, weight_decay=0.1),
}


@pytest.fixture(params=METHODS, ids=lambda kind: kind.name)
def kind(request):
    """Return each of the methods in turn."""
    return request.param


def made(kind, network=small_mlp, recipe=RECIPE, **options):
    return kind(network(), recipe=recipe, seed=0, device="cpu", **options)


def after(kind, tasks, network=small_mlp, **options):
    learner = made(kind, network, **options)
    for index in range(tasks):
        learner.learn(hard_stream()[index])
    return learner


def odd_network() -> nn.Module:
    """Return a network with grouped and depthwise convolutions, a group norm and layers without a bias."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, bias=False), nn.GroupNorm(2, 4), nn.ReLU(), nn.Conv2d(4, 4, 3, groups=4), nn.ReLU(),
        nn.Conv2d(4, 6, 1, groups=2), nn.BatchNorm2d(6), nn.Dropout(0.1), nn.Flatten(), nn.Linear(24, 3),
    )  # fmt: skip


@pytest.mark.parametrize("network", [small_mlp, small_cnn, odd_network])
def test_old_tasks_say_the_same_bits_for_ever(kind, network):
    learner, said = made(kind, network), []
    for index in range(4):
        learner.learn(hard_stream()[index])
        said.append([learner.predict(x, index) for x in INPUTS])
        for task in range(index + 1):
            for x, before in zip(INPUTS, said[task], strict=True):
                assert torch.equal(learner.predict(x, task), before)
    assert not kind.forgets


@pytest.mark.parametrize("recipe", RECIPES)
def test_no_momentum_and_no_decay_moves_a_weight_that_is_in_use(kind, recipe):
    learner = after(kind, 1, small_cnn, recipe=RECIPES[recipe])
    used, weights = learner.network.used, learner.network.weights
    x = INPUTS[1]
    before = learner.predict(x, 0)
    for index in (1, 2):
        learner.learn(hard_stream()[index])
    for name, old in weights.items():
        assert used[name].any()
        assert torch.equal(learner.network.weights[name][used[name]], old[used[name]])
    assert any(not torch.equal(learner.network.mask(2)[name], learner.network.mask(0)[name]) for name in used)
    learner.network._views.clear()  # made again from what is kept
    assert torch.equal(learner.predict(x, 0), before)


def test_a_task_computes_with_its_own_weights_and_zeros(kind):
    learner = after(kind, 2, small_cnn)
    for task in range(2):
        single = learner.network.single_task(task)
        assert single.kind == "compact"
        for name, mask in learner.network.mask(task).items():
            weight = single.tensors[f"layer/{name}/weight"]
            assert weight.is_contiguous()
            assert (weight[~mask] == 0).all()
            assert torch.equal(weight[mask], learner.network.weights[name][mask])


def test_masks_count_as_the_memory_they_take(kind):
    learner = after(kind, 3)
    layers = [72 * 6, 6 * 5]
    per_task = sum(-(-size // 8) for size in layers)
    bits = [per_task * (2 if kind is SupSup and task == 0 else 1) for task in range(3)]
    assert learner.parameters()["masks"] == sum(-(-size // 4) for size in bits)
    values = sum(int(used.sum()) for used in learner.network.used.values())
    assert learner.parameters()["shared"] == 3 * (6 + 5) + (0 if kind is SupSup else values)
    assert 0 < learner.network.coded_masks() <= learner.parameters()["masks"]


def test_a_saved_task_holds_only_what_it_added(kind, tmp_path):
    learner = made(kind, small_cnn)
    learner.learn(hard_stream()[0])
    learner.save(tmp_path / "task-01")
    learner.learn(hard_stream()[1])
    first = StoredFile("checkpoints/task-01/model.json", 0, sha256(tmp_path / "task-01/model.json"))
    save_added(learner, tmp_path / "task-02", first)
    loaded = load(tmp_path / "task-02", device="cpu")
    for task in range(2):
        assert torch.equal(loaded.predict(INPUTS[1], task), learner.predict(INPUTS[1], task))
    for name, weight in learner.network.weights.items():
        assert torch.equal(loaded.network.weights[name], weight)
    parts = [learner.network.stored(task, task + 1)[1] for task in range(2)]
    assert parts[0].keys().isdisjoint(parts[1])
    whole = learner.network.stored()[1]
    assert (parts[0] | parts[1]).keys() == whole.keys() == join_tensors(learner.network.tasks).keys()


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def take(state):
    learner = made(WSN)
    learner.check_state(state)
    learner.restore(state)


def test_what_is_saved_is_refused_where_masks_and_weights_do_not_fit():
    learner = after(WSN, 2)
    state = learner.state()

    def refused(message, facts=None, tensors=None):
        broken = State({**state.facts, **(facts or {})}, {**state.tensors, **(tensors or {})})
        with pytest.raises(NetworkError, match=message):
            take(broken)

    counts = state.facts["first_used"]
    refused("must have 2 numbers for each of the 2 tasks", {"first_used": counts[:1]})
    refused("must have 2 numbers for each of the 2 tasks", {"first_used": [[1], [1]]})
    refused("has 503 weights of layer 'fc1', which has 432", {"first_used": [[3, 1], [500, 1]]})
    refused("1/layer/fc1/values' has shape", {"first_used": [counts[0], [counts[1][0] + 1, counts[1][1]]]})
    mask = state.tensors["1/bits/fc1/mask"]
    refused("new weights in layer 'fc1', but its mask has", tensors={"1/bits/fc1/mask": torch.zeros_like(mask)})
    refused("is torch.float32, not torch.uint8", tensors={"1/bits/fc1/mask": mask.float()})
    refused("is torch.uint8, not torch.float32", tensors={"1/layer/fc1/bias": mask[:6]})
    refused("score/fc1. has shape", tensors={"memory/score/fc1": torch.zeros(3)})


def test_bits_are_kept_eight_to_a_byte(kind):
    learner = after(kind, 1, odd_network)
    for name, mask in learner.network.mask(0).items():
        bits = learner.state().tensors[f"0/bits/{name}/mask"]
        assert bits.dtype == torch.uint8
        assert bits.shape == (-(-mask.numel() // 8),)
        assert torch.equal(unpacked(bits, tuple(mask.shape)), mask)


@pytest.mark.parametrize(("kind", "settings"), [(WSN, WSNSettings), (SupSup, SupSupSettings)])
def test_a_task_uses_the_share_of_weights_that_is_set(kind, settings):
    for density in (0.01, 0.2, 1.0):
        learner = after(kind, 2, small_cnn, settings=settings(density))
        for task in range(2):
            for mask in learner.network.mask(task).values():
                assert int(mask.sum()) == max(1, round(density * mask.numel()))


@pytest.mark.parametrize(("kind", "settings"), [(WSN, WSNSettings), (SupSup, SupSupSettings)])
def test_several_densities_are_trained_together_as_each_by_itself(kind, settings):
    learner = after(kind, 1)
    before = learner.state()
    densities = (0.2, 0.5, 1.0)
    together = try_densities(learner, hard_stream()[1], densities)
    assert all(torch.equal(tensor, before.tensors[name]) for name, tensor in learner.state().tensors.items())
    assert len(learner.seen) == 1
    alone = []
    for density in densities:
        other = after(kind, 1)  # the first task by the usual density
        other.settings = settings(density)
        alone.append(other.learn(hard_stream()[1]).validation_accuracy)
    assert together == pytest.approx(alone)
    assert len(set(alone)) > 1
    with pytest.raises(ConfigError, match="densities"):
        try_densities(learner, hard_stream()[1], [0.5, 1.5])


def test_weights_in_all_are_those_of_the_layers(kind):
    learner = made(kind, odd_network)
    modules = [module for module in odd_network() if isinstance(module, nn.Conv2d)]
    assert [tuple(weight.shape) for weight in learner.network.weights.values()] == [
        tuple(module.weight.shape) for module in modules
    ]
    assert prod(modules[1].weight.shape) == 36

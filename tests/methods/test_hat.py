"""HAT: what a fully open mask freezes, how far the rest drifts, and the gradients of the gates."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from method_examples import RECIPE, hard_stream, small_mlp
from torch import nn

from bocl.errors import ConfigError, NetworkError
from bocl.methods.hat import HAT, HATSettings, gate_hooks
from bocl.networks.architectures import mlp
from bocl.networks.gated import GatedNetwork, held
from bocl.networks.trace import trace

SGD = replace(RECIPE, optimiser="sgd", learning_rate=0.05)
RECIPES = {"adam": RECIPE, "sgd": SGD, "averaged": replace(SGD, average="last", weight_decay=0.1)}


def wide_cnn():
    """Return conv, batch norm, pool, linear, head with units to spare: groups of 12 and 16."""
    return nn.Sequential(
        nn.Conv2d(2, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(108, 16), nn.ReLU(), nn.Linear(16, 3),
    )  # fmt: skip


NETWORKS = {"mlp": lambda: mlp(72, [24, 16], 3), "cnn": wide_cnn}


def make(network, recipe=RECIPE, seed=0, **settings):
    return HAT(network, settings=HATSettings(**settings), recipe=recipe, device="cpu", seed=seed)


def learn(learner, *tasks):
    for task in tasks:
        learner.learn(hard_stream()[task])
    return learner


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_a_fully_open_mask_freezes_a_weight_to_the_bit(network, recipe):
    learner = learn(make(network(), recipe, sparsity=0.01), 0)
    before, shares = learner.network.layers, held(learner.graph, learner.network.taken())
    learn(learner, 1, 2)
    frozen = moved = 0
    for name, tensor in before.items():
        full, now = shares[name].expand_as(tensor) == 1, learner.network.layers[name]
        assert torch.equal(now[full], tensor[full]), name
        frozen, moved = frozen + full.sum(), moved + (now != tensor)[~full].sum()
    assert frozen > 10
    assert moved > 10


def test_weight_decay_is_left_out():
    plain, decaying = (learn(make(small_mlp(), replace(RECIPE, weight_decay=decay)), 0, 1) for decay in (0, 0.5))
    for name, tensor in plain.state().tensors.items():
        assert torch.equal(decaying.state().tensors[name], tensor), name


def drift(network, steepness):
    """Return how far the first task's logits moved, as a share of their size, after two more tasks."""
    learner = learn(make(network, steepness=steepness), 0)
    x = hard_stream()[0].validation.raw
    before = learner.predict(x, 0)
    after = learn(learner, 1, 2).predict(x, 0)
    return ((after - before).norm() / before.norm()).item()


def test_old_logits_drift_and_less_with_steeper_gates():
    drifts = [drift(mlp(72, [24, 16], 3), steepness) for steepness in (1, 20, 400)]
    assert drifts == sorted(drifts, reverse=True)
    assert drifts[0] > 0.1
    assert drifts[-1] < 0.01


def test_gates_that_are_binary_forget_nothing():
    """Which shows that no other way is left by which a later task could reach an earlier one."""
    learner = learn(make(wide_cnn()), 0)
    own = learner.network.own[0]
    for name in own:
        if name.startswith("gate/"):
            own[name] = (own[name] > 0.5).float()
    learner.network._views = {}
    x = hard_stream()[0].validation.raw
    before = learner.predict(x, 0)
    assert torch.equal(learn(learner, 1, 2).predict(x, 0), before)


@pytest.mark.parametrize("taken", [False, True])
def test_the_gradient_of_a_gate_is_that_of_loss_and_price_without_the_annealing(taken):
    graph, steepness, sparsity, steps = trace(small_mlp()), 30.0, 0.7, 4
    stack = GatedNetwork(graph).start(3, steepness=steepness, steps=steps, seed=0)
    draw = torch.Generator().manual_seed(0)
    earlier = {group.name: torch.rand(group.width, generator=draw) for group in graph.groups} if taken else {}
    hooks = gate_hooks(stack, earlier, sparsity)
    stack.taken += 2
    s = 1 / steepness + (steepness - 1 / steepness) * 2 / (steps - 1)
    x, labels = torch.randn(6, 2, 6, 6, generator=draw), torch.arange(6) % 3
    F.cross_entropy(stack(x)[0], labels).backward()
    found = {name: tensor.grad.clone() for name, tensor in stack.embeddings.items()}
    hooks.adjust_gradients(stack.parameters)
    es = {name: tensor.detach().clone().requires_grad_() for name, tensor in stack.embeddings.items()}
    free = {name: 1 - earlier.get(name, torch.zeros(e.shape[1])) for name, e in es.items()}
    price = sum((torch.sigmoid(s * e) * free[name]).sum() for name, e in es.items())
    (sparsity * price / sum(units.sum() for units in free.values())).backward()
    for name, e in es.items():
        bounded = (s * e.detach()).clamp(-50, 50)
        undone = steepness * (torch.cosh(bounded) + 1) / (s * (torch.cosh(e.detach()) + 1))
        torch.testing.assert_close(stack.embeddings[name].grad, (found[name] + e.grad) * undone)
    assert stack.taken.item() == 3


def test_a_step_is_masked_by_both_ends_of_a_weight():
    graph = trace(small_mlp())
    stack = GatedNetwork(graph).start(3, steepness=30.0, steps=4, seed=0)
    first, second = (group.name for group in graph.groups)
    taken = {first: torch.linspace(0, 1, 6), second: torch.linspace(1, 0, 5)}
    hooks = gate_hooks(stack, taken, 0.0)
    for tensor in stack.parameters.values():
        tensor.grad = torch.ones_like(tensor)
    before = {name: tensor.detach().clone() for name, tensor in stack.parameters.items()}
    hooks.update(torch.optim.SGD(stack.parameters.values(), 0.5), stack.parameters)
    moved = {name: (before[name] - tensor.detach())[0] for name, tensor in stack.parameters.items()}
    rows = moved[f"layer/{second}/rows"]
    both = torch.minimum(taken[second][:, None], taken[first][None])
    torch.testing.assert_close(rows, 0.5 * (1 - both), rtol=0, atol=1e-6)
    torch.testing.assert_close(moved[f"layer/{second}/bias"], 0.5 * (1 - taken[second]), rtol=0, atol=1e-6)
    alone = 0.5 * (1 - taken[first])[:, None].expand(6, 72)  # raw input has no gate
    torch.testing.assert_close(moved[f"layer/{first}/rows"], alone, rtol=0, atol=1e-6)
    torch.testing.assert_close(moved["head/weight"], torch.full((3, 5), 0.5))


def test_embeddings_stay_within_their_bounds():
    graph = trace(small_mlp())
    stack = GatedNetwork(graph).start(3, steepness=30.0, steps=4, seed=0)
    for tensor in stack.parameters.values():
        tensor.grad = torch.ones_like(tensor)
    hooks = gate_hooks(stack, {}, 0.0)
    hooks.update(torch.optim.SGD(stack.parameters.values(), 1e9), stack.parameters)
    assert all((tensor == -6).all() for tensor in stack.embeddings.values())


def test_a_price_closes_units():
    def opened(sparsity):
        learner = make(mlp(72, [24, 16], 3), sparsity=sparsity)
        return sum(learner.learn(hard_stream()[0]).units["open"])

    assert opened(1e3) < opened(0)


def test_it_says_how_many_units_are_open_and_taken():
    learner = make(mlp(72, [24, 16], 3))
    for task in range(3):
        units = learner.learn(hard_stream()[task]).units
        gates = learner.network.gates(task)
        assert units["open"] == tuple(int((gate > 0.5).sum()) for gate in gates.values())
        assert all(own <= all_ <= width for own, all_, width in zip(*units.values(), (24, 16), strict=True))


def test_a_network_whose_units_are_not_apart_is_refused():
    with pytest.raises(NetworkError, match="GroupNorm"):
        make(nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(64, 3)))


@pytest.mark.parametrize(
    ("name", "value"),
    [("steepness", 0.5), ("steepness", 1e7), ("sparsity", -1), ("sparsity", "a"), ("steepness", None)],
)
def test_settings_that_cannot_be_are_refused(name, value):
    with pytest.raises(ConfigError, match=rf"hat\.{name} is .*; it must be"):
        HATSettings(**{name: value})

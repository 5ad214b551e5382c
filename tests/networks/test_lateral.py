"""Progressive columns: frozen, fed by those before them, and what the equation says."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from network_examples import BATCHES, IMAGE, NETWORKS, conv_net, hash_of, make_task, one_group, small_mlp
from torch import nn

from bocl.networks.architectures import lenet, mlp
from bocl.networks.growth import count_tensors
from bocl.networks.lateral import LateralNetwork, narrowed
from bocl.networks.trace import trace
from bocl.training.recipe import Recipe
from bocl.training.trainer import train

RECIPE = Recipe("adam", learning_rate=0.01, batch_size=8, epochs=1)
GENERATOR = torch.Generator().manual_seed(7)
INPUTS = [torch.randn(size, *IMAGE, generator=GENERATOR) for size in BATCHES]


def add_column(network: LateralNetwork, classes: int = 3) -> None:
    """Train a column on random samples and commit it."""
    index = len(network.columns)
    column = network.next_column(classes, seed=index)
    train(column, [make_task(classes, index)], RECIPE, seed=index)
    network.commit(column.tensors)


def columns(module: nn.Module, count: int, ratio: float = 0.5) -> LateralNetwork:
    network = LateralNetwork(trace(module), ratio=ratio)
    for number in range(count):
        add_column(network, 3 + number % 2)
    return network


@pytest.mark.parametrize("name", NETWORKS)
def test_old_columns_keep_their_bits_for_ever(name):
    network = LateralNetwork(trace(NETWORKS[name]()), ratio=0.5)
    logits: list[list[torch.Tensor]] = []
    hashes: list[dict[str, str]] = []
    for task in range(4):
        add_column(network, 3 + task % 2)
        logits.append([network.predict(x, task) for x in INPUTS])
        hashes.append({key: hash_of(tensor) for key, tensor in network.columns[task].items()})
        for old in range(task + 1):
            for x, before in zip(INPUTS, logits[old], strict=True):
                assert torch.equal(network.predict(x, old), before), f"task {old} after {task}, batch of {len(x)}"
            assert hashes[old] == {key: hash_of(tensor) for key, tensor in network.columns[old].items()}


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_reach_the_whole_new_column_and_nothing_else(name):
    network = columns(NETWORKS[name](), 2, ratio=1.0)
    for column in network.columns:
        for tensor in column.values():
            tensor.requires_grad_()
    column = network.next_column(3, seed=5)
    column(INPUTS[1]).square().sum().backward()
    assert all(tensor.grad is None for old in network.columns for tensor in old.values())
    assert all(tensor.grad is not None for tensor in column.parameters.values())
    laterals = {key: tensor for key, tensor in column.parameters.items() if key.startswith("lateral/")}
    assert laterals
    assert all(tensor.grad.abs().sum() > 0 for key, tensor in laterals.items() if key.endswith("expand.weight"))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_column_reads_every_column_before_it(name):
    network = columns(NETWORKS[name](), 3)
    before = network.predict(INPUTS[2], 2)
    last, scale = f"layer/{network.graph.layers[-1].name}/rows", f"lateral/{network.graph.head.name}/scale"
    for silent in (0, 1):
        other = LateralNetwork(network.graph, ratio=network.ratio)
        other.columns = [dict(column) for column in network.columns]
        other.columns[silent][last] = torch.zeros_like(other.columns[silent][last])
        assert not torch.equal(other.predict(INPUTS[2], 2), before)
        other.columns = [dict(column) for column in network.columns]
        other.columns[2][scale] = torch.where(torch.arange(2) == silent, 0.0, other.columns[2][scale])
        assert not torch.equal(other.predict(INPUTS[2], 2), before)


def test_an_mlp_computes_the_equation():
    network = columns(small_mlp(), 3, ratio=0.5)
    x = INPUTS[1].flatten(1)
    hidden: list[list[torch.Tensor]] = []  # of each column: after fc1, after fc2
    for weights in network.columns:

        def lateral(layer: str, level: int, w: dict[str, torch.Tensor] = weights) -> torch.Tensor | float:
            if not hidden:
                return 0.0
            scales = w[f"lateral/{layer}/scale"]
            old = torch.cat([scale * column[level] for scale, column in zip(scales, hidden, strict=True)], 1)
            reduced = torch.relu(old @ w[f"lateral/{layer}/reduce.weight"].T + w[f"lateral/{layer}/reduce.bias"])
            return reduced @ w[f"lateral/{layer}/expand.weight"].T

        first = torch.relu(x @ weights["layer/fc1/rows"].T + weights["layer/fc1/bias"])
        second = torch.relu(first @ weights["layer/fc2/rows"].T + weights["layer/fc2/bias"] + lateral("fc2", 0))
        logits = second @ weights["head/weight"].T + weights["head/bias"] + lateral("head", 1)
        task = len(hidden)
        hidden.append([first, second])
        torch.testing.assert_close(network.predict(INPUTS[1], task), logits)
    assert network.columns[2]["lateral/fc2/reduce.weight"].shape == (3, 12)


def test_convolutions_have_adapters_of_one_pixel():
    network = columns(conv_net(), 2, ratio=0.5)
    old, new = network.columns
    x = INPUTS[1]

    def first(weights):
        return F.max_pool2d(torch.relu(F.conv2d(x, weights["layer/0/rows"], weights["layer/0/bias"], padding=1)), 2)

    def adapted(layer, value):
        scale, reduce = new[f"lateral/{layer}/scale"], new[f"lateral/{layer}/reduce.weight"][..., None, None]
        return torch.relu(F.conv2d(scale * value, reduce, new[f"lateral/{layer}/reduce.bias"]))

    old_1, new_1 = first(old), first(new)
    old_2 = torch.relu(F.conv2d(old_1, old["layer/3/rows"], old["layer/3/bias"]))
    new_2 = F.conv2d(new_1, new["layer/3/rows"], new["layer/3/bias"])
    new_2 = torch.relu(new_2 + F.conv2d(adapted("3", old_1), new["lateral/3/expand.weight"]))
    old_3 = torch.relu(F.linear(old_2.flatten(1), old["layer/6/rows"], old["layer/6/bias"]))
    new_3 = F.linear(new_2.flatten(1), new["layer/6/rows"], new["layer/6/bias"])
    new_3 = torch.relu(new_3 + F.linear(adapted("6", old_2).flatten(1), new["lateral/6/expand.weight"]))
    logits = F.linear(new_3, new["head/weight"], new["head/bias"])
    logits += F.linear(adapted("8", old_3[..., None, None]).flatten(1), new["lateral/8/expand.weight"])
    torch.testing.assert_close(network.predict(x, 1), logits)
    assert not any(key.startswith("lateral/0/") for key in new)  # raw input has no adapter


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_precomputed_is_what_would_be_computed(name):
    network = columns(NETWORKS[name](), 2)
    column = network.next_column(3, seed=5)
    column.training = False
    precomputed = column.precompute(INPUTS[1])
    assert len(precomputed) == len(INPUTS[1])
    torch.testing.assert_close(column(INPUTS[1], 2, precomputed), column(INPUTS[1], 2))
    shuffled = torch.tensor([3, 0, 5])
    torch.testing.assert_close(column(INPUTS[1][shuffled], 2, precomputed[shuffled]), column(INPUTS[1][shuffled], 2))
    assert network.next_column(3, seed=5).precompute(INPUTS[1]).shape == precomputed.shape


def test_a_first_column_has_nothing_before_it():
    column = LateralNetwork(trace(small_mlp()), ratio=1.0).next_column(3, seed=0)
    assert column.precompute(INPUTS[1]) is None
    assert not any(name.startswith("lateral/") for name in column.parameters)


def test_a_narrow_column_has_fewer_parameters():
    graph = trace(lenet())
    half = narrowed(graph, (0.5,) * 4)
    assert half.widths == (3, 8, 60, 42)
    assert narrowed(graph, (1.0,) * 4) == graph
    assert narrowed(graph, (0.001,) * 4).widths == (1, 1, 1, 1)
    assert narrowed(graph, (1.5, 1.0, 1.0, 1.0)).widths == (9, 16, 120, 84)
    network = LateralNetwork(half, ratio=0.5)
    for expected_laterals in (
        0,
        (1 + 2 * 3 + 2 + 8 * 2 * 25)  # conv2: α, V, b, U
        + (1 + 4 * 8 + 4 + 60 * 4 * 25)  # fc1, behind the flatten
        + (1 + 30 * 60 + 30 + 42 * 30)  # fc2
        + (1 + 21 * 42 + 21 + 10 * 21),  # head
    ):
        tensors = network.next_column(10, seed=0).tensors
        own = (3 * 75 + 3) + (8 * 75 + 8) + (60 * 200 + 60) + (42 * 60 + 42)
        counted = count_tensors(tensors)
        assert counted == {"shared": own + expected_laterals, "heads": 430, "attention": 0, "norms": 0}
        network.commit(tensors)


def test_a_narrow_group_norm_still_divides():
    module = nn.Sequential(
        nn.Conv2d(2, 12, 3), nn.GroupNorm(4, 12), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 3)
    )
    graph = narrowed(trace(module), (0.5,))
    assert graph.widths == (8,)
    network = LateralNetwork(graph, ratio=1.0)
    add_column(network)
    add_column(network)
    assert network.predict(INPUTS[0], 1).shape == (1, 3)
    assert narrowed(trace(conv_net(one_group)), (0.5, 0.5, 0.5)).widths == (2, 2, 2)


def test_the_shapes_are_those_of_the_tensors():
    for name in NETWORKS:
        network = columns(NETWORKS[name](), 3)
        wanted = network.stored_shapes({}, [3, 4, 3])
        found = {f"{task}/{key}": tuple(t.shape) for task, old in enumerate(network.columns) for key, t in old.items()}
        assert {key: tuple(map(int, shape)) for key, shape in wanted.items()} == found


def test_committed_columns_are_copies():
    network = columns(mlp(72, [4], 3), 1)
    column = network.next_column(3, seed=1)
    tensors = column.tensors
    network.commit(tensors)
    before = network.predict(INPUTS[1], 1)
    for tensor in (*tensors.values(), *column.parameters.values()):
        tensor.detach().add_(1)
    assert torch.equal(network.predict(INPUTS[1], 1), before)

"""The gates: β = sigmoid(W_s relu(W_c v + b_c) + b_s), per channel or node, never on raw input."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from network_examples import NETWORKS, grown
from torch import nn

from bocl.networks.architectures import mlp
from bocl.networks.attention import NAMES, gate, hidden_width
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.growth import GrowthSettings
from bocl.networks.trace import trace
from paper_settings import PAPER_GROWTH


def weights(channels: int, hidden: int, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((hidden, channels), (hidden,), (channels, hidden), (channels,))
    return {
        f"g/{name}": torch.randn(shape, generator=generator, dtype=torch.float64)
        for name, shape in zip(NAMES, shapes, strict=True)
    }


def reference(v: torch.Tensor, w: dict[str, torch.Tensor]) -> torch.Tensor:
    """β for one sample's v, written out unit by unit."""
    w_c, b_c, w_s, b_s = (w[f"g/{name}"].tolist() for name in NAMES)
    hidden = [
        max(0.0, sum(a * b for a, b in zip(row, v.tolist(), strict=True)) + c) for row, c in zip(w_c, b_c, strict=True)
    ]
    outputs = [sum(a * b for a, b in zip(row, hidden, strict=True)) + c for row, c in zip(w_s, b_s, strict=True)]
    return torch.tensor([1 / (1 + math.exp(-value)) for value in outputs], dtype=torch.float64)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def test_a_gate_over_nodes_is_the_formula():
    x, w = random(4, 5), weights(5, 3)
    expected = torch.stack([row * reference(row, w) for row in x])
    torch.testing.assert_close(gate(x, w, "g"), expected)


@pytest.mark.parametrize("space", [(7,), (2, 3), (2, 3, 2)])
def test_a_gate_over_channels_averages_each_over_space(space):
    x, w = random(4, 5, *space), weights(5, 2)
    shape = (5, *(1,) * len(space))
    expected = torch.stack([each * reference(each.flatten(1).mean(1), w).view(shape) for each in x])
    torch.testing.assert_close(gate(x, w, "g"), expected)


def test_a_gate_over_a_flattened_map_is_the_gate_over_its_channels():
    x, w = random(4, 5, 2, 3), weights(5, 2)
    torch.testing.assert_close(gate(x.flatten(1), w, "g"), gate(x, w, "g").flatten(1))


def test_stacked_gates_are_each_childs_own():
    x, each = random(3, 4, 5, 2, 2), [weights(5, 2, seed) for seed in range(3)]
    stacked = {name: torch.stack([w[name] for w in each]) for name in each[0]}
    expected = torch.stack([gate(x[k], each[k], "g") for k in range(3)])
    torch.testing.assert_close(gate(x, stacked, "g"), expected)


@pytest.mark.parametrize("settings", [PAPER_GROWTH, GrowthSettings(gate_share=1.0)], ids=lambda s: s.gates)
def test_an_empty_batch_can_be_gated(settings):
    assert gate(random(0, 5, 2, 2), weights(5, 2), "g").shape == (0, 5, 2, 2)
    network = grown(NETWORKS["cnn"](), [(1, 0, 1)], settings)
    assert any(name.startswith("gate/") and tensor.numel() for name, tensor in network.growths[1].tensors.items())
    assert network.predict(torch.zeros(0, 2, 6, 6), 1).shape == (0, 4)


def test_a_committed_task_reads_its_gated_input():
    module = nn.Sequential(nn.Flatten(), nn.Linear(72, 6), nn.ReLU(), nn.Linear(6, 3))
    network = grown(module, [(2,)], replace(PAPER_GROWTH, reduction_nodes=2))
    x = torch.randn(5, 2, 6, 6, generator=torch.Generator().manual_seed(0))
    w = network.tasks[1].weights
    hidden = torch.relu(x.flatten(1) @ w["layer/1/weight"].T + w["layer/1/bias"])
    beta = torch.sigmoid(
        torch.relu(hidden @ w["gate/3/reduce.weight"].T + w["gate/3/reduce.bias"]) @ w["gate/3/expand.weight"].T
        + w["gate/3/expand.bias"]
    )
    expected = (hidden * beta) @ w["head/weight"].T + w["head/bias"]
    torch.testing.assert_close(network.predict(x, 1), expected)
    assert not torch.allclose(network.predict(x, 1), hidden @ w["head/weight"].T + w["head/bias"])


@pytest.mark.parametrize("name", NETWORKS)
def test_every_layer_but_those_on_raw_input_and_separate_ones_is_gated_from_the_second_task_on(name):
    graph = trace(NETWORKS[name]())
    network = grown(graph, [(1,) * len(graph.groups)], PAPER_GROWTH)
    gated = [{key.split("/")[1] for key in growth.tensors if key.startswith("gate/")} for growth in network.growths]
    layers = [layer.name for layer in (*graph.layers, graph.head) if not layer.separate]
    assert gated == [set(), set(layers[1:])]


def test_without_attention_no_task_has_gates():
    network = grown(NETWORKS["cnn"](), [(1, 1, 1)], GrowthSettings(attention=False))
    assert not any(key.startswith("gate/") for growth in network.growths for key in growth.tensors)


def test_raw_input_that_passes_a_pool_or_norm_is_not_gated():
    module = nn.Sequential(
        nn.BatchNorm2d(2), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(18, 4), nn.ReLU(), nn.Linear(4, 3)
    )
    network = grown(module, [(1,)], PAPER_GROWTH)
    assert {key.split("/")[1] for key in network.growths[1].tensors if key.startswith("gate/")} == {"5"}


def test_gates_start_open():
    network = grown(NETWORKS["mlp"](), settings=PAPER_GROWTH)
    growth = network.grow([(1, 1)], 3, seeds=[0]).growth(0)
    assert torch.equal(growth.tensors["gate/fc2/expand.bias"], torch.full((7,), 3.0))
    quiet = {key: torch.zeros_like(t) if "bias" not in key else t for key, t in growth.tensors.items()}
    x = torch.ones(1, 7)
    torch.testing.assert_close(gate(x, quiet, "gate/fc2"), torch.full((1, 7), torch.sigmoid(torch.tensor(3.0)).item()))


@pytest.mark.parametrize(
    ("channels", "reduction", "hidden"),
    [(1, 16, 2), (16, 16, 2), (33, 16, 3), (128, 64, 2), (312, 64, 5), (129, 64, 3), (5, 1, 5)],
)
def test_hidden_width_is_two_or_the_ceiling_of_channels_over_reduction(channels, reduction, hidden):
    assert hidden_width(channels, reduction) == max(2, math.ceil(channels / reduction)) == hidden
    assert hidden_width(np.array([channels]), reduction).tolist() == [hidden]


def test_gates_are_reduced_by_kind_of_input():
    settings = replace(PAPER_GROWTH, reduction_nodes=3, reduction_channels=1)
    network = grown(NETWORKS["cnn"](), [(2, 1, 4)], settings)
    hidden = {key.split("/")[1]: len(t) for key, t in network.growths[1].tensors.items() if key.endswith("reduce.bias")}
    assert hidden == {"3": 6, "6": 4, "8": 3}  # channels, channels of a flattened map, nodes


def test_openness_is_the_mean_gate_on_the_units_of_each_growth():
    net = ExpandableNetwork(trace(mlp(4, [3, 2])), PAPER_GROWTH)
    for seed, widths in enumerate([(3, 2), (2, 0)]):
        growth = net.grow([widths], 2, seeds=[seed]).growth(0)
        drawn = {name: random(*tensor.shape).float() for name, tensor in growth.tensors.items() if "gate/" in name}
        net.commit(replace(growth, tensors={**growth.tensors, **drawn}))
    first, second = net.tasks
    assert first.openness(random(5, 4).float()) == {}, "the first task has no gates"
    x = random(5, 4).float()
    found = second.openness(x)
    assert list(found) == ["fc2", "head"]
    hidden = torch.relu(x @ second.weights["layer/fc1/weight"].T + second.weights["layer/fc1/bias"])
    own = {
        name.replace("gate/fc2", "g"): w.double() for name, w in second.weights.items() if name.startswith("gate/fc2")
    }
    beta = torch.stack([reference(row.double(), own) for row in hidden]).mean(0)
    torch.testing.assert_close(
        found["fc2"].double(), torch.stack([beta[:3].mean(), beta[3:].mean()]), atol=1e-6, rtol=0
    )
    assert torch.isnan(found["head"]).tolist() == [False, True], "no units, no gates on them"

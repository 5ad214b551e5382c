"""Layers and norms as affine maps: what units read, times their weights, is what they give."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bocl.networks import affine
from bocl.networks.affine import correlations, shared_maps
from bocl.networks.architectures import lenet, mlp, resnet
from bocl.networks.graph import Norm
from bocl.networks.growth import is_parameter
from bocl.networks.plain import PlainNetwork
from bocl.networks.trace import trace


def windows():
    """Return convolutions with padding, strides, dilation, groups and without a bias, and a norm of each kind."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
        nn.Conv2d(4, 4, 3, groups=4, padding="same"), nn.GroupNorm(2, 4), nn.ReLU(),
        nn.Conv2d(4, 6, (3, 2), stride=(2, 1), groups=2, padding=(0, 1), dilation=(1, 2)), nn.ReLU(),
        nn.Conv2d(6, 5, 1, stride=2), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(20, 7), nn.LayerNorm(7), nn.Tanh(), nn.Linear(7, 3),
    )  # fmt: skip


def series():
    return nn.Sequential(
        nn.Conv1d(2, 3, 3, stride=2), nn.BatchNorm1d(3), nn.Flatten(), nn.Linear(9, 4), nn.Linear(4, 3)
    )


CASES = {
    "mlp": (lambda: mlp(72, [6, 5], 3), (2, 6, 6)),
    "windows": (windows, (2, 8, 8)),
    "series": (series, (2, 8)),
    "lenet": (lambda: lenet(3, 3), (3, 32, 32)),
    "resnet": (lambda: resnet(3, (2, 3)), (3, 16, 16)),
}


def made(case, *, shared_head=True):
    """Return a network whose norms are not as they start, and samples for it."""
    module, shape = CASES[case]
    network = PlainNetwork(trace(module()), shared_head=shared_head)
    network.add_task(3, seed=0)
    draw = torch.Generator().manual_seed(0)
    for name, tensor in network.tensors.items():
        if name.startswith("norm/"):
            tensor += torch.rand(tensor.shape, generator=draw)
    return network, torch.randn(5, *shape, generator=draw)


@pytest.mark.parametrize("case", CASES)
def test_what_units_read_times_their_weights_is_what_they_give(case):
    network, x = made(case)
    maps, values = shared_maps(network, 3), network.values(x, 0)
    reads = dict(affine._what_is_read(network, maps, x, 0))
    for entry in maps:
        number = network.graph.steps.index(entry.step)
        wanted = values[number + 1].transpose(0, 1).flatten(1)  # (units, rows)
        read = reads[entry.weight]
        assert read.shape[::2] == (entry.groups, entry.columns)
        found = (entry.matrix(network.tensors) @ read.mT).flatten(0, 1)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shared_head", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_the_maps_have_every_parameter_that_tasks_share_once(case, shared_head):
    network, _ = made(case, shared_head=shared_head)
    named = [name for entry in shared_maps(network, 3) for name in entry.parts(entry.matrix(network.tensors))]
    assert sorted(named) == sorted(name for name in network.tensors if network.is_shared(name) and is_parameter(name))


def test_a_matrix_comes_apart_into_the_tensors_it_was_made_of():
    network, _ = made("windows")
    stack = {name: tensor.unsqueeze(0) for name, tensor in network.tensors.items()}
    for entry in shared_maps(network, 3):
        matrix = entry.matrix(network.tensors)
        assert torch.equal(entry.matrix(stack), matrix)
        for name, part in entry.parts(matrix).items():
            assert torch.equal(part.view_as(network.tensors[name]), network.tensors[name]), name


def test_groups_read_apart():
    network, _ = made("windows")
    groups = {entry.step.name: entry.groups for entry in shared_maps(network, 3) if not isinstance(entry.step, Norm)}
    assert [*groups.values()] == [1, 4, 2, 1, 1, 1]


@pytest.mark.parametrize("at_once", [1 << 24, 2000])
def test_the_correlation_is_the_mean_over_samples_and_windows(at_once, monkeypatch):
    network, x = made("windows")
    maps = shared_maps(network, 3)
    reads = dict(affine._what_is_read(network, maps, x, 0))
    monkeypatch.setattr(affine, "MOST_NUMBERS", at_once)
    found = correlations(network, maps, x, 0)
    for name, read in reads.items():
        wanted = torch.einsum("gri,grj->gij", read.double(), read.double()) / read.shape[1]
        torch.testing.assert_close(found[name], wanted, rtol=1e-5, atol=1e-6)

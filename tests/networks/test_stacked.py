"""Children trained together as one padded batch are the children trained alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from network_examples import NETWORKS, grown, make_task
from torch import nn

from bocl.errors import InputError
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.growth import GrowthSettings
from bocl.networks.stacked import Children
from bocl.networks.trace import trace
from bocl.training.recipe import Recipe
from bocl.training.trainer import train
from paper_settings import PAPER_GROWTH

# A step moves every weight, and ten of them are taken. Float32 is compared as the weights stand: the loss of a
# padded batch is summed in another order, and steps amplify that.
RECIPES = {
    "sgd": Recipe("sgd", learning_rate=0.05, weight_decay=1e-3, batch_size=8, epochs=2),
    "adam": Recipe("adam", learning_rate=0.01, weight_decay=1e-3, batch_size=8, epochs=2),
}
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}


def widths_for(groups: int) -> list[tuple[int, ...]]:
    """Return unequal children: one of every width mixed with zeros, one of zeros alone."""
    mixed = tuple((3, 0, 2, 1)[index % 4] for index in range(groups))
    other = tuple((0, 2, 1, 3)[index % 4] for index in range(groups))
    return [mixed, (0,) * groups, other, (1,) * groups]


def trained(network: ExpandableNetwork, widths, seeds, recipe, pad_to, dtype) -> Children:
    children = network.grow(widths, 3, seeds=seeds, pad_to=pad_to, dtype=dtype)
    task = make_task(3, 1, samples=40, dtype=dtype)
    train(children, [task], recipe, seed=7)
    return children


def assert_same_child(one: Children, index: int, other: Children, other_index: int, tolerance: float) -> None:
    first, second = one.growth(index).tensors, other.growth(other_index).tensors
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        torch.testing.assert_close(
            second[name], tensor, rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("optimiser", RECIPES)
@pytest.mark.parametrize("name", NETWORKS)
def test_ten_steps_of_a_stack_are_ten_steps_of_each_child_alone_in_float64(name, optimiser):
    network = grown(NETWORKS[name](), dtype=torch.float64)
    widths = widths_for(len(network.graph.groups))
    together = trained(network, widths, range(4), RECIPES[optimiser], None, torch.float64)
    for index, z in enumerate(widths):
        alone = trained(network, [z], [index], RECIPES[optimiser], z, torch.float64)
        assert_same_child(alone, 0, together, index, TOLERANCE[torch.float64])


@pytest.mark.parametrize("name", NETWORKS)
def test_ten_steps_of_a_stack_are_ten_steps_of_each_child_alone_in_float32(name):
    network = grown(NETWORKS[name]())
    widths = widths_for(len(network.graph.groups))
    together = trained(network, widths, range(4), RECIPES["sgd"], None, torch.float32)
    for index, z in enumerate(widths):
        alone = trained(network, [z], [index], RECIPES["sgd"], z, torch.float32)
        assert_same_child(alone, 0, together, index, TOLERANCE[torch.float32])


@pytest.mark.parametrize(
    "settings",
    [replace(PAPER_GROWTH, wiring="forward"), replace(PAPER_GROWTH, attention=False), GrowthSettings()],
    ids=str,
)
@pytest.mark.parametrize("name", ["mlp", "cnn", "residual, batch norm"])
def test_every_wiring_trains_in_a_stack_as_alone(name, settings):
    network = grown(NETWORKS[name](), [(1,) * len(trace(NETWORKS[name]()).groups)], settings, torch.float64)
    widths = widths_for(len(network.graph.groups))
    together = trained(network, widths, range(4), RECIPES["sgd"], None, torch.float64)
    for index, z in enumerate(widths):
        alone = trained(network, [z], [index], RECIPES["sgd"], z, torch.float64)
        assert_same_child(alone, 0, together, index, 1e-9)


@pytest.mark.parametrize("name", NETWORKS)
def test_padding_to_wider_bounds_changes_nothing_but_the_last_bits(name):
    network = grown(NETWORKS[name](), dtype=torch.float64)
    widths = widths_for(len(network.graph.groups))
    tight = trained(network, widths, range(4), RECIPES["sgd"], None, torch.float64)
    wide = trained(network, widths, range(4), RECIPES["sgd"], (9,) * len(widths[0]), torch.float64)
    for index in range(4):
        assert_same_child(tight, index, wide, index, 1e-9)


@pytest.mark.parametrize("name", NETWORKS)
def test_running_statistics_of_a_first_task_are_each_childs_own(name):
    network = ExpandableNetwork(trace(NETWORKS[name]()))
    z = network.graph.widths
    together = trained(network, [z, z, z], range(3), RECIPES["sgd"], z, torch.float64)
    for index in range(3):
        alone = trained(network, [z], [index], RECIPES["sgd"], z, torch.float64)
        assert_same_child(alone, 0, together, index, 1e-9)
    statistics = [tensor for tensor in together.buffers.values() if tensor.shape[0] == 3]
    assert all(not torch.equal(tensor[0], tensor[1]) for tensor in statistics)
    assert bool(statistics) == any(norm.kind == "batch" for norm in network.graph.norms)


@pytest.mark.parametrize("optimiser", RECIPES)
@pytest.mark.parametrize("name", NETWORKS)
def test_padding_stays_exactly_zero_through_training(name, optimiser):
    network = grown(NETWORKS[name]())
    widths = widths_for(len(network.graph.groups))
    children = trained(network, widths, range(4), RECIPES[optimiser], (5,) * len(widths[0]), torch.float32)
    padded = 0
    for tensor_name, tensor in {**children.parameters, **children.buffers}.items():
        for index in range(4):
            rest = tensor[index].detach().clone()
            rest[tuple(map(slice, children.growth(index).tensors[tensor_name].shape))] = 0
            assert not rest.any(), f"{tensor_name} of child {index}"
            padded += rest.numel()
    assert padded > sum(tensor.numel() for tensor in children.growth(0).tensors.values())


def test_wider_bounds_pad_every_tensor_that_follows_widths():
    network = grown(NETWORKS["cnn, batch norm"](), settings=PAPER_GROWTH)
    children = network.grow([(1, 0, 2)], 3, seeds=[0], pad_to=(5, 4, 3))
    shapes = {name: tuple(tensor.shape[1:]) for name, tensor in children.state.items()}
    assert shapes["layer/0/rows"] == (5, 2, 3, 3)
    assert shapes["layer/4/rows"] == (4, 9, 2, 2)
    assert shapes["layer/4/columns"] == (3, 5, 2, 2)
    assert shapes["layer/8/rows"] == (3, 7 * 4)
    assert shapes["layer/8/columns"] == (5, 4 * 4)
    assert shapes["norm/1/mean"] == (9,)
    assert shapes["head/weight"] == (3, 8)
    assert shapes["gate/8/expand.bias"] == (7,)


@pytest.mark.parametrize("name", NETWORKS)
def test_shapes_in_a_round_follow_from_its_bounds_alone(name):
    network = grown(NETWORKS[name](), settings=GrowthSettings(reduction_nodes=1, reduction_channels=1))
    groups = len(network.graph.groups)
    shapes = [
        {key: tensor.shape for key, tensor in network.grow([z], 3, seeds=[0], pad_to=(4,) * groups).state.items()}
        for z in ((0,) * groups, (4,) * groups)
    ]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("name", NETWORKS)
def test_a_childs_logits_in_the_stack_are_those_of_its_compact_form(name):
    network = grown(NETWORKS[name](), [(1,) * len(trace(NETWORKS[name]()).groups)], dtype=torch.float64)
    widths = widths_for(len(network.graph.groups))
    children = trained(network, widths, range(4), RECIPES["sgd"], (6,) * len(widths[0]), torch.float64)
    x = make_task(dtype=torch.float64).validation.inputs
    stacked = children(x)
    assert stacked.shape == (4, 9, 3)
    for index in range(4):
        compact = network.candidate(children.growth(index))
        torch.testing.assert_close(compact(x), stacked[index], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("count", [1, 3])
def test_children_of_no_growth_at_all_can_be_padded_to_nothing(count):
    network = grown(NETWORKS["cnn, group norm"]())
    children = network.grow([(0, 0, 0)] * count, 3, seeds=range(count), pad_to=(0, 0, 0))
    train(children, [make_task(3, 1)], Recipe(epochs=1), seed=0)
    x = make_task().validation.inputs
    for index in range(count):
        compact = network.candidate(children.growth(index))
        torch.testing.assert_close(compact(x), children(x)[index], rtol=1e-4, atol=1e-5)


def test_a_single_added_channel_on_one_pixel_can_be_group_normalised_in_a_batch_of_one():
    module = nn.Sequential(nn.Conv2d(2, 4, 6), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(4, 3))
    network = grown(module, [(1,)])
    x = torch.randn(3, 2, 6, 6, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(network.predict(x[:1], 1), network.predict(x, 1)[:1])


@pytest.mark.parametrize("z", [(3, 0, 0), (0, 0, 9)])
def test_a_child_wider_than_the_bounds_is_refused(z):
    network = grown(NETWORKS["cnn"]())
    with pytest.raises(InputError, match=r"adds \(.*up to \(2, 2, 2\)"):
        network.grow([(1, 1, 1), z], 3, seeds=[0, 1], pad_to=(2, 2, 2))

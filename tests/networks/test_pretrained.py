"""Growing by units from weights that were there before: the base never changes, and every task reads it."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch
from network_examples import NETWORKS, Remembered, make_task
from torch import nn

from bocl.errors import NetworkError, NetworkWarning
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.growth import GrowthSettings, count_tensors
from bocl.networks.mobile import efficientnet_lite0, mobilenet_v2
from bocl.networks.norms import scale_and_shift
from bocl.networks.pretrained import Pretrained
from bocl.networks.stacked import Children
from bocl.networks.trace import trace
from bocl.training.recipe import Recipe
from bocl.training.trainer import train

ASIDE = GrowthSettings(wiring="forward", attention=False, norms="frozen")
WAYS = {
    "lean, own norms": GrowthSettings(),
    "full, frozen norms": GrowthSettings(wiring="full", norms="frozen"),
    "paper": GrowthSettings("all", "full", gates="sample"),
    "forward, own norms": GrowthSettings(wiring="forward"),
    "aside": ASIDE,
}
RECIPE = Recipe("sgd", learning_rate=0.05, batch_size=8, epochs=1)


def module_with_weights(name: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Return a network that was trained: its norms, too, have seen something."""
    module = NETWORKS[name]()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for key, tensor in module.state_dict().items():
            if tensor.is_floating_point():
                noise = torch.rand(tensor.shape, generator=generator)
                tensor.copy_(0.5 + noise if "var" in key else tensor + 0.3 * (noise - 0.5))
    return module.to(dtype).eval()


def pretrained(
    name: str, way: GrowthSettings, dtype: torch.dtype = torch.float32
) -> tuple[nn.Module, ExpandableNetwork]:
    module = module_with_weights(name, dtype)
    known = Pretrained.of(module)
    base = {key: tensor.to(dtype) for key, tensor in known.tensors.items()}
    return module, ExpandableNetwork(known.graph, way, pretrained=True, base=base)


def learn(network: ExpandableNetwork, widths, reads=None, dtype=torch.float32, classes=3) -> Children:
    index = len(network.tasks)
    children = network.grow([widths], classes, seeds=[index], dtype=dtype, reads=reads)
    train(children, [make_task(classes, index, dtype=dtype)], RECIPE, seed=index)
    network.commit(children.growth(0))
    return children


def widths_of(network: ExpandableNetwork, *numbers: int):
    return tuple(numbers[at % len(numbers)] for at in range(len(network.graph.groups)))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_task_that_adds_no_units_reads_the_modules_own_features(name, way):
    """Gates start nearly open, so they are left out; then the logits are those of the module with another head."""
    settings = replace(WAYS[way], attention=False)
    module, network = pretrained(name, settings, torch.float64)
    growth = network.grow([network.graph.no_units], 3, seeds=[0], dtype=torch.float64).growth(0)
    head = module.get_submodule(network.graph.head.name)
    with torch.no_grad():
        head.weight.copy_(growth.tensors["head/weight"])
        head.bias.copy_(growth.tensors["head/bias"])
        x = torch.randn(5, 2, 6, 6, dtype=torch.float64)
        torch.testing.assert_close(network.candidate(growth)(x), module(x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NETWORKS)
def test_children_together_compute_what_each_computes_alone(name, way):
    _, network = pretrained(name, WAYS[way], torch.float64)
    for task in range(2):
        learn(network, widths_of(network, 1, 2), reads=tuple(range(task)), dtype=torch.float64)
    several = [widths_of(network, 2, 0), widths_of(network, 0), widths_of(network, 1, 3)]
    for reads in ((), (0,), (0, 1)):
        children = network.grow(several, 4, seeds=range(3), reads=reads, dtype=torch.float64)
        train(children, [make_task(4, 2, dtype=torch.float64)], RECIPE, seed=0)
        children.training = False
        x = torch.randn(5, 2, 6, 6, dtype=torch.float64)
        with torch.no_grad():
            together = children(x)
            for index in range(3):
                alone = network.candidate(children.growth(index))(x)
                torch.testing.assert_close(together[index], alone, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NETWORKS)
def test_nothing_is_forgotten_and_the_base_never_changes(name, way):
    _, network = pretrained(name, WAYS[way])
    before, remembered = network.base_sha256(), Remembered()
    learn(network, network.graph.no_units)
    remembered.take(network)
    for widths, reads in (
        (widths_of(network, 1, 2), ()),
        (widths_of(network, 2), (0, 1)),
        (widths_of(network, 0, 1), (1,)),
    ):
        learn(network, widths, reads)
        remembered.check(network)
        remembered.take(network)
    assert network.base_sha256() == before
    facts, tensors = network.stored()
    other = ExpandableNetwork(network.graph, WAYS[way], pretrained=True)
    classes = [3] * 4
    assert {key: tuple(map(int, shape)) for key, shape in other.stored_shapes(facts, classes).items()} == {
        key: tuple(tensor.shape) for key, tensor in tensors.items()
    }
    other.restore(facts, tensors, classes)
    remembered.check(other)


def test_the_check_of_the_base_can_fail():
    _, network = pretrained("cnn, batch norm", ASIDE)
    before = network.base_sha256()
    next(iter(network.base.values())).view(-1)[0] += 1e-6
    assert network.base_sha256() != before


@pytest.mark.parametrize("name", NETWORKS)
def test_beside_a_frozen_network_children_take_the_steps_of_the_ordinary_way(name):
    _, network = pretrained(name, ASIDE, torch.float64)
    learn(network, widths_of(network, 2, 1), dtype=torch.float64)
    several = [widths_of(network, 2), widths_of(network, 0, 1), widths_of(network, 0)]

    def trained(aside: bool) -> Children:
        children = network.grow(several, 3, seeds=range(3), reads=(0,), dtype=torch.float64)
        assert children._aside
        children._aside = aside
        train(children, [make_task(3, 1, dtype=torch.float64)], RECIPE, seed=0)
        return children

    one, other = trained(aside=True), trained(aside=False)
    for key, tensor in one.state.items():
        torch.testing.assert_close(tensor, other.state[key], rtol=1e-8, atol=1e-10, msg=key)


@pytest.mark.parametrize("way", ["lean, own norms", "aside"])
def test_norms_are_frozen_or_each_tasks_own(way):
    _, network = pretrained("cnn, batch norm", WAYS[way])
    learn(network, widths_of(network, 1))
    own = {key: tensor for key, tensor in network.growths[0].tensors.items() if key.startswith("norm/")}
    used = {key: tensor for key, tensor in network.tasks[0].weights.items() if key.startswith("norm/")}
    for key, tensor in network.base.items():
        if not key.startswith("norm/"):
            continue
        same = torch.equal(used[key][: len(tensor)], tensor)
        assert same == (way == "aside"), key
        assert len(own[key]) == (1 if way == "aside" else len(tensor) + 1)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NETWORKS)
def test_counts_are_those_of_the_tensors(name, way):
    _, network = pretrained(name, WAYS[way])
    learn(network, widths_of(network, 1, 0, 2))
    for reads in ((), (0,)):
        z = widths_of(network, 0, 3)
        growth = network.grow([z], 5, seeds=[0], reads=reads).growth(0)
        assert count_tensors(growth.tensors) == {
            part: int(count) for part, count in network.space(5, reads).count(z).items()
        }
    stored = network.parameters()
    assert stored["base"] == sum(count_tensors(network.base).values())


def test_a_graph_alone_has_no_weights_to_grow_from():
    network = ExpandableNetwork(trace(NETWORKS["cnn"]()), pretrained=True)
    with pytest.raises(NetworkError, match="without pretrained weights"):
        network.frozen(())


def test_weights_that_are_kept_are_no_reason_to_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Pretrained.of(module_with_weights("cnn, batch norm"))
    with pytest.warns(NetworkWarning, match="only the shape"):
        trace(module_with_weights("cnn, batch norm"))


@pytest.mark.parametrize("make", [efficientnet_lite0, mobilenet_v2], ids=lambda make: make.__name__)
def test_mobile_networks_grow_by_units(make):
    module = make(size=32, classes=7).eval()
    known = Pretrained.of(module)
    network = ExpandableNetwork(known.graph, ASIDE, pretrained=True, base=known.tensors)
    assert len(known.graph.groups) == {"efficientnet_lite0": 24, "mobilenet_v2": 25}[make.__name__]
    children = network.grow([widths_of(network, 1, 2), widths_of(network, 0)], 3, seeds=[0, 1])
    x = torch.randn(3, 3, 20, 20)
    children.training = False
    with torch.no_grad():
        for index in range(2):
            alone = network.candidate(children.growth(index))(x)
            torch.testing.assert_close(children(x)[index], alone, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("first", [nn.BatchNorm2d(2), nn.GroupNorm(1, 2)], ids=lambda norm: type(norm).__name__)
def test_a_norm_of_the_raw_input_starts_from_the_pretrained_one(first, way):
    module = nn.Sequential(first, nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)).eval()
    with torch.no_grad():
        for tensor in first.state_dict().values():
            tensor.copy_(torch.full_like(tensor, 3))
    known = Pretrained.of(module)
    network = ExpandableNetwork(known.graph, replace(WAYS[way], attention=False), pretrained=True, base=known.tensors)
    for task in range(2):
        growth = network.grow([network.graph.no_units], 3, seeds=[task]).growth(0)
        head = {f"head/{name}": tensor.detach().clone() for name, tensor in module[4].named_parameters()}
        network.commit(replace(growth, tensors={**growth.tensors, **head}))
        x = torch.randn(5, 2, 6, 6)
        with torch.no_grad():
            torch.testing.assert_close(network.predict(x, task), module(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("way", WAYS)
def test_a_layer_norm_may_have_a_weight_alone(way):
    module = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8, bias=False), nn.ReLU(), nn.Linear(8, 3))
    with torch.no_grad():
        module[1].weight.copy_(torch.rand(8) + 0.5)
    known = Pretrained.of(module)
    network = ExpandableNetwork(known.graph, replace(WAYS[way], attention=False), pretrained=True, base=known.tensors)
    growth = network.grow([network.graph.no_units], 3, seeds=[0]).growth(0)
    head = {f"head/{name}": tensor.detach().clone() for name, tensor in module[3].named_parameters()}
    network.commit(replace(growth, tensors={**growth.tensors, **head}))
    x = torch.randn(5, 6)
    with torch.no_grad():
        torch.testing.assert_close(network.predict(x, 0), module(x), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(scale_and_shift(x, x[0], None), x * x[0])


def test_weights_that_are_not_there_are_named():
    with torch.device("meta"):
        module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    with pytest.raises(NetworkError, match=r"'0\.weight' is on the meta device and has no values"):
        Pretrained.of(module)


@pytest.mark.gpu
@pytest.mark.parametrize("way", ["aside", "lean, own norms"])
@pytest.mark.parametrize("name", ["cnn, batch norm", "inverted residual", "grouped convolution", "squeeze and excite"])
def test_a_captured_training_from_a_pretrained_network_repeats_itself(name, way):
    torch.manual_seed(0)
    known = Pretrained.of(module_with_weights(name))
    network = ExpandableNetwork(known.graph, WAYS[way], "cuda", pretrained=True, base=known.tensors)
    task = make_task(3, 0)
    train_split, validation = (
        replace(split, inputs=split.inputs.cuda(), labels=split.labels.cuda())
        for split in (task.train, task.validation)
    )
    task = replace(task, train=train_split, validation=validation)

    def states(graphed: bool) -> dict[str, torch.Tensor]:
        children = network.grow([widths_of(network, 2), widths_of(network, 0, 1)], 3, seeds=[0, 1])
        train(children, [task], replace(RECIPE, epochs=3, precision="float32"), seed=0, graphed=graphed)
        return {key: tensor.detach().clone() for key, tensor in children.state.items()}

    one, again, eager = states(graphed=True), states(graphed=True), states(graphed=False)
    for key, tensor in one.items():
        assert torch.equal(tensor, again[key]), key
        torch.testing.assert_close(tensor, eager[key], rtol=1e-3, atol=1e-4, msg=key)

"""Gradients reach what is new and nothing else."""

from __future__ import annotations

import pytest
import torch
from network_examples import IMAGE, NETWORKS, grown, hash_of, make_task

from bocl.networks.architectures import mlp
from bocl.networks.growth import GrowthSettings, GrowthSpace, initialise
from bocl.networks.stacked import Children
from bocl.networks.trace import trace
from bocl.training.recipe import Recipe
from bocl.training.trainer import train
from paper_settings import PAPER_GROWTH

WIRINGS = [PAPER_GROWTH, GrowthSettings("all", "forward", gates="sample"), GrowthSettings()]


def backward(children: Children) -> None:
    task = make_task(3, 1, samples=64)
    children(task.train.inputs).log_softmax(-1)[..., 0].sum().backward()


@pytest.mark.parametrize("settings", WIRINGS, ids=lambda s: s.wiring)
@pytest.mark.parametrize("name", NETWORKS)
def test_frozen_weights_get_no_gradient_and_keep_their_bits(name, settings):
    network = grown(NETWORKS[name](), settings=settings)
    z = (2,) * len(network.graph.groups)
    children = network.grow([z, z], 3, seeds=[1, 2])
    assert children.frozen is network.frozen()
    before = {key: hash_of(tensor) for key, tensor in children.frozen.weights.items()}
    backward(children)
    assert all(not tensor.requires_grad and tensor.grad is None for tensor in children.frozen.weights.values())
    train(children, [make_task(3, 1)], Recipe("sgd", learning_rate=0.1, epochs=2), seed=0)
    assert {key: hash_of(tensor) for key, tensor in children.frozen.weights.items()} == before


@pytest.mark.parametrize("settings", WIRINGS, ids=lambda s: s.wiring)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_new_parameter_gets_a_finite_gradient_that_is_not_zero(name, settings):
    network = grown(NETWORKS[name](), settings=settings)
    children = network.grow([(2,) * len(network.graph.groups)], 3, seeds=[1])
    backward(children)
    for key, parameter in children.parameters.items():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        # A batch norm takes away any shift before it, and a gate's few hidden units may all be off.
        shifted = "batch norm" in name and key.startswith("layer/") and key.endswith("/bias")
        silent = key.startswith("gate/") and "expand.bias" not in key
        assert shifted or silent or parameter.grad.any(), key


@pytest.mark.parametrize("settings", WIRINGS, ids=lambda s: s.wiring)
def test_new_columns_follow_the_wiring_and_never_exist_on_raw_input(settings):
    network = grown(NETWORKS["cnn"](), settings=settings)
    children = network.grow([(2, 2, 2)], 3, seeds=[1])
    columns = {key for key in children.parameters if key.endswith("/columns")}
    assert (
        columns
        == {  # layer 6 reads a flattened map
            "full": {"layer/3/columns", "layer/6/columns"},
            "lean": {"layer/3/columns"},
            "forward": set(),
        }[settings.wiring]
    )


@pytest.mark.parametrize("settings", WIRINGS, ids=lambda s: s.wiring)
@pytest.mark.parametrize(
    ("name", "layer"), [("cnn", "3"), ("cnn", "6"), ("mlp", "fc2"), ("residual, batch norm", "3.conv1")]
)
def test_old_units_read_new_units_as_the_wiring_says(name, layer, settings, monkeypatch):
    network = grown(NETWORKS[name](), settings=GrowthSettings(wiring=settings.wiring, attention=False))
    children = network.grow([(2,) * len(network.graph.groups)], 3, seeds=[1])
    children.training = children._aside = False
    old = network.frozen().weights[f"layer/{layer}/weight"].shape[0]
    seen = network.frozen().weights[f"layer/{layer}/weight"].shape[1]
    step = next(step for step in network.graph.layers if step.name == layer)
    reads, read_input, compute = [], Children._gated, Children._layer

    def change_new_inputs(self, step, value):
        x = read_input(self, step, value)
        if step.name == layer:
            x = x.clone()
            x[:, :, seen:] += offset
        return x

    def keep_output(self, step, *arguments):
        value = compute(self, step, *arguments)
        if step.name == layer:
            reads.append(value.own.detach())
        return value

    monkeypatch.setattr(Children, "_gated", change_new_inputs)
    monkeypatch.setattr(Children, "_layer", keep_output)
    x = torch.randn(5, *IMAGE, generator=torch.Generator().manual_seed(0))
    for offset in (0.0, 1.0):  # noqa: B007 - read by change_new_inputs
        children(x)
    apart = settings.wiring == "forward" or (settings.wiring == "lean" and step.source.spread > 1)
    assert torch.equal(reads[0][:, :, :old], reads[1][:, :, :old]) == apart
    assert not torch.equal(reads[0][:, :, old:], reads[1][:, :, old:])
    assert step.gated


def test_forward_wiring_leaves_the_old_block_and_zeros_beside_it():
    network = grown(NETWORKS["cnn"](), [(1, 2, 3)], GrowthSettings(wiring="forward"))
    first, second = network.tasks
    for layer in network.graph.layers:
        before, after = (
            first.weights[f"layer/{layer.name}/weight"],
            second.weights[f"layer/{layer.name}/weight"],
        )
        out, seen = before.shape[:2]
        assert torch.equal(after[:out, :seen], before)
        assert not after[:out, seen:].any()
        assert after[out:].any()


def test_full_wiring_keeps_the_old_block_and_trains_what_old_units_read_from_new_ones():
    network = grown(NETWORKS["cnn"](), [(1, 2, 3)], PAPER_GROWTH)
    first, second = network.tasks
    for layer in network.graph.layers:
        before, after = (
            first.weights[f"layer/{layer.name}/weight"],
            second.weights[f"layer/{layer.name}/weight"],
        )
        out, seen = before.shape[:2]
        assert torch.equal(after[:out, :seen], before)
        assert bool(after[:out, seen:].any()) == layer.gated
        assert torch.equal(second.weights[f"layer/{layer.name}/bias"][:out], first.weights[f"layer/{layer.name}/bias"])


def test_new_weights_start_uniform_within_one_over_the_root_of_the_grown_fan_in():
    graph = trace(mlp(20, [200, 100], 7))
    first = initialise(GrowthSpace.first(graph, 7), graph.widths, seed=0)
    second = initialise(GrowthSpace(graph, graph.widths, 7, GrowthSettings()), (50, 60), seed=1)
    for growth, name, fan in [
        (first, "layer/fc1/rows", 20),
        (first, "head/weight", 100),
        (second, "layer/fc2/rows", 250),
        (second, "layer/fc2/columns", 250),
        (second, "layer/fc2/bias", 250),
        (second, "head/weight", 160),
    ]:
        tensor, bound = growth.tensors[name], fan**-0.5
        assert tensor.abs().max() <= bound, name
        assert tensor.abs().max() > 0.9 * bound, name
        assert tensor.std() == pytest.approx(bound / 3**0.5, rel=0.15), name


def test_the_start_of_a_child_depends_on_its_seed_alone():
    network = grown(NETWORKS["cnn"]())
    torch.manual_seed(0)
    one = network.grow([(1, 1, 1), (2, 0, 1)], 3, seeds=[5, 6])
    torch.manual_seed(1)
    other = network.grow([(2, 0, 1)], 3, seeds=[6], pad_to=(4, 4, 4))
    for name, tensor in one.growth(1).tensors.items():
        assert torch.equal(tensor, other.growth(0).tensors[name]), name
    again = network.grow([(2, 0, 1)], 3, seeds=[7])
    assert not torch.equal(again.growth(0).tensors["head/weight"], one.growth(1).tensors["head/weight"])


def test_norms_continue_from_the_last_tasks_and_new_units_start_plain():
    network = grown(NETWORKS["residual, batch norm"]())
    last = network.growths[-1].tensors
    growth = network.grow([(2, 1)], 3, seeds=[0]).growth(0)
    for kind, start in (("weight", 1.0), ("bias", 0.0), ("mean", 0.0), ("var", 1.0)):
        tensor = growth.tensors[f"norm/1/{kind}"]
        assert torch.equal(tensor[:4], last[f"norm/1/{kind}"])
        assert torch.equal(tensor[4:], torch.full((2,), start))

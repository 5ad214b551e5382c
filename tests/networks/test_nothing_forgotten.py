"""After any later growth and training, an earlier task's logits and tensors are the same bits."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from network_examples import NETWORKS, Remembered, conv_net, grown, learn, make_task, random_stack
from torch import nn

from bocl.networks import compact, stacked
from bocl.networks.architectures import mlp
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.growth import GrowthSettings
from bocl.networks.trace import trace
from bocl.training.recipe import Recipe
from bocl.training.trainer import train
from paper_settings import PAPER_GROWTH

SETTINGS = st.builds(
    GrowthSettings,
    wiring=st.sampled_from(["full", "lean", "forward"]),
    attention=st.booleans(),
    gates=st.sampled_from(["unit", "sample"]),
    gate_share=st.sampled_from([0.1, 1.0]),
    reduction_nodes=st.sampled_from([1, 2, 64]),
    reduction_channels=st.sampled_from([1, 2]),
)
FEW = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


def check_growth(data: st.DataObject, network: ExpandableNetwork) -> None:
    remembered = Remembered()
    groups = len(network.graph.groups)
    learn(network, network.graph.widths, data.draw(st.integers(2, 4), label="classes"))
    remembered.take(network)
    for _ in range(data.draw(st.integers(1, 3), label="later tasks")):
        z = data.draw(st.tuples(*[st.integers(0, 3)] * groups), label="z")
        learn(network, z, data.draw(st.integers(2, 4), label="classes"), pad_to=(3,) * groups)
        remembered.check(network)
        remembered.take(network)


@FEW
@given(st.data())
def test_growing_mlps_forget_nothing(data):
    hidden = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3), label="hidden")
    check_growth(data, ExpandableNetwork(trace(mlp(72, hidden, 2)), data.draw(SETTINGS)))


@FEW
@given(st.data())
def test_growing_convolutional_and_residual_networks_forget_nothing(data):
    kinds = data.draw(st.lists(st.sampled_from(["plain", "residual"]), min_size=1, max_size=2), label="kinds")
    widths = [data.draw(st.integers(1, 4), label="width") for _ in kinds]
    norm = data.draw(st.sampled_from(["none", "batch", "group"]), label="norm")
    pool = data.draw(st.sampled_from(["none", "max", "average", "adaptive"]), label="pool")
    module = random_stack(kinds, widths, norm, pool)
    check_growth(data, ExpandableNetwork(trace(module), data.draw(SETTINGS)))


@pytest.mark.parametrize("name", NETWORKS)
def test_children_that_are_never_committed_change_nothing(name):
    network = grown(NETWORKS[name](), [(1,) * len(trace(NETWORKS[name]()).groups)])
    remembered = Remembered()
    remembered.take(network)
    groups = len(network.graph.groups)
    children = network.grow([(2,) * groups, (0,) * groups], 3, seeds=[5, 6], pad_to=(4,) * groups)
    train(children, [make_task(3, 2)], Recipe("sgd", learning_rate=0.1, epochs=2), seed=0)
    remembered.check(network)
    assert len(network.tasks) == 2


def test_a_committed_growth_is_a_copy_of_the_child():
    network = grown(conv_net())
    children = network.grow([(1, 1, 1)], 3, seeds=[0])
    growth = children.growth(0)
    network.commit(growth)
    remembered = Remembered()
    remembered.take(network)
    for tensor in (*growth.tensors.values(), *children.parameters.values()):
        tensor.detach().add_(1)
    remembered.check(network)


def test_tasks_compute_on_contiguous_copies():
    network = grown(conv_net(nn.BatchNorm2d), [(1, 2, 0), (2, 0, 1)])
    for task in network.tasks:
        assert all(tensor.is_contiguous() for tensor in task.weights.values())
    held = [task.weights for task in network.tasks] + [growth.tensors for growth in network.growths]
    storages = [tensor.data_ptr() for tensors in held for tensor in tensors.values() if tensor.numel()]
    assert len(set(storages)) == len(storages)


# -- mutants: the check fails when something is forgotten ------------------------------------------


def forgets(settings: GrowthSettings | None = None) -> tuple[ExpandableNetwork, Remembered]:
    network = grown(conv_net(nn.BatchNorm2d), [(1, 1, 1)], settings)
    remembered = Remembered()
    remembered.take(network)
    remembered.check(network)
    return network, remembered


def test_the_check_catches_an_old_weight_that_is_trained(monkeypatch):
    network, remembered = forgets()

    def train_frozen_too(self, layer, x, is_stacked, head):
        weight = self.frozen.weights["layer/0/weight"]
        if not weight.requires_grad:
            weight.requires_grad_()
            self.parameters["frozen"] = weight
        return original(self, layer, x, is_stacked, head)

    original = stacked.Children._layer
    monkeypatch.setattr(stacked.Children, "_layer", train_frozen_too)
    children = network.grow([(1, 1, 1)], 3, seeds=[1])
    loss = children(remembered.inputs[1]).square().sum()
    loss.backward()
    torch.optim.SGD([children.parameters["frozen"]], 0.1).step()
    with pytest.raises(AssertionError, match="task 1"):
        remembered.check(network)


def test_the_check_catches_batch_norm_statistics_that_keep_running(monkeypatch):
    network, remembered = forgets()
    original = compact.F.batch_norm

    def keeps_running(x, mean, var, weight, bias, training, eps):
        return original(x, mean, var, weight, bias, training=True, momentum=0.1, eps=eps)

    with monkeypatch.context() as patch:
        patch.setattr(compact.F, "batch_norm", keeps_running)
        network.predict(remembered.inputs[2], 0)
    with pytest.raises(AssertionError, match="task 0"):
        remembered.check(network)


def test_the_check_catches_batch_norm_buffers_shared_between_tasks():
    network, remembered = forgets()
    children = network.grow([(0, 0, 0)], 3, seeds=[1])
    for name in children.buffers:
        children.buffers[name] = network.tasks[-1].weights[name][None]
    train(children, [make_task(3, 2)], Recipe(epochs=1), seed=0)
    with pytest.raises(AssertionError, match="task 1"):
        remembered.check(network)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("head/weight", PAPER_GROWTH),
        ("head/bias", PAPER_GROWTH),
        ("gate/10/expand.bias", PAPER_GROWTH),
        ("gate/4/reduce.weight", PAPER_GROWTH),
        ("gate/4/unit", GrowthSettings(gate_share=1.0)),
    ],
)
def test_the_check_catches_a_growth_that_writes_into_an_earlier_head_or_gate(monkeypatch, name, settings):
    network, remembered = forgets(settings=settings)
    original = ExpandableNetwork.commit

    def writes_back(self, growth):
        before = self.tasks[-1].weights[name]
        before.copy_(growth.tensors[name][tuple(map(slice, before.shape))])
        original(self, growth)

    monkeypatch.setattr(ExpandableNetwork, "commit", writes_back)
    learn(network, (0, 0, 0), 4)
    with pytest.raises(AssertionError, match="task 1"):
        remembered.check(network)


def test_the_check_catches_a_single_bit_of_a_stored_tensor():
    network, remembered = forgets()
    tensor = network.growths[0].tensors["layer/0/rows"]
    tensor.view(torch.int32)[0, 0, 0, 0] ^= 1
    with pytest.raises(AssertionError, match="stored layer/0/rows"):
        remembered.check(network)

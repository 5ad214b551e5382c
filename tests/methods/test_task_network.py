"""A task as an ``nn.Module``: the bits of ``predict``, whatever the network and the samples."""

from __future__ import annotations

import copy
import io
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from exporting_examples import BATCHES, RECIPE, TYPES, adapted, fixed, samples_for, typed_stream
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import bocl
from bocl.errors import InputError
from bocl.networks.task_modules import task_module

sys.path.append(str(Path(__file__).parents[1] / "networks"))
from low_rank_examples import MODULES
from network_examples import NETWORKS, random_stack

FEW = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_task_of_units_gives_the_same_bits(name):
    learner = fixed(NETWORKS[name]())
    check(learner)


@pytest.mark.parametrize("form", ["low-rank", "low-rank, own norms", "whole"])
@pytest.mark.parametrize("name", MODULES)
def test_a_task_of_an_adapted_module_gives_the_same_bits(name, form):
    if (name, form) == ("text", "low-rank, own norms"):
        pytest.skip("its norms have nothing of a task's own to differ in")
    check(adapted(name, form))


@FEW
@given(st.data())
def test_random_networks_and_samples_give_the_same_bits(data):
    kinds = data.draw(st.lists(st.sampled_from(["plain", "residual"]), min_size=1, max_size=2), label="kinds")
    widths = [data.draw(st.integers(1, 4), label="width") for _ in kinds]
    norm = data.draw(st.sampled_from(["none", "batch", "group"]), label="norm")
    pool = data.draw(st.sampled_from(["none", "max", "average", "adaptive"]), label="pool")
    growth = bocl.GrowthSettings(
        wiring=data.draw(st.sampled_from(["full", "lean", "forward"]), label="wiring"),
        gates=data.draw(st.sampled_from(["unit", "sample"]), label="gates"),
        gate_share=1.0,
    )
    kind = data.draw(st.sampled_from(TYPES), label="type of the samples")
    check(fixed(random_stack(kinds, widths, norm, pool), kind, growth=growth), kind)


def check(learner: bocl.Learner, kind: str = "float32") -> None:
    for task, about in enumerate(learner.seen):
        module = learner.module(about.name)
        for count in BATCHES:
            x = samples_for(learner, task, count, kind)
            with torch.no_grad():
                assert torch.equal(module(x), learner.predict(x, task))
                assert torch.equal(copy.deepcopy(module)(x), learner.predict(x, task))


def test_without_scaling_it_takes_what_the_network_sees():
    learner = fixed(NETWORKS["cnn"](), "uint8")
    split = typed_stream("uint8").test_split(1)
    seen = learner.module(1, scaling=False)
    assert torch.equal(seen(split.inputs()), learner.predict(split.raw, 1))
    assert "mean" not in dict(seen.named_buffers())


def test_bytes_are_numbers_from_0_to_255_of_any_type():
    learner = fixed(NETWORKS["cnn"](), "uint8")
    x = typed_stream("uint8").test_split(0).raw
    assert torch.equal(learner.module(0)(x.float()), learner.predict(x, 0))


@pytest.mark.parametrize("kind", ["float64", "int16"])
def test_numbers_of_any_type_are_taken_as_predict_takes_them(kind):
    learner = bocl.Fixed(bocl.mlp(6, [4]), recipe=bocl.Recipe(epochs=1), device="cpu")
    learner.learn(bocl.from_arrays([(np.eye(30, 6, dtype="float32"), np.arange(30) % 2)])[0])
    x = torch.from_numpy(np.arange(30).reshape(5, 6).astype(kind))
    assert torch.equal(learner.module(0)(x), learner.predict(x, 0))
    assert learner.module(0).double()(x.float()).dtype == torch.float64


def one_channel() -> bocl.Learner:
    network = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 1024, 3))
    learner = bocl.Fixed(network, recipe=RECIPE, device="cpu")
    x = np.random.default_rng(0).normal(size=(30, 1, 32, 32))
    learner.learn(bocl.from_arrays([(x.astype(np.float32), np.arange(30) % 3)])[0])
    return learner


@pytest.mark.parametrize("make", [one_channel, lambda: fixed(NETWORKS["cnn, group norm"](), tasks=1)])
def test_the_bits_do_not_depend_on_how_samples_lie_in_memory(make):
    learner = make()
    x = samples_for(learner, 0, 7)
    wanted = learner.predict(x, 0)
    for turned in (torch.empty_like(x, memory_format=torch.channels_last).copy_(x), torch.stack([x, -x], 1)[:, 0]):
        assert turned.stride() != x.stride()
        assert torch.equal(learner.predict(turned, 0), wanted)
        with torch.no_grad():
            assert torch.equal(learner.module(0)(turned), wanted)


def test_gradients_with_respect_to_samples_are_those_of_the_function():
    learner = fixed(NETWORKS["cnn"](), "uint8")
    module = learner.module(1).double()
    x = typed_stream("uint8").test_split(1).raw[:2].double().requires_grad_()
    assert torch.autograd.gradcheck(module, (x,), eps=1e-2, atol=1e-6)


def test_it_is_an_ordinary_module():
    learner = fixed(NETWORKS["residual, batch norm"]())
    module = learner.module(2)
    x = samples_for(learner, 2, 5)
    other = learner.module(2)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1)
    assert not torch.equal(other(x), module(x))
    other.load_state_dict(module.state_dict())
    assert torch.equal(other(x), module(x))
    assert all(name.startswith(("network.", "mean", "std")) for name in module.state_dict())
    assert module.to(torch.float64)(x.double()).dtype == torch.float64
    written = io.BytesIO()
    torch.save(other, written)
    again = torch.load(io.BytesIO(written.getvalue()), weights_only=False)
    assert torch.equal(again(x), learner.predict(x, 2))
    assert "task='task 3'" in repr(other)
    optimiser = torch.optim.SGD(other.parameters(), 0.1)
    other(x).sum().backward()
    optimiser.step()
    assert not torch.equal(other(x), learner.predict(x, 2))
    assert torch.equal(learner.module(2)(x), learner.predict(x, 2))


def test_parameters_are_in_one_order_wherever_tensors_come_from():
    """Or an optimiser's state, which knows them by number, would be another parameter's after loading."""
    learner = fixed(NETWORKS["cnn"]())
    single = learner.network.single_task(2)
    turned = replace(single, tensors=dict(reversed(single.tensors.items())))
    first, other = ([*task_module(learner.network.graph, each).state_dict()] for each in (single, turned))
    assert first == other


def test_it_shows_the_shapes_of_its_tensors():
    learner = fixed(NETWORKS["mlp"](), tasks=1)
    assert "(fc1): Tensors(bias=(6,), weight=(6, 72))" in repr(learner.module(0))


class Oddly(nn.Module):
    """A network whose layers are called like what every module has."""

    def __init__(self) -> None:
        super().__init__()
        self.flatten, self.inner, self.out = nn.Flatten(), nn.Module(), nn.Linear(5, 2)
        self.inner.weight, self.inner.bias = nn.Linear(72, 5), nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (n, 2, 6, 6) to (n, 2)."""
        return self.out(self.inner.bias(self.inner.weight(self.flatten(x))))


def test_layers_may_be_called_weight():
    check(fixed(Oddly()))


def test_texts_are_cut_as_predict_cuts_them():
    learner = adapted("text", "low-rank")
    x = np.zeros((2, 12), dtype=np.int64)
    x[:, :3] = [[4, 5, 6], [7, 0, 0]]
    assert torch.equal(learner.module(0)(torch.from_numpy(x)), learner.predict(x, 0))


def test_a_task_that_was_not_learnt_is_told():
    with pytest.raises(InputError, match="no task 'nine' has been learnt"):
        fixed(NETWORKS["mlp"]()).module("nine")

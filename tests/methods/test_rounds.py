"""Rounds: what children are padded to, and what happens when they do not fit or fail."""

from __future__ import annotations

import gc
import json
import math

import pytest
import torch
from method_examples import hard_stream

from bocl.errors import InputError, WorkError
from bocl.methods import parts
from bocl.methods.round_trainer import LocalTrainer
from bocl.methods.rounds import Round, padding
from bocl.networks.architectures import mlp
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.graph import from_json, to_json
from bocl.networks.trace import trace
from bocl.records.events import OutOfMemory
from bocl.settings import parse_value, to_plain
from bocl.training.batches import task_to_device
from bocl.training.footprint import training_bytes
from bocl.training.recipe import Recipe


@pytest.mark.parametrize(
    ("widths", "bounds", "wanted"),
    [
        ([(0, 0)], (29, 29), (0, 0)),
        ([(1, 2), (3, 0)], (29, 29), (4, 2)),
        ([(16, 17)], (29, 29), (16, 29)),
        ([(5, 29)], (5, 60), (5, 32)),
    ],
)
def test_a_round_is_padded_to_a_power_of_two_within_the_bounds(widths, bounds, wanted):
    assert padding(widths, bounds) == wanted


def test_the_order_of_children_changes_nothing():
    widths = [(1, 9), (6, 2), (0, 0)]
    assert padding(widths, (29, 29)) == padding(widths[::-1], (29, 29)) == (8, 16)


def small_round(network, widths, **options):
    """Train one epoch of these children."""
    data = task_to_device(hard_stream()[1], 1, "cpu")
    recipe = Recipe(batch_size=16, epochs=1)
    seeds = tuple(range(len(widths)))
    told = {name: options.pop(name) for name in ("callback", "on_halving") if name in options}
    reads = ((0,),) * len(widths)
    asked = Round("search", 1, 3, tuple(widths), seeds, 0, (4, 4), options.pop("recipe", recipe), reads, **options)
    return LocalTrainer()(asked, network, data, **told)


@pytest.fixture
def network():
    """A network with one task."""
    made = ExpandableNetwork(trace(mlp(72, [6, 5])))
    made.commit(made.grow([made.graph.widths], 3, seeds=[0]).growth(0))
    return made


WIDTHS = [(1, 0), (4, 2), (0, 0), (2, 4), (3, 1)]


def tensors_of(children):
    return [child.growth.tensors for child in children]


def assert_alike(one, other):
    for left, right in zip(tensors_of(one), tensors_of(other), strict=True):
        for name, tensor in left.items():
            torch.testing.assert_close(tensor, right[name], rtol=1e-4, atol=1e-6)


def test_a_round_beyond_the_memory_limit_is_trained_in_parts(network, monkeypatch):
    sizes, grow = [], ExpandableNetwork.grow
    monkeypatch.setattr(
        ExpandableNetwork,
        "grow",
        lambda self, widths, *a, **k: sizes.append(len(widths)) or grow(self, widths, *a, **k),
    )
    whole = small_round(network, WIDTHS)
    assert sizes == [5]
    one = grow(network, WIDTHS[:1], 3, seeds=[0], pad_to=(4, 4))
    data = task_to_device(hard_stream()[1], 1, "cpu")
    limit = 2.5 * training_bytes(one, data, Recipe(batch_size=16)) / 1e9
    sizes.clear()
    in_parts = small_round(network, WIDTHS, memory_gb=limit)
    assert sizes == [1, 2, 2, 1], "one to measure, then the parts"
    assert [child.growth.widths for child in in_parts] == WIDTHS
    assert_alike(whole, in_parts)


def test_memory_grows_with_batch_and_padding_and_not_with_anything_else(network):
    data = task_to_device(hard_stream()[1], 1, "cpu")

    def needed(batch, pad):
        children = network.grow([(1, 1)], 3, seeds=[0], pad_to=(pad, pad))
        return training_bytes(children, data, Recipe(batch_size=batch))

    assert needed(16, 4) == needed(16, 4)
    assert needed(4, 4) < needed(16, 4) < needed(16, 32)
    frozen = sum(tensor.numel() * 4 for tensor in network.frozen().weights.values())
    assert needed(16, 4) - needed(8, 4) < 8 * frozen, "frozen weights are kept once, not once per sample"


def test_asking_how_much_memory_training_takes_keeps_none(network):
    data = task_to_device(hard_stream()[1], 1, "cpu")
    training_bytes(network.grow([(1, 1)], 3, seeds=[0], pad_to=(4, 4)), data, Recipe(batch_size=16))
    of_samples = data.train.inputs.untyped_storage().data_ptr()
    tensors = [found for found in gc.get_objects() if type(found) is torch.Tensor and found.layout == torch.strided]
    assert [found for found in tensors if found.untyped_storage().data_ptr() == of_samples] == [data.train.inputs]


def test_out_of_memory_halves_the_part_and_goes_on(network, monkeypatch):
    events, attempts = [], []
    real = parts.train

    def short_of_memory(children, *arguments, **options):
        attempts.append(children.count)
        if children.count > 2:
            raise torch.OutOfMemoryError("no more")
        return real(children, *arguments, **options)

    whole = small_round(network, WIDTHS)
    monkeypatch.setattr(parts, "train", short_of_memory)
    in_parts = small_round(network, WIDTHS, callback=events.append)
    assert attempts == [5, 3, 2, 2, 1]
    assert [event.children_at_once for event in events if isinstance(event, OutOfMemory)] == [3, 2]
    assert_alike(whole, in_parts)


def test_a_single_child_that_does_not_fit_is_an_error(network, monkeypatch):
    def short_of_memory(*_arguments, **_options):
        raise torch.OutOfMemoryError("no more")

    monkeypatch.setattr(parts, "train", short_of_memory)
    with pytest.raises(torch.OutOfMemoryError):
        small_round(network, WIDTHS[:1])


def raise_for(monkeypatch, wrong, error):
    """Make every stack with a child of these widths raise; return the sizes of the stacks tried."""
    real, tried = parts.train, []

    def train(children, *arguments, **options):
        tried.append(children.count)
        if wrong in children.widths:
            raise error
        return real(children, *arguments, **options)

    monkeypatch.setattr(parts, "train", train)
    return tried


def test_a_child_that_raises_fails_alone(network, monkeypatch):
    whole = small_round(network, WIDTHS)
    tried = raise_for(monkeypatch, (0, 0), ValueError("a bad\nday"))
    children = small_round(network, WIDTHS)
    assert tried == [5, 1, 1, 1, 1, 1], "which of them was it?"
    assert [child.failure for child in children] == ["", "", "ValueError: a bad day", "", ""]
    assert [math.isnan(child.fit.accuracy) for child in children] == [False, False, True, False, False]
    assert [child.growth.widths for child in children] == WIDTHS
    assert children[2].growth.tensors == {}
    assert_alike(whole[:2] + whole[3:], children[:2] + children[3:])


def test_a_child_that_diverges_fails_with_that_reason(network):
    children = small_round(network, WIDTHS[:2], recipe=Recipe("sgd", learning_rate=1e30, batch_size=16, epochs=2))
    assert [child.failure for child in children] == ["the loss was not finite"] * 2
    assert [child.growth.tensors for child in children] == [{}, {}]


@pytest.mark.parametrize(
    "error",
    [
        InputError("wrong"),
        WorkError("failed"),
        RuntimeError("CUDA error: device-side assert"),
        UserWarning("slow"),
        KeyboardInterrupt(),
    ],
)
@pytest.mark.parametrize("widths", [WIDTHS, [(0, 0)]], ids=["together", "alone"])
def test_what_is_not_a_childs_fault_is_raised(network, monkeypatch, error, widths):
    tried = raise_for(monkeypatch, (0, 0), error)
    with pytest.raises(type(error)):
        small_round(network, widths)
    assert tried == [len(widths)]


def test_memory_of_the_cpu_that_runs_out_halves_too(network, monkeypatch):
    events = []
    tried = raise_for(monkeypatch, (0, 0), RuntimeError("DefaultCPUAllocator: not enough memory"))
    with pytest.raises(RuntimeError, match="not enough memory"):
        small_round(network, WIDTHS, callback=events.append)
    assert [event.children_at_once for event in events if isinstance(event, OutOfMemory)] == [3, 2, 1]
    assert tried == [5, 3, 2, 2, 1, 1, 1], "each number starts the round again"


def test_no_more_children_than_asked_are_trained_at_once(network, monkeypatch):
    tried = raise_for(monkeypatch, None, ValueError)
    in_parts = small_round(network, WIDTHS, children_at_once=2)
    assert tried == [2, 2, 1]
    assert [child.growth.widths for child in in_parts] == WIDTHS


def test_a_round_is_plain_data_and_trains_to_the_same_bits_wherever_it_is_sent(network):
    reads = ((0,), (), (0,), (), (0,))
    asked = Round("search", 1, 3, tuple(WIDTHS), (5, 6, 7, 8, 9), 3, (4, 4), Recipe(batch_size=16, epochs=1), reads)
    sent = parse_value(Round, json.loads(json.dumps(to_plain(asked))), "round")
    assert sent == asked
    elsewhere = ExpandableNetwork(from_json(json.loads(json.dumps(to_json(network.graph)))), network.settings)
    facts, tensors = network.stored()
    elsewhere.restore(json.loads(json.dumps(facts)), tensors, [3])
    data = task_to_device(hard_stream()[1], 1, "cpu")
    here, there = LocalTrainer()(asked, network, data), LocalTrainer()(sent, elsewhere, data)
    for one, other in zip(here, there, strict=True):
        assert (one.growth.widths, one.fit.accuracy) == (other.growth.widths, other.fit.accuracy)
        assert all(torch.equal(tensor, other.growth.tensors[name]) for name, tensor in one.growth.tensors.items())


def test_whoever_asked_is_called_before_a_halved_round_is_tried_again(network, monkeypatch):
    halved = []
    tried = raise_for(monkeypatch, (0, 0), RuntimeError("DefaultCPUAllocator: not enough memory"))
    with pytest.raises(RuntimeError, match="not enough memory"):
        small_round(network, WIDTHS, on_halving=lambda at_once: halved.append((at_once, len(tried))))
    assert halved == [(3, 1), (2, 2), (1, 4)]

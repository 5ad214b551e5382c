"""GEM: the gradients of memories, the projection, and what is kept."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from method_examples import RECIPE, hard_stream, small_cnn, small_mlp
from torch import nn

from bocl.errors import ConfigError, NetworkError
from bocl.methods.gem import GEM, RIDGE, GEMSettings, StoredSamples, dual
from bocl.methods.method import State, split_extra
from bocl.methods.saving import load
from bocl.methods.sn import SN
from bocl.networks.architectures import lenet, resnet
from bocl.networks.plain import PlainNetwork
from bocl.networks.trace import trace
from bocl.tasks.task import Split


def make(network, recipe=RECIPE, **settings):
    return GEM(network, settings=GEMSettings(**settings), recipe=recipe, device="cpu")


def learn(learner, *tasks):
    for task in tasks:
        learner.learn(hard_stream()[task])
    return learner


# -- the dual problem ------------------------------------------------------------------------------


def problem(tasks, parameters, seed):
    """Return G (T, P) and g (P,) with at least one row that g is against."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(tasks, parameters)) * rng.lognormal(0, 2, (tasks, 1))
    g = rng.normal(size=parameters)
    rows[0] *= -np.sign(rows[0] @ g)
    return rows, g


def every_active_set(products, along, margin):
    """Return the one v ≥ margin whose slope is zero off the margin and not negative on it, by trying all sets."""
    for free in product((True, False), repeat=len(along)):
        free = np.array(free)
        v = np.full(len(along), margin)
        v[free] = np.linalg.solve(products[np.ix_(free, free)], -along[free] - products[np.ix_(free, ~free)] @ v[~free])
        slope = products @ v + along
        if (v >= margin).all() and (slope[~free] >= 0).all():
            return v
    raise AssertionError("no set of constraints fits")


@pytest.mark.parametrize("margin", [0.0, 0.5])
@pytest.mark.parametrize("tasks", [1, 2, 5, 8])
@pytest.mark.parametrize("seed", range(4))
def test_the_dual_agrees_with_a_reference_solver(tasks, margin, seed):
    rows, g = problem(tasks, 12, seed)
    products, along = rows @ rows.T, rows @ g
    raised = products + RIDGE * np.diag(products.diagonal())
    np.testing.assert_allclose(dual(products, along, margin), every_active_set(raised, along, margin), rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("margin", [0.0, 0.5])
@pytest.mark.parametrize("seed", range(5))
def test_after_the_projection_no_memory_is_stepped_against(margin, seed, scale):
    rows, g = problem(6, 40, seed)
    rows = rows * scale
    v = dual(rows @ rows.T, rows @ g, margin)
    projected = g + rows.T @ v
    assert (rows @ projected >= -1.01 * RIDGE * np.square(rows).sum(1) * v).all()


def test_one_memory_is_projected_away_from_exactly():
    row, g = np.array([[3.0, 0.0]]), np.array([-2.0, 5.0])
    v = dual(row @ row.T, row @ g, 0.0)
    np.testing.assert_allclose(g + row.T @ v, [0.0, 5.0], atol=1e-5)


def test_memories_that_are_the_same_or_empty_have_an_answer():
    row = np.array([1.0, 2.0])
    rows, g = np.stack([row, row, 0 * row]), np.array([-1.0, -1.0])
    projected = g + rows.T @ dual(rows @ rows.T, rows @ g, 0.0)
    np.testing.assert_allclose(row @ projected, 0, atol=1e-4)


# -- gradients of memories -------------------------------------------------------------------------


def grouped():
    """Return a network with a group norm and activations that move zero."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.Sigmoid(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Dropout(0.5), nn.Linear(36, 5, bias=False), nn.Softplus(), nn.Linear(5, 3, bias=False),
    )  # fmt: skip


def remembered(module, shape, classes, shared_head=False):
    """Return an untrained network and memories of unequal size."""
    network = PlainNetwork(trace(module), shared_head=shared_head)
    draw, memory = torch.Generator().manual_seed(0), []
    for task, count in enumerate(classes):
        network.add_task(count, seed=task)
        labels = torch.arange(7 + 2 * task) % count
        memory.append(Split(torch.randn(len(labels), *shape, generator=draw), labels))
    for name, tensor in network.tensors.items():
        if name.endswith(("/mean", "/var")):
            tensor += torch.rand(tensor.shape, generator=draw)
    return network, memory


CASES = {
    "mlp": (small_mlp, (2, 6, 6), (3, 2, 4)),
    "cnn": (small_cnn, (2, 6, 6), (3, 2, 4)),
    "grouped": (grouped, (2, 6, 6), (3, 2, 4)),
    "lenet": (lambda: lenet(3, 2), (3, 32, 32), (2, 5)),
    "resnet": (lambda: resnet(3, (2, 3)), (3, 16, 16), (2, 3)),
}


@pytest.mark.parametrize("shared_head", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_one_pass_gives_the_gradients_task_by_task(case, shared_head):
    module, shape, classes = CASES[case]
    classes = (3,) * len(classes) if shared_head else classes
    network, memory = remembered(module(), shape, classes, shared_head)
    memories = StoredSamples(network, memory, 0.5)
    network.add_task(3, seed=9)
    trained = network.trainable()
    statistics = {name: tensor.clone() for name, tensor in trained.buffers.items()}
    found = memories.gradients(trained)
    assert all(torch.equal(trained.buffers[name], tensor) for name, tensor in statistics.items())
    assert list(found) == sorted(found)  # a model that was saved gives its tensors in another order
    trained.training = False
    for task, split in enumerate(memory):
        for parameter in trained.parameters.values():
            parameter.grad = None
        F.cross_entropy(trained(split.raw, task)[0], split.labels).backward()
        for name, gradient in found.items():
            torch.testing.assert_close(gradient[task], trained.parameters[name].grad[0], rtol=1e-3, atol=1e-6)
    assert any(name.startswith("head") for name in found) == shared_head
    assert found.keys() == {name for name in trained.parameters if network.is_shared(name)}


def steer(memories, trained):
    for host_part in memories.steer(trained, trained.parameters):
        host_part()


def steered(direction, margin=0.0):
    """Return gradients before and after steering: the sum of the memories' gradients, in or against their direction."""
    network, memory = remembered(small_cnn(), (2, 6, 6), (3, 2, 4))
    memories = StoredSamples(network, memory, margin)
    network.add_task(3, seed=9)
    trained = network.trainable()
    rows = memories.gradients(trained)
    for name, parameter in trained.parameters.items():
        noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name)))
        towards = rows[name].sum(0) if name in rows else 0
        parameter.grad = 1e-3 * noise + direction * towards
    before = {name: parameter.grad.clone() for name, parameter in trained.parameters.items()}
    steer(memories, trained)
    return rows, before, {name: parameter.grad for name, parameter in trained.parameters.items()}


def along(rows, gradients):
    return sum(rows[name].flatten(1) @ gradients[name].flatten() for name in rows)


def test_a_gradient_no_memory_is_against_is_left_alone():
    rows, before, after = steered(+3, margin=0.5)
    assert (along(rows, before) >= 0).all()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_a_gradient_a_memory_is_against_is_projected(margin):
    rows, before, after = steered(-3, margin)
    largest = max(float(along(rows, {name: row[task] for name, row in rows.items()}).max()) for task in range(3))
    assert (along(rows, before) < 0).any()
    assert (along(rows, after) >= -1e-4 * largest).all()
    assert margin > 0 or (along(rows, after) < 1e-2 * largest).any()  # no further than needed
    heads = [name for name in before if name not in rows]
    assert heads
    assert all(torch.equal(before[name], after[name]) for name in heads)


@pytest.mark.parametrize(("gradient", "pixel"), [(-torch.inf, 0.0), (0.5, torch.inf)])
def test_numbers_that_are_not_finite_are_left_for_the_training_to_tell(gradient, pixel):
    network, memory = remembered(small_mlp(), (2, 6, 6), (3,))
    memories = StoredSamples(network, memory, 0.5)
    memories.inputs[0, 0] += pixel
    trained = network.trainable()
    for parameter in trained.parameters.values():
        parameter.grad = torch.full_like(parameter, gradient)
    steer(memories, trained)
    assert not trained.parameters["layer/fc1/rows"].grad.isfinite().any()


# -- the method ------------------------------------------------------------------------------------


def test_it_forgets_less_than_fine_tuning():
    def loss_of_first(learner):
        task = hard_stream()[0]
        return F.cross_entropy(learn(learner, 0, 1, 2).predict(task.train.raw, 0), task.train.labels).item()

    sgd = replace(RECIPE, optimiser="sgd", learning_rate=0.05, epochs=10)
    free = loss_of_first(SN(small_mlp(), recipe=sgd, device="cpu"))
    assert loss_of_first(make(small_mlp(), sgd)) < 0.8 * free


def test_a_first_task_is_learnt_as_by_fine_tuning():
    steered, free = learn(make(small_cnn()), 0), learn(SN(small_cnn(), recipe=RECIPE, device="cpu"), 0)
    assert all(torch.equal(tensor, steered.network.tensors[name]) for name, tensor in free.network.tensors.items())


def test_so_many_training_samples_of_every_task_are_kept():
    learner = learn(make(small_mlp(), memories=10), 0, 1)
    for task, kept in enumerate(learner.samples):
        train = hard_stream()[task].train
        places = [int((train.raw == x).flatten(1).all(1).nonzero()) for x in kept.raw]
        assert len(set(places)) == 10
        assert places != sorted(places)
        assert torch.equal(train.labels[places], kept.labels)
    assert len(learn(make(small_mlp()), 0).samples[0]) == len(hard_stream()[0].train)  # fewer than asked for


def test_memories_that_are_shown_are_counted():
    learner = make(small_mlp(), memories=10)
    first, second, third = (learner.learn(hard_stream()[task]) for task in range(3))
    samples = first.effort.samples
    steps = samples // RECIPE.batch_size
    assert second.effort.samples == samples + 10 * steps
    assert third.effort.samples == samples + 20 * steps


def byte_tasks():
    from bocl.tasks.arrays import from_arrays

    rng = np.random.default_rng(0)
    return from_arrays([(rng.integers(0, 256, (40, 2, 6, 6), dtype=np.uint8), np.arange(40) % 3) for _ in range(2)])


def test_bytes_are_kept_as_bytes_and_scaled_as_they_were(tmp_path):
    learner = make(small_mlp())
    learner.learn(byte_tasks()[0])
    assert learner.samples[0].raw.dtype == torch.uint8
    learner.save(tmp_path / "model")
    loaded = load(tmp_path / "model", device="cpu")
    assert torch.equal(loaded.samples[0].inputs(), learner.samples[0].inputs())
    assert loaded.samples[0].inputs().abs().max() <= 10


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda memory: memory.pop("0/labels"), "other tasks than the 2"),
        (lambda memory: memory.update({"2/raw": memory["1/raw"]}), "other tasks than the 2"),
        (lambda memory: memory.update({"0/raw": memory["0/raw"][:, :1]}), "task 0 are not samples"),
        (lambda memory: memory.update({"1/raw": memory["1/raw"].byte()}), "task 1 are not samples"),
        (lambda memory: memory["0/raw"].fill_(torch.nan), "task 0 are not samples"),
        (lambda memory: memory.update({"0/labels": memory["0/labels"].float()}), "task 0 are not samples"),
        (lambda memory: memory.update({"0/labels": memory["0/labels"][1:]}), "task 0 are not samples"),
        (lambda memory: [memory.update({name: memory[name][:0]}) for name in memory], "task 0 are not samples"),
        (lambda memory: [memory.update({name: torch.cat([memory[name]] * 2)}) for name in memory], "task 0 are not"),
        (lambda memory: memory["0/labels"].fill_(3), "labels beyond its 3 classes"),
        (lambda memory: memory["1/labels"].fill_(-1), "labels beyond its 2 classes"),
    ],
)
def test_saved_samples_that_cannot_be_are_refused(change, reason):
    learner = learn(make(small_mlp(), memories=12), 0, 1)
    memory = {name: tensor.clone() for name, tensor in split_extra(learner.state().tensors)[0].items()}
    learner._check_kept(State({}, memory), learner.seen)
    change(memory)
    with pytest.raises(NetworkError, match=reason):
        learner._check_kept(State({}, memory), learner.seen)


@pytest.mark.parametrize(
    ("name", "value"),
    [("memories", 0), ("memories", 2.5), ("margin", -0.1), ("margin", None), ("margin", np.inf), ("shared_head", 1)],
)
def test_settings_that_cannot_be_are_refused(name, value):
    with pytest.raises(ConfigError, match=rf"gem\.{name} is .*; it must be"):
        GEMSettings(**{name: value})

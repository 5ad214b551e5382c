"""A task with a teacher: what is learnt of training samples is what a frozen network says of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from training_examples import children, easy_task, state_of

from bocl.training import steps
from bocl.training.batches import Batch, DeviceSplit, DeviceTask
from bocl.training.hooks import Hooks
from bocl.training.recipe import Recipe
from bocl.training.steps import StepCache, batch_losses
from bocl.training.trainer import train

QUICK = Recipe("sgd", learning_rate=0.05, batch_size=16, epochs=3)


def teacher(x):
    """Return logits of three classes for samples of four numbers."""
    return x @ torch.linspace(-2, 1, 12).view(4, 3)


def taught(say=teacher, **changes):
    return replace(easy_task(), teacher=say, **changes)


def test_the_loss_is_the_divergence_from_the_teacher_and_a_constant():
    network, places = children(2), torch.arange(7)
    weights = torch.tensor([0.5, 1.0, 3.0])
    task = taught(class_weights=weights)
    x, labels = task.train.take(places)
    given = teacher(x).softmax(1)
    divergence = F.kl_div(network(x).log_softmax(2), given.expand(2, -1, -1), reduction="none").sum(2)
    each = divergence - (given * given.log()).sum(1)
    found = batch_losses(network, task, Batch(places), "float32")
    torch.testing.assert_close(found, (each * weights[labels]).mean(1))
    known = given.new_zeros(len(task.train), 3)
    known[places] = given
    assert torch.equal(batch_losses(network, task, Batch(places), "float32", targets=known), found)


def test_networks_learn_what_the_teacher_says_and_not_the_labels():
    task = taught()
    wrong = replace(task.train, labels=(task.train.labels + 1) % 3)
    network, other = children(2), children(2)
    recipe = Recipe(epochs=40, learning_rate=0.02, weight_decay=0)
    train(network, [replace(task, train=wrong)], recipe, seed=0)
    train(other, [task], recipe, seed=0)
    said, given = network(task.train.inputs).softmax(2), teacher(task.train.inputs).softmax(1)
    assert (said - given).abs().mean() < 0.05
    for child in range(2):
        for name, tensor in state_of(other, child).items():
            assert torch.equal(state_of(network, child)[name], tensor), name


def test_a_teacher_that_is_sure_of_the_labels_trains_as_they_do():
    task = easy_task()
    sure = {tuple(x.tolist()): y for x, y in zip(task.train.inputs, task.train.labels, strict=True)}
    say = lambda x: 100 * F.one_hot(torch.stack([sure[tuple(row.tolist())] for row in x]), 3).float()  # noqa: E731
    one, other = children(), children()
    train(one, [task], QUICK, seed=0)
    train(other, [replace(task, teacher=say)], QUICK, seed=0)
    for name, tensor in state_of(other).items():
        torch.testing.assert_close(tensor, state_of(one)[name])


@pytest.mark.parametrize(("augment", "asked"), [("off", 61), ("flip", 3 * 64)])
def test_it_is_asked_once_for_all_samples_unless_they_change(augment, asked):
    inputs, shown = torch.randn(60, 1, 2, 2, generator=torch.Generator().manual_seed(0)), []

    def say(x):
        assert not torch.is_grad_enabled()
        shown.extend(x)
        return teacher(x.flatten(1))

    split = DeviceSplit(inputs, torch.arange(60) % 3)
    network = children(module=nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.Linear(6, 3)))
    train(network, [DeviceTask("images", 0, 3, split, split, teacher=say)], replace(QUICK, augment=augment), seed=0)
    assert len(shown) == asked
    as_they_are = {tuple(x.flatten().tolist()) for x in inputs}
    assert all(tuple(x.flatten().tolist()) in as_they_are for x in shown) == (augment == "off")


def test_a_captured_step_is_not_used_for_another_teacher(monkeypatch):
    captured = []
    monkeypatch.setattr(steps, "GraphedStep", lambda *parts: captured.append(parts) or nn.Module())
    cache, network, task = StepCache(), children(), easy_task()
    monkeypatch.setattr(nn.Module, "load", lambda *_: None, raising=False)
    for one in (task, taught(), task, replace(task, teacher=lambda x: -teacher(x))):
        cache.step(network, [one], QUICK, Hooks())
    assert len(captured) == 3

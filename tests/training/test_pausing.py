"""A training that pauses, and goes on with some of its networks, is the training it would have been."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from test_graphs import gpu_children, on_gpu
from test_trainer import assert_same
from torch import nn
from training_examples import Scripted, children, count_epochs, easy_task, scripted_task, state_of

from bocl.networks.architectures import mlp
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.trace import trace
from bocl.training.hooks import Hooks
from bocl.training.recipe import Recipe
from bocl.training.steps import StepCache
from bocl.training.trainer import Training, train

SGD = Recipe("sgd", learning_rate=0.05, batch_size=16, epochs=6, schedule="cosine")
ADAM = replace(SGD, optimiser="adam", learning_rate=0.02)
AVERAGED = [replace(ADAM, average="last", average_share=0.5), replace(SGD, average="exponential", patience=4)]

MODULES = {
    "mlp": lambda: mlp(4, [6], 3),
    "batch norm": lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)),
    "masks": lambda: nn.Sequential(nn.Linear(4, 6), nn.Sigmoid(), nn.Linear(6, 5), nn.Sigmoid(), nn.Linear(5, 3)),
    "dropout": lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)),
}


def started(network, recipe, dtype=torch.float32):
    return Training(network, [easy_task(dtype=dtype)], recipe, seed=4)


def grown(widths, module=None, pad_to=(4, 4)):
    """Children of unequal widths that grow from a network with one task."""
    network = ExpandableNetwork(trace(module or mlp(4, [6, 5], 3)))
    network.commit(network.grow([network.graph.widths], 3, seeds=[0], dtype=torch.float64).growth(0))
    groups = len(network.graph.groups)
    cut = [z[:groups] for z in widths]
    return network.grow(cut, 3, seeds=range(len(widths)), pad_to=pad_to[:groups], dtype=torch.float64)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("recipe", [SGD, ADAM, replace(SGD, patience=2), replace(SGD, momentum=0.0), *AVERAGED])
def test_a_training_that_pauses_has_the_bits_of_one_that_does_not(module, recipe):
    plain, paused = (children(3, module=MODULES[module]()) for _ in range(2))
    wanted = train(plain, [easy_task()], recipe, seed=4)
    training = started(paused, recipe)
    for until in (1, 2, 2, 5):
        training.advance(until)
        training.fits()
        training.keep([0, 1, 2])
    assert training.finish() == wanted
    assert_same(dict(paused.state), dict(plain.state))


@pytest.fixture
def every_warning():
    """Torch says most things once in a process, so the second test that hears of them would not."""
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


@pytest.mark.usefixtures("every_warning")
def test_who_stays_trains_on_without_a_warning_where_a_layer_adds_no_weights():
    """Warnings are errors here, as they may be for users, and an error is a child that failed."""
    pixels = nn.Sequential(nn.Conv2d(4, 5, 1), nn.Sigmoid(), nn.Conv2d(5, 6, 1), nn.Sigmoid(), nn.Flatten())
    children = grown([(0, 0)] * 3, nn.Sequential(*pixels, nn.Linear(6, 3)), pad_to=(0, 0))
    task = easy_task(dtype=torch.float64)
    splits = {"train": task.train, "validation": task.validation}
    images = {name: replace(split, inputs=split.inputs[:, :, None, None]) for name, split in splits.items()}
    training = Training(children, [replace(task, **images)], ADAM, seed=4)
    training.advance(2)
    training.keep([0, 2])
    assert all(math.isfinite(fit.accuracy) for fit in training.finish())


@pytest.mark.parametrize("module", ["mlp", "batch norm", "masks"])
@pytest.mark.parametrize("recipe", [SGD, ADAM, replace(ADAM, patience=3), *AVERAGED])
def test_who_stays_takes_the_steps_it_would_have_taken(module, recipe):
    """Up to rounding: a product of fewer children may add up in another order."""
    widths = [(1, 0), (4, 2), (0, 3), (2, 4), (3, 1)]
    whole, cut = (grown(widths, MODULES[module]()) for _ in range(2))
    fits = train(whole, [easy_task(dtype=torch.float64)], recipe, seed=4)
    training = started(cut, recipe, torch.float64)
    training.advance(2)
    training.keep([4, 1, 2])
    training.advance(4)
    training.keep([1, 2])
    assert [fit.accuracy for fit in training.finish()] == [fits[at].accuracy for at in (1, 2)]
    assert training.network.widths == [widths[at][: len(whole.pad_to)] for at in (1, 2)]
    for place, at in enumerate((1, 2)):
        wanted, found = whole.growth(at), training.network.growth(place)
        assert (found.widths, found.tensors.keys()) == (wanted.widths, wanted.tensors.keys())
        for name, tensor in wanted.tensors.items():
            torch.testing.assert_close(found.tensors[name], tensor, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("recipe", "remembered"), [(SGD, 1), (ADAM, 3)])
def test_what_the_optimiser_remembers_goes_on(recipe, remembered):
    """Without it the weights end elsewhere: the other tests would see a difference."""
    ends = []
    for forget in (False, True):
        training = started(children(3), recipe)
        training.advance(3)
        assert {len(values) for values in training._moments.values()} == {remembered}
        if forget:
            training._moments = {}
        training.keep([0, 2])
        training.finish()
        ends.append(state_of(training.network)["head/weight"])
    assert not torch.allclose(*ends)


def test_dropout_goes_on_drawing_after_a_cut_and_follows_the_seed():
    def trained(rungs):
        training = started(children(3, module=MODULES["dropout"]()), SGD)
        for until in rungs:
            training.advance(until)
        training.keep([0, 2])
        training.finish()
        return state_of(training.network)

    assert_same(trained([3]), trained([3]))
    assert_same(trained([3]), trained([1, 2, 3]))


def test_who_leaves_has_seen_less():
    training = started(children(4), SGD)
    training.advance(2)
    before = training.fits()
    assert [(fit.epochs, fit.effort.samples) for fit in before] == [(2, 2 * 64)] * 4
    assert before == training.fits(), "looking changes nothing"
    training.keep([3])
    (fit,) = training.finish()
    assert (fit.epochs, fit.effort.samples) == (6, 6 * 64)
    assert fit.effort.seconds > before[3].effort.seconds > 0


def test_a_training_that_waits_keeps_no_gradients():
    training = started(children(2), SGD)
    training.advance(1)
    assert all(parameter.grad is None for parameter in training.network.parameters.values())


def test_fits_have_the_accuracies_and_confidences_of_now():
    task, network = easy_task(), children(2)
    training = Training(network, [task], SGD, seed=4)
    training.advance(1)
    logits, labels = network(task.validation.inputs, 0).detach(), task.validation.labels
    assert [fit.accuracy for fit in training.fits()] == (logits.argmax(2) == labels).double().mean(1).tolist()
    sure = [[float(row.double().softmax(0)[label]) for row, label in zip(rows, labels, strict=True)] for rows in logits]
    assert [fit.confidence for fit in training.fits()] == pytest.approx([sum(row) / len(row) for row in sure])


def test_a_network_that_is_not_finite_has_no_scores():
    network = children(3)
    with torch.no_grad():
        next(iter(network.parameters.values()))[1] = torch.nan
    training = started(network, SGD)
    training.advance(1)
    assert [math.isnan(fit.accuracy) for fit in training.fits()] == [False, True, False]
    assert [math.isnan(fit.confidence) for fit in training.fits()] == [False, True, False]
    training.keep([0, 2])
    assert all(math.isfinite(fit.accuracy) for fit in training.finish())


# -- patience --------------------------------------------------------------------------------------


class Divisible(Scripted):
    """Scripted networks of which some can go on."""

    def kept(self, which):
        """Return some of them."""
        made = Divisible([[row[at] for at in which] for row in self.script])
        made.weight.data, made.statistic = self.weight.data[list(which)], self.statistic[list(which)]
        return made


def scripted(script, patience):
    recipe = Recipe("sgd", 1.0, momentum=0.0, weight_decay=0.0, batch_size=10, epochs=len(script), patience=patience)
    hooks = Hooks(adjust_gradients=count_epochs)
    return Training(Divisible(script), [scripted_task()], recipe, seed=0, hooks=hooks)


def test_with_patience_scores_are_those_of_the_best_epoch_so_far():
    training = scripted([[1, 5, 2], [7, 4, 3], [6, 3, 4], [6, 2, 5], [6, 1, 6]], patience=4)
    training.advance(3)
    assert [fit.accuracy for fit in training.fits()] == [0.7, 0.5, 0.4]
    confidences = [fit.confidence for fit in training.fits()]
    assert confidences == sorted(confidences, reverse=True)
    assert len(set(confidences)) == 3, "as the accuracies: a scripted network is as sure in every answer"
    training.keep([2, 0])
    assert [fit.accuracy for fit in training.finish()] == [0.6, 0.7]
    assert training.network.weight.flatten().tolist() == [5, 2], "the states of these epochs"
    assert training.network.statistic.flatten().tolist() == [5, 2]


def test_a_network_out_of_patience_stays_so_after_a_cut():
    training = scripted([[5, 1, 1], [4, 2, 1], [4, 3, 1], [9, 4, 1], [9, 5, 1], [9, 5, 1]], patience=2)
    training.advance(3)
    training.keep([0, 1])
    assert [fit.accuracy for fit in training.finish()] == [0.5, 0.5]
    assert training.network.weight.flatten().tolist() == [1, 5]


def test_training_ends_when_all_that_stay_are_out_of_patience():
    training = scripted([[5, 1], [4, 2], [4, 3], [9, 4], [9, 5], [9, 5]], patience=2)
    training.advance(3)
    training.keep([0])
    training.advance(5)
    (fit,) = training.finish()
    assert (fit.epochs, fit.accuracy, training.network.weight.item()) == (3, 0.5, 1)


# -- on a GPU --------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("recipe", [SGD, ADAM, replace(ADAM, patience=3), *AVERAGED])
def test_captured_trainings_that_take_turns_do_not_disturb_each_other(recipe):
    """Trainings of one shape share a captured step; each pause takes everything out of it."""
    recipe, task, cache = replace(recipe, precision="float32"), on_gpu(), StepCache()
    wanted = []
    for seed in (4, 5):
        whole = gpu_children(4)
        fits = train(whole, [task], recipe, seed=seed, graphed=False)
        wanted.append((whole, fits))
    both = [Training(gpu_children(4), [task], recipe, seed=seed, cache=cache) for seed in (4, 5)]
    for until, which in ((1, [0, 1, 2, 3]), (3, [3, 1]), (5, [1])):
        for training in both:
            training.advance(until)
        for training in both:
            training.keep(which)
    for training, (whole, fits) in zip(both, wanted, strict=True):
        (fit,) = training.finish()
        assert fit.accuracy == fits[1].accuracy
        for name, tensor in training.network.growth(0).tensors.items():
            torch.testing.assert_close(tensor, whole.growth(1).tensors[name], rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
def test_a_captured_training_draws_the_same_after_a_pause_whoever_captured_before():
    owner = ExpandableNetwork(trace(MODULES["dropout"]()), device="cuda")
    task, cache, ends = on_gpu(), StepCache(), []
    train(owner.grow([owner.graph.widths] * 3, 3, seeds=range(3)), [task], SGD, seed=4, cache=cache)
    for _ in range(2):
        network = owner.grow([owner.graph.widths] * 3, 3, seeds=range(3))
        training = Training(network, [task], SGD, seed=4, cache=cache)
        training.advance(3)
        training.keep([0, 2])
        training.finish()
        ends.append(training.network.growth(0).tensors)
    assert_same(*ends)

"""The training loop: K networks at once, each as if it were alone."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from training_examples import Scripted, children, count_epochs, easy_task, scripted_task, state_of

from bocl.networks.architectures import mlp
from bocl.networks.plain import PlainNetwork
from bocl.networks.trace import trace
from bocl.seeding import seed_for
from bocl.training import trainer
from bocl.training.batches import Batch
from bocl.training.hooks import Hooks
from bocl.training.recipe import Recipe
from bocl.training.steps import batch_losses
from bocl.training.trainer import train

QUICK = Recipe("sgd", learning_rate=0.05, batch_size=16, epochs=3)


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


# -- what a training is ----------------------------------------------------------------------------


def test_an_easy_task_is_learnt():
    (fit,) = train(children(), [easy_task()], Recipe(epochs=20, learning_rate=0.01), seed=0)
    assert fit.accuracy > 0.9
    assert fit.loss < 0.3
    assert fit.epochs == 20
    assert fit.effort.samples == 20 * 64  # 60 samples in two batches of 32


def test_one_seed_gives_one_result():
    first, second = children(), children()
    torch.manual_seed(0)
    fits = train(first, [easy_task()], QUICK, seed=4)
    torch.manual_seed(1)
    assert train(second, [easy_task()], QUICK, seed=4) == fits
    assert_same(state_of(first), state_of(second))


def test_another_seed_shows_other_batches():
    first, second = children(), children()
    train(first, [easy_task()], QUICK, seed=4)
    train(second, [easy_task()], QUICK, seed=5)
    assert not torch.equal(state_of(first)["head/weight"], state_of(second)["head/weight"])


def test_dropout_follows_the_seed_too(monkeypatch):
    def trained(share: float = 0.5) -> dict[str, torch.Tensor]:
        network = children(module=nn.Sequential(nn.Linear(4, 8), nn.Dropout(share), nn.Linear(8, 3)))
        train(network, [easy_task()], QUICK, seed=1)
        return state_of(network)

    def differ(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
        return not torch.equal(one["head/weight"], other["head/weight"])

    dropped = trained()
    assert_same(dropped, trained())
    assert differ(dropped, trained(share=0.0)), "nothing was dropped out"
    seeds = {"dropout": 99}  # the same batches, other draws
    monkeypatch.setattr(trainer, "seed_for", lambda seed, what, *more: seeds.get(what) or seed_for(seed, what, *more))
    assert differ(dropped, trained()), "the seed does not reach dropout"


@pytest.mark.usefixtures("two_threads")
def test_the_global_random_state_and_threads_are_left_as_they_were():
    network = children(module=nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)))
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    train(network, [easy_task()], QUICK, seed=0)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.get_num_threads() == 2


def test_the_network_is_left_in_evaluation():
    network = children()
    train(network, [easy_task()], QUICK, seed=0)
    assert not network.training


@pytest.mark.parametrize(
    "change",
    [{"weight_decay": 0.5}, {"momentum": 0.0}, {"schedule": "cosine"}, {"optimiser": "adam"}, {"batch_size": 8}],
)
def test_every_setting_of_a_recipe_matters(change):
    first, second = children(), children()
    train(first, [easy_task()], Recipe("sgd", 0.05, 0.9, 1e-4, 16, 2), seed=0)
    settings = {"optimiser": "sgd", "learning_rate": 0.05, "batch_size": 16, "epochs": 2} | change
    train(second, [easy_task()], Recipe(**settings), seed=0)
    assert not torch.equal(state_of(first)["head/weight"], state_of(second)["head/weight"])


def test_the_cosine_rate_falls_from_the_first_step_to_the_last():
    rates = []
    recipe = Recipe("sgd", learning_rate=0.2, momentum=0.0, batch_size=16, epochs=2, schedule="cosine")

    def note(parameters, step_size):
        rates.append(step_size(parameters["head/weight"]))

    train(children(), [easy_task()], recipe, seed=0, hooks=Hooks(proximal=note))
    assert rates == pytest.approx([0.1 * (1 + math.cos(math.pi * step / 8)) for step in range(8)])


# -- hooks -----------------------------------------------------------------------------------------


def test_the_loss_weighs_classes():
    task = easy_task(dtype=torch.float64)
    network, batch = children(2, dtype=torch.float64), torch.tensor([0, 1, 2, 4])  # labels 0, 1, 2, 1
    weighted = replace(task, class_weights=torch.tensor([0.5, 1.0, 4.0], dtype=torch.float64))
    logits = network(task.train.inputs[batch], 0)
    each = -logits.log_softmax(2)[:, torch.arange(4), task.train.labels[batch]]
    wanted = (each * torch.tensor([0.5, 1, 4, 1])).mean(1)
    torch.testing.assert_close(batch_losses(network, weighted, Batch(batch), "float32"), wanted)
    torch.testing.assert_close(batch_losses(network, task, Batch(batch), "float32"), each.mean(1))


def test_classes_of_weight_one_change_no_bit():
    plain, weighted = children(2), children(2)
    ones = replace(easy_task(), class_weights=torch.ones(3))
    assert train(plain, [easy_task()], QUICK, seed=0) == train(weighted, [ones], QUICK, seed=0)
    assert_same(dict(plain.state), dict(weighted.state))


def test_adjusted_gradients_are_the_ones_the_step_takes():
    network = children()
    before = state_of(network)

    def only_the_head(parameters):
        for name, parameter in parameters.items():
            assert parameter.grad is not None
            if not name.startswith("head"):
                parameter.grad.zero_()

    train(
        network,
        [easy_task()],
        Recipe("sgd", 0.1, weight_decay=0.0, epochs=1),
        seed=0,
        hooks=Hooks(adjust_gradients=only_the_head),
    )
    after = state_of(network)
    assert torch.equal(after["layer/fc1/rows"], before["layer/fc1/rows"])
    assert not torch.equal(after["head/weight"], before["head/weight"])


def test_the_host_may_decide_how_gradients_are_adjusted():
    def halve(parameters):
        for parameter in parameters.values():
            parameter.grad.mul_(0.5)

    def halve_as_told(parameters):
        factor = torch.zeros(())
        yield lambda: factor.fill_(0.5)
        for parameter in parameters.values():
            parameter.grad.mul_(factor)

    ends = []
    for adjust in (halve, halve_as_told):
        network = children()
        train(network, [easy_task()], QUICK, seed=0, hooks=Hooks(adjust_gradients=adjust))
        ends.append(state_of(network))
    assert_same(*ends)


def test_a_proximal_hook_may_change_the_weights_after_each_step():
    network, sizes = children(), []

    def clip(parameters, step_size):
        sizes.append(step_size(parameters["head/weight"]))
        parameters["head/weight"].clamp_(-0.01, 0.01)

    train(network, [easy_task()], QUICK, seed=0, hooks=Hooks(proximal=clip))
    assert sizes == pytest.approx([0.05 / (1 - QUICK.momentum)] * 12)  # four batches, three epochs
    assert state_of(network)["head/weight"].abs().max() <= 0.01


def test_every_epoch_is_told_with_its_loss_and_accuracy_the_one_that_stops_early_too():
    told = []
    recipe = Recipe("sgd", learning_rate=1.0, weight_decay=0.0, momentum=0.0, epochs=9, patience=2)
    network = Scripted([[5], [4], [4], [9], [9], [9], [9], [9], [9]])
    (fit,) = train(
        network,
        [scripted_task()],
        recipe,
        seed=0,
        hooks=Hooks(adjust_gradients=count_epochs),
        on_epoch=lambda *e: told.append(e),
    )
    assert [(done, total) for done, total, _, _ in told] == [(1, 9), (2, 9), (3, 9)]
    assert fit.epochs == 3
    assert [accuracies for *_, accuracies in told] == [(0.5,), (0.4,), (0.4,)]
    assert told[-1][2] == (fit.loss,)


def test_without_patience_an_epoch_is_told_without_an_accuracy():
    told = []
    fits = train(children(), [easy_task()], Recipe(epochs=2), seed=0, on_epoch=lambda *e: told.append(e))
    assert [accuracies for *_, accuracies in told] == [(), ()]
    assert told[-1][2] == tuple(fit.loss for fit in fits)
    assert told[0][2] != told[1][2]


# -- early stopping --------------------------------------------------------------------------------


def stopped(script, patience, **options):
    recipe = Recipe("sgd", 1.0, momentum=0.0, weight_decay=0.0, batch_size=10, epochs=len(script), patience=patience)
    network = Scripted(script, **options)
    fits = train(network, [scripted_task()], recipe, seed=0, hooks=Hooks(adjust_gradients=count_epochs))
    return network, fits


def test_each_network_keeps_its_own_best_epoch():
    script = [[1, 5, 2], [7, 4, 3], [6, 3, 4], [6, 2, 5], [6, 1, 6]]
    network, fits = stopped(script, patience=4)
    assert network.weight.flatten().tolist() == [2, 1, 5]
    assert [fit.accuracy for fit in fits] == pytest.approx([0.7, 0.5, 0.6])


def test_running_statistics_are_kept_of_the_best_epoch_too():
    network, _ = stopped([[1, 5], [7, 4], [6, 3]], patience=3)
    assert network.statistic.flatten().tolist() == [2, 1]


def test_training_ends_when_all_are_out_of_patience():
    network, fits = stopped([[5, 1], [4, 2], [4, 2], [4, 2], [9, 9], [9, 9]], patience=2)
    assert [fit.epochs for fit in fits] == [4, 4]
    assert network.weight.flatten().tolist() == [1, 2]


def test_a_network_out_of_patience_stays_stopped_while_others_go_on():
    script = [[5, 1], [4, 2], [4, 3], [9, 4], [9, 5], [9, 5], [9, 5]]
    together, fits = stopped(script, patience=2)
    for child in range(2):
        alone, (fit,) = stopped([[row[child]] for row in script], patience=2)
        assert together.weight[child].item() == alone.weight[0].item()
        assert fits[child].accuracy == pytest.approx(fit.accuracy)


def test_a_network_that_diverges_after_it_stopped_has_not_failed():
    script = [[5, 1], [4, 2], [4, 3], [4, 4], [4, 5], [4, 5], [4, 5]]
    network, fits = stopped(script, patience=2, nan_from={0: 5})
    assert fits[0].accuracy == pytest.approx(0.5)
    assert math.isfinite(fits[0].loss)
    assert network.weight[0].item() == 1


def test_without_patience_the_last_epoch_stays():
    network, fits = stopped([[9, 1], [1, 2], [2, 3]], patience=0)
    assert network.weight.flatten().tolist() == [3, 3]
    assert [fit.accuracy for fit in fits] == pytest.approx([0.2, 0.3])


# -- failure ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [mlp(4, [6], 3), nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))])
@pytest.mark.parametrize("patience", [0, 2])
def test_a_network_without_a_finite_loss_fails_alone(module, patience):
    recipe = Recipe("adam", learning_rate=0.01, batch_size=16, epochs=3, patience=patience)

    def trained(poison: bool) -> tuple[list[dict[str, torch.Tensor]], list[float]]:
        network = children(3, module=module)
        if poison:
            with torch.no_grad():
                next(iter(network.parameters.values()))[1] = torch.nan
        fits = train(network, [easy_task()], recipe, seed=0)
        return [state_of(network, index) for index in range(3)], [fit.accuracy for fit in fits]

    healthy, scores = trained(poison=False)
    states, poisoned = trained(poison=True)
    assert math.isnan(poisoned[1])
    assert all(math.isfinite(score) for score in scores)
    for index in (0, 2):
        assert poisoned[index] == scores[index]
        assert_same(states[index], healthy[index])


def test_a_network_that_diverges_in_its_very_last_step_has_failed():
    network = children()
    recipe = Recipe("sgd", learning_rate=1e30, momentum=0.0, weight_decay=0.0, batch_size=60, epochs=1)

    def steepen(parameters):
        for parameter in parameters.values():
            parameter.grad.mul_(1e20)

    (fit,) = train(network, [easy_task()], recipe, seed=0, hooks=Hooks(adjust_gradients=steepen))
    assert math.isfinite(fit.loss)
    assert math.isnan(fit.accuracy)


# -- several tasks ---------------------------------------------------------------------------------


def test_several_tasks_are_learnt_together_each_with_its_head():
    plain = PlainNetwork(trace(mlp(4, [12], 3)))
    tasks = [easy_task(0, classes=3), easy_task(1, classes=2, samples=40), easy_task(2, classes=4)]
    for number, classes in enumerate((3, 2, 4)):
        plain.add_task(classes, seed=number)
    network = plain.trainable()
    (fit,) = train(network, tasks, Recipe(learning_rate=0.01, batch_size=20, epochs=25), seed=0)
    plain.take(network)
    scores = []
    for task, classes in zip(tasks, (3, 2, 4), strict=True):
        logits = plain.predict(task.validation.inputs, task.index)
        assert logits.shape == (30, classes)
        scores.append((logits.argmax(1) == task.validation.labels).double().mean().item())
    assert min(scores) > 0.8
    assert fit.accuracy == pytest.approx(sum(scores) / 3)
    assert fit.effort.samples == 25 * (60 + 40 + 60)


def test_a_head_is_trained_by_its_own_task_alone():
    plain = PlainNetwork(trace(mlp(4, [12], 3)))
    for number in range(2):
        plain.add_task(3, seed=number)
    before = {name: tensor.clone() for name, tensor in plain.tensors.items()}
    network = plain.trainable()
    train(network, [easy_task(1)], Recipe(weight_decay=0.0, epochs=1), seed=0)
    plain.take(network)
    assert torch.equal(plain.tensors["head0/weight"], before["head0/weight"])
    assert not torch.equal(plain.tensors["head1/weight"], before["head1/weight"])


def test_a_tasks_batches_do_not_depend_on_its_companions():
    def watch(tasks):
        plain = PlainNetwork(trace(mlp(4, [5], 3)))
        for number in range(2):
            plain.add_task(3, seed=number)
        network = plain.trainable()
        seen: dict[int, list[torch.Tensor]] = {0: [], 1: []}
        original = type(network).__call__

        class Spy(type(network)):
            def __call__(self, x, task=0, precomputed=None):
                if self.training:
                    seen[task].append(x)
                return original(self, x, task, precomputed)

        network.__class__ = Spy
        train(network, tasks, Recipe(batch_size=16, epochs=2), seed=0)
        return seen

    alone, both = watch([easy_task(1)]), watch([easy_task(0), easy_task(1)])

    def batches(epoch):
        return sorted(batch.tolist() for batch in epoch)

    for epoch in (slice(0, 4), slice(4, 8)):
        assert batches(alone[1][epoch]) == batches(both[1][epoch])
    assert len(both[0]) == len(both[1]) == 8

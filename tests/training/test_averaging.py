"""Averaged weights: what is scored and kept is the mean of the weights over steps."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from test_trainer import assert_same
from torch import nn
from training_examples import children, easy_task, state_of

from bocl.errors import ConfigError
from bocl.training.averaging import add_to_averages, load_averages, new_averages, weight_of_step
from bocl.training.hooks import Hooks
from bocl.training.recipe import Recipe
from bocl.training.trainer import Training, train

RECIPE = Recipe("sgd", learning_rate=0.1, batch_size=16, epochs=3, average="last", average_share=0.5)
STEPS = 12  # four batches, three epochs


def with_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))


def averaged_values(recipe: Recipe, values: list[float]) -> float:
    parameters = {"w": torch.zeros(1)}
    averages = new_averages(parameters)
    for step, value in enumerate(values):
        parameters["w"].fill_(value)
        add_to_averages(averages, parameters, weight_of_step(recipe, step, len(values)))
    return averages["w"].item()


def test_last_is_the_plain_mean_of_the_last_steps():
    values = [5.0, -3.0, 1.0, 2.0, 6.0, 4.0]
    assert averaged_values(RECIPE, values) == pytest.approx((2 + 6 + 4) / 3)
    assert averaged_values(replace(RECIPE, average_share=1.0), values) == pytest.approx(2.5)
    assert averaged_values(replace(RECIPE, average_share=0.01), values) == 4.0


def test_exponential_forgets_after_a_start_with_the_plain_mean():
    recipe = replace(RECIPE, average="exponential", average_share=0.5)
    wanted = (5 - 3 + 1) / 3
    for value in (2.0, 6.0, 4.0):
        wanted += (value - wanted) / 3
    assert averaged_values(recipe, [5.0, -3.0, 1.0, 2.0, 6.0, 4.0]) == pytest.approx(wanted)


@pytest.mark.parametrize("share", [0.0, 1.5, -1])
def test_a_share_is_a_share(share):
    with pytest.raises(ConfigError, match=r"recipe\.average_share"):
        Recipe(average="last", average_share=share)


def test_a_network_ends_with_the_mean_of_its_own_steps():
    seen = []

    def watch(parameters, _step_size):
        seen.append(parameters["head/weight"][0].clone())

    network = children(dtype=torch.float64)
    train(network, [easy_task(dtype=torch.float64)], RECIPE, seed=0, hooks=Hooks(proximal=watch))
    assert len(seen) == STEPS
    torch.testing.assert_close(state_of(network)["head/weight"], torch.stack(seen[STEPS // 2 :]).mean(0))
    assert not torch.allclose(state_of(network)["head/weight"], seen[-1])


def test_averaging_changes_no_step():
    """Only what is kept differs: the weights that are trained are those without averages."""
    ends = []
    for recipe in (RECIPE, replace(RECIPE, average="off")):
        last = {}
        hooks = Hooks(proximal=lambda parameters, _, last=last: last.update(w=parameters["head/weight"].clone()))
        train(children(), [easy_task()], recipe, seed=0, hooks=hooks)
        ends.append(last)
    assert_same(*ends)


@pytest.mark.parametrize("module", [None, with_norm])
def test_each_of_a_stack_is_averaged_as_if_alone(module):
    made = None if module is None else module()
    stack = children(3, torch.float64, made)
    task = easy_task(dtype=torch.float64)
    fits = train(stack, [task], RECIPE, seed=0)
    for place in range(3):
        alone = children(3, torch.float64, made).kept([place])
        assert train(alone, [task], RECIPE, seed=0)[0].accuracy == fits[place].accuracy
        for name, tensor in state_of(alone).items():
            torch.testing.assert_close(state_of(stack, place)[name], tensor)


def test_the_statistics_of_norms_are_those_of_the_averaged_weights():
    recipe = replace(RECIPE, learning_rate=1.0, momentum=0.0)  # a rate at which every step leads elsewhere
    network, task = children(dtype=torch.float64, module=with_norm()), easy_task(dtype=torch.float64)
    train(network, [task], recipe, seed=0)
    own = state_of(network)
    (mean,) = (tensor for name, tensor in own.items() if name.endswith("/mean"))
    rows = next(tensor for name, tensor in own.items() if name.endswith("rows"))
    bias = next(tensor for name, tensor in own.items() if name.startswith("layer/") and name.endswith("bias"))
    hidden = task.train.inputs @ rows.T + bias
    deviation = hidden.std(0) / 60**0.5
    assert ((mean - hidden.mean(0)).abs() < 2 * deviation).all()
    plain = children(dtype=torch.float64, module=with_norm())
    train(plain, [task], replace(recipe, average="off"), seed=0)
    (other,) = (tensor for name, tensor in state_of(plain).items() if name.endswith("/mean"))
    assert not torch.allclose(mean, other, atol=0.1)


def test_scores_at_a_pause_are_of_the_averages_once_there_are_any():
    training = Training(children(2), [easy_task()], RECIPE, seed=0)
    untouched = Training(children(2), [easy_task()], replace(RECIPE, average="off"), seed=0)
    for one in (training, untouched):
        one.advance(1)
    assert training.fits()[0].confidence == untouched.fits()[0].confidence, "nothing is averaged yet"
    for one in (training, untouched):
        one.advance(2)
    assert training.fits()[0].confidence != untouched.fits()[0].confidence
    assert_same(dict(training.network.state), dict(untouched.network.state))


def test_what_a_method_has_set_to_zero_stays_zero():
    parameters = {"w": torch.tensor([2.0, 4.0])}
    averages = new_averages(parameters)
    add_to_averages(averages, parameters, 1.0)
    parameters["w"][0] = 0
    add_to_averages(averages, parameters, 0.5)
    load_averages(averages, parameters)
    assert parameters["w"].tolist() == [0.0, 4.0]


def test_a_weight_that_is_not_trained_keeps_its_bits():
    generator = torch.Generator().manual_seed(0)
    parameters = {"w": torch.randn(1000, generator=generator)}
    before, averages = parameters["w"].clone(), new_averages(parameters)
    for step in range(50):
        add_to_averages(averages, parameters, weight_of_step(RECIPE, step, 50))
    load_averages(averages, parameters)
    assert torch.equal(parameters["w"], before)

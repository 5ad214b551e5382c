"""A proximal step solves for a term of the objective: the whole comes to rest where its gradient is zero."""

from __future__ import annotations

import pytest
import torch
from training_examples import children, easy_task, state_of

from bocl.training.batches import Batch
from bocl.training.hooks import Hooks
from bocl.training.recipe import Recipe
from bocl.training.steps import batch_losses
from bocl.training.trainer import train

RECIPES = {
    "sgd": Recipe("sgd", 0.05, momentum=0.9, weight_decay=0.0, batch_size=60, epochs=400),
    "adam": Recipe("adam", 0.02, weight_decay=0.0, batch_size=60, epochs=1500, schedule="cosine"),
}


def pull_to_zero(strength):
    """Return the proximal step of ½ strength θ²."""

    def step(parameters, step_size):
        for parameter in parameters.values():
            parameter.div_(1 + strength * step_size(parameter))

    return step


@pytest.mark.parametrize("name", RECIPES)
def test_it_comes_to_rest_where_the_gradient_of_the_whole_objective_is_zero(name):
    network, task = children(dtype=torch.float64), easy_task(dtype=torch.float64)
    train(network, [task], RECIPES[name], seed=0, hooks=Hooks(proximal=pull_to_zero(0.05)))
    loss = batch_losses(network, task, Batch(torch.arange(60)), "float32").sum()
    of_loss = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(network.parameters.values()))])
    of_term = torch.cat([0.05 * parameter.detach().flatten() for parameter in network.parameters.values()])
    assert of_term.norm() > 0.05
    assert (of_loss + of_term).norm() < 0.02 * of_term.norm()


@pytest.mark.parametrize("name", RECIPES)
def test_no_term_is_too_steep(name):
    network = children()
    train(network, [easy_task()], RECIPES[name], seed=0, hooks=Hooks(proximal=pull_to_zero(1e20)))
    assert all(tensor.abs().max() < 1e-12 for tensor in state_of(network).values())

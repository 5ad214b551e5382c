"""The optimisers take PyTorch's steps, without loading its compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bocl.training import optimisers

RATE = 0.1
KINDS = {
    "sgd": ("SGD", {"weight_decay": 0.01}),
    "momentum": ("SGD", {"weight_decay": 0.01, "momentum": 0.9}),
    "adam": ("Adam", {"weight_decay": 0.01}),
    "adamw": ("Adam", {"weight_decay": 0.01, "decoupled_weight_decay": True}),
}


def tensors() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).requires_grad_() for shape in [(3, 4), (5,), (2, 3, 2)]]


def give_gradients(parameters: list[torch.Tensor], step: int, *, without: int | None) -> None:
    generator = torch.Generator().manual_seed(step)
    for place, parameter in enumerate(parameters):
        gradient = torch.randn(parameter.shape, generator=generator)
        parameter.grad = None if place == without else gradient


@pytest.mark.parametrize("fused", [True, None])
@pytest.mark.parametrize("kind", KINDS)
def test_every_bit_is_that_of_pytorch(kind: str, fused: bool | None) -> None:
    name, options = KINDS[kind]
    ours, theirs = tensors(), tensors()
    mine = getattr(optimisers, name)(ours, RATE, fused=fused, **options)
    reference = getattr(torch.optim, name)(theirs, RATE, fused=fused, **options)
    for step in range(6):
        for parameters, optimiser in ((ours, mine), (theirs, reference)):
            optimiser.zero_grad(set_to_none=True)
            assert all(parameter.grad is None for parameter in parameters)
            optimiser.param_groups[0]["lr"] = RATE / (1 + step)
            give_gradients(parameters, step, without=1 if step == 3 else None)
            optimiser.step()
        for own, other in zip(ours, theirs, strict=True):
            assert torch.equal(own, other)
            assert own.requires_grad
            assert own.is_leaf


def test_adamw_is_that_of_pytorch() -> None:
    ours, theirs = tensors(), tensors()
    mine = optimisers.Adam(ours, RATE, weight_decay=0.01, decoupled_weight_decay=True)
    reference = torch.optim.AdamW(theirs, RATE, weight_decay=0.01)
    for step in range(3):
        for parameters, optimiser in ((ours, mine), (theirs, reference)):
            give_gradients(parameters, step, without=None)
            optimiser.step()
    assert all(map(torch.equal, ours, theirs))


def test_training_loads_no_compiler() -> None:
    script = """
import sys
from training_examples import children, easy_task
from bocl.training.recipe import Recipe
from bocl.training.trainer import train
for optimiser in ("sgd", "adam"):
    train(children(), [easy_task()], Recipe(optimiser, epochs=1), seed=0)
assert "torch._dynamo" not in sys.modules
"""
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "PYTHONPATH": path})

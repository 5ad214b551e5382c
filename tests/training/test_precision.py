"""Products are as exact as asked for, and the same each time."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

import bocl
from bocl.training.precision import repeatable_products

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
METHODS = {
    **{
        method.name: method
        for method in (bocl.BOCL, bocl.SN, bocl.EWC, bocl.GEM, bocl.PGN, bocl.DEN, bocl.HAT, bocl.IMM)
    },
    "children together": partial(bocl.Fixed, settings=bocl.FixedSettings(children=3)),
}


@pytest.mark.parametrize("precision", ["tf32", "float32", "bf16"])
def test_a_switch_holds_inside_and_is_as_before_afterwards(precision):
    def switches():
        return (
            torch.backends.cuda.matmul.allow_tf32,
            torch.backends.cudnn.allow_tf32,
            torch.backends.cudnn.deterministic,
        )

    before, fast = switches(), precision == "tf32"
    with repeatable_products(precision):
        assert switches() == (fast, fast, True)
    assert switches() == before


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("method", METHODS)
def test_convolutions_learn_the_same_bits_twice(method, device):
    draw = np.random.default_rng(0)
    arrays = [(draw.normal(size=(48, 3, 32, 32)).astype("float32"), np.arange(48) % 4) for _ in range(2)]

    def learnt():
        learner = METHODS[method](bocl.lenet(), recipe=bocl.Recipe(epochs=1, batch_size=16), device=device)
        for task in bocl.from_arrays(arrays):
            learner.learn(task)
        return learner.state().tensors

    first, again = learnt(), learnt()
    assert first.keys() == again.keys()
    assert all(torch.equal(tensor, again[name]) for name, tensor in first.items())

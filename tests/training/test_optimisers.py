"""The optimisers compute what PyTorch's do, without loading its compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from bocl.training.optimisers import SGD, Adam

DECAY = 0.01


def tensors() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).requires_grad_() for shape in [(3, 4), (5,), (2, 3, 2)]]


def give_gradients(parameters: list[torch.Tensor], step: int, *, without: int | None = None) -> None:
    generator = torch.Generator().manual_seed(step)
    for place, parameter in enumerate(parameters):
        gradient = torch.randn(parameter.shape, generator=generator)
        parameter.grad = None if place == without else gradient


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("kind", ["sgd", "momentum", "adam"])
def test_every_bit_is_that_of_pytorch(kind: str, fused: bool) -> None:
    ours, theirs = tensors(), tensors()
    if kind == "adam":
        mine = Adam(ours, 0.1, weight_decay=DECAY, fused=fused, capturable=False)
        reference: torch.optim.Optimizer = torch.optim.Adam(theirs, 0.1, weight_decay=DECAY, fused=fused)
    else:
        momentum = 0.9 if kind == "momentum" else 0.0
        mine = SGD(ours, 0.1, momentum=momentum, weight_decay=DECAY, fused=fused)
        reference = torch.optim.SGD(theirs, 0.1, momentum=momentum, weight_decay=DECAY, fused=fused)
    for step in range(6):
        rate = 0.1 / (1 + step)
        mine.rate = reference.param_groups[0]["lr"] = rate
        without = 1 if step == 3 or (step == 0 and not fused) else None
        for parameters, optimiser in ((ours, mine), (theirs, reference)):
            give_gradients(parameters, step, without=without)
            optimiser.step()
        for own, other in zip(ours, theirs, strict=True):
            assert torch.equal(own, other)


@pytest.mark.parametrize("kind", ["momentum", "adam"])
def test_forgetting_begins_anew(kind: str) -> None:
    def make(parameters: list[torch.Tensor]) -> SGD | Adam:
        if kind == "adam":
            return Adam(parameters, 0.1, weight_decay=DECAY, fused=True, capturable=False)
        return SGD(parameters, 0.1, momentum=0.9, weight_decay=DECAY, fused=True)

    used, fresh = tensors(), tensors()
    optimiser = make(used)
    for step in range(3):
        give_gradients(used, step)
        optimiser.step()
    optimiser.forget()
    with torch.no_grad():
        for tensor, start in zip(used, fresh, strict=True):
            tensor.copy_(start)
    other = make(fresh)
    for parameters, each in ((used, optimiser), (fresh, other)):
        for step in range(2):
            give_gradients(parameters, step)
            each.step()
    assert all(torch.equal(own, start) for own, start in zip(used, fresh, strict=True))


def test_training_loads_no_compiler() -> None:
    """PyTorch's compiler takes seconds to load, and nothing here compiles."""
    script = (
        "import sys, tempfile\n"
        "from bocl import load_config, run\n"
        "few = ['stream.tasks=2', 'recipe.epochs=1', 'search.kind=random', 'search.trials=2']\n"
        "config = load_config('digits', few)\n"
        "run(config, tempfile.mkdtemp() + '/run', device='cpu')\n"
        "loaded = sorted(name for name in sys.modules if name.startswith(('torch._dynamo', 'sympy', 'botorch')))\n"
        "assert not loaded, loaded[:5]\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr

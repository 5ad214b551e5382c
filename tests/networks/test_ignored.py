"""What a module holds besides its shape is refused or named in a warning; following the advice helps."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import bocl
from bocl.errors import NetworkError, NetworkWarning
from bocl.networks.trace import trace


def network() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))


def hooked(register: str, place: int | None = 1) -> Callable[[nn.Sequential], Callable[[], object]]:
    def change(module: nn.Sequential) -> Callable[[], object]:
        part = module if place is None else module[place]
        return getattr(part, register)(lambda *_arguments: None).remove

    return change


def pruned(module: nn.Sequential) -> Callable[[], object]:
    prune.l1_unstructured(module[4], "weight", 0.5)
    prune.random_unstructured(module[4], "weight", 0.5)
    return lambda: prune.remove(module[4], "weight")


def parametrised(module: nn.Sequential) -> Callable[[], object]:
    parametrizations.weight_norm(module[1])
    return lambda: parametrize.remove_parametrizations(module[1], "weight")


def weight_normed(module: nn.Sequential) -> Callable[[], object]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        nn.utils.weight_norm(module[1])
    return lambda: nn.utils.remove_weight_norm(module[1], "weight")


def spectral_normed(module: nn.Sequential) -> Callable[[], object]:
    nn.utils.spectral_norm(module[1])
    return lambda: nn.utils.remove_spectral_norm(module[1], "weight")


def another_forward(module: nn.Sequential) -> Callable[[], object]:
    module[3].forward = lambda x: -x
    return lambda: delattr(module[3], "forward")


#: What is done to a network, which returns how it is undone, and what tracing says about it.
REFUSED = {
    "forward hook": (hooked("register_forward_hook"), "'1' has a forward hook .*; call remove"),
    "forward pre-hook": (hooked("register_forward_pre_hook"), "'1' has a forward pre-hook .*; call remove"),
    "backward hook": (hooked("register_full_backward_hook"), "'1' has a backward hook .*; call remove"),
    "backward pre-hook": (hooked("register_full_backward_pre_hook"), "'1' has a backward pre-hook .*; call remove"),
    "hook of the network": (hooked("register_forward_hook", None), "the network has a forward hook .*; call remove"),
    "hook of a gradient": (
        lambda module: module[1].bias.register_hook(lambda gradient: gradient).remove,
        "'1' has a hook on the gradient of its bias.*; call remove",
    ),
    "hook of a gradient that was added up": (
        lambda module: module[1].weight.register_post_accumulate_grad_hook(lambda _parameter: None).remove,
        "'1' has a hook on the gradient of its weight",
    ),
    "pruning": (pruned, r"'4' is pruned, .*prune\.remove\(layer, 'weight'\)"),
    "parametrisation": (parametrised, r"'1' is a .* _WeightNorm, .*remove_parametrizations\(layer, 'weight'\)"),
    "old weight norm": (weight_normed, r"'1' has a weight that WeightNorm .*remove_weight_norm\(layer, 'weight'\)"),
    "old spectral norm": (spectral_normed, r"that SpectralNorm .*remove_spectral_norm\(layer, 'weight'\)"),
    "a forward of the object": (another_forward, "'3' has a forward that is set on the object"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore:only the shape")  # what is taken off leaves weights behind
def test_what_would_be_lost_is_refused_until_it_is_taken_off(name):
    change, reason = REFUSED[name]
    module = network()
    undo = change(module)
    with pytest.raises(NetworkError, match=reason) as caught:
        bocl.SN(module)
    assert "\n" not in str(caught.value)
    undo()
    assert trace(module) == trace(network())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # within PyTorch's compiler
@pytest.mark.parametrize("wrap", [torch.compile, nn.DataParallel])
def test_a_wrapped_module_is_refused_and_the_one_inside_is_taken(wrap):
    module = network()
    with pytest.raises(NetworkError, match=f"the network is a {type(wrap(module)).__name__}; give the nn.Module"):
        trace(wrap(module))
    trace(module)


def frozen(module: nn.Sequential) -> None:
    module[1].requires_grad_(False)


def loaded(module: nn.Sequential) -> None:
    module.load_state_dict({name: tensor * 0 + 3 for name, tensor in module.state_dict().items()})


def trained(module: nn.Sequential) -> None:
    module[1](torch.ones(2, 8)).sum().backward()


def normed(module: nn.Sequential) -> None:
    module[2](torch.ones(2, 6))


WARNED = {
    "frozen flags": (frozen, "ignored: '1.weight' and 1 more have requires_grad=False"),
    "loaded weights": (loaded, "ignored: '1' and 2 more have weights that were loaded, trained or set"),
    "gradients": (trained, "ignored: '1' has weights that were"),
    "statistics": (normed, "ignored: '2' has weights that were"),
    "another type": (lambda module: module[4].half(), "ignored: '4.weight' and 1 more have a type other than float32"),
    "a layer in evaluation": (lambda module: module[2].eval(), "ignored: '2' has an evaluation mode of its own"),
    "two of them": (lambda module: (frozen(module), normed(module)), "requires_grad=False; '2' has weights"),
}


@pytest.mark.parametrize("name", WARNED)
def test_what_is_not_kept_is_named_in_one_warning(name):
    change, reason = WARNED[name]
    module = network()
    change(module)
    with pytest.warns(NetworkWarning, match=reason) as caught:
        learner = bocl.SN(module)
    assert len(caught) == 1
    assert "only the shape of a network is kept" in str(caught[0].message)
    assert learner.graph == trace(network())


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fresh_networks_never_warn(seed, dtype):
    """The suite turns warnings into errors."""
    torch.set_default_dtype(dtype)
    try:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            for made in (network(), bocl.mlp(1, [40]), bocl.lenet(), bocl.resnet(), bocl.convnet()):
                trace(copy.deepcopy(made))
                trace(made.eval())
    finally:
        torch.set_default_dtype(torch.float32)

"""What a module holds besides its shape. A graph keeps none of it, so nobody may believe that it does.

What changes the results of a module is refused: hooks, pruning, parametrisations, a forward set on the object. What
only concerns its weights is named in one warning, because every task makes weights of its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils import parametrize, prune

from bocl.errors import NetworkError, NetworkWarning

_HOOKS = {
    "_forward_pre_hooks": "forward pre-hook",
    "_forward_hooks": "forward hook",
    "_backward_pre_hooks": "backward pre-hook",
    "_backward_hooks": "backward hook",
}
#: Pre-hooks of PyTorch that compute a weight, and what takes them off a layer again.
_REMOVED_BY = {"WeightNorm": "remove_weight_norm(layer, '{}')", "SpectralNorm": "remove_spectral_norm(layer, '{}')"}
_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel, torch.jit.ScriptModule)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.GroupNorm)
_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def check_nothing_lost(module: nn.Module) -> None:
    """Refuse a module that computes something other than its layers do."""
    for name, part in module.named_modules():
        if isinstance(part, LazyModuleMixin):  # its hooks are its own, and tracing refuses it
            continue
        called = f"'{name}'" if name else "the network"
        if hasattr(part, "_orig_mod") or isinstance(part, _WRAPPERS):
            raise NetworkError(f"{called} is a {type(part).__name__}; give the nn.Module from which it was made")
        if parametrize.is_parametrized(part):
            tensor, ways = next(iter(part.parametrizations.items()))
            raise NetworkError(
                f"{called} is a {type(part).__name__}: its {tensor} is computed by {type(ways[0]).__name__}, which "
                f"would be lost; torch.nn.utils.parametrize.remove_parametrizations(layer, '{tensor}') takes it off"
            )
        for kept_in, kind in _HOOKS.items():
            for hook in getattr(part, kept_in).values():
                raise NetworkError(f"{called} {_about_hook(hook, kind)}")
        for tensor, parameter in part.named_parameters(recurse=False):
            if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
                raise NetworkError(
                    f"{called} has a hook on the gradient of its {tensor}, which would not run; call remove() on what "
                    "registering it returned"
                )
        if "forward" in vars(part):
            raise NetworkError(
                f"{called} has a forward that is set on the object, which would not run; write it into its class"
            )


def _about_hook(hook: Any, kind: str) -> str:
    what = type(hook).__name__
    if isinstance(hook, prune.BasePruningMethod):
        tensor = hook._tensor_name
        return (
            f"is pruned, and the mask of its {tensor} would be lost; make the layer narrower, or take it off with "
            f"torch.nn.utils.prune.remove(layer, '{tensor}')"
        )
    if what in _REMOVED_BY:
        way_out = _REMOVED_BY[what].format(hook.name)
        return f"has a {hook.name} that {what} computes, which would be lost; torch.nn.utils.{way_out} takes it off"
    named = getattr(hook, "__name__", what)
    return f"has a {kind} ({named}), which would not run; call remove() on what registering it returned"


def warn_of_ignored(module: nn.Module) -> None:
    """Warn, once and by name, of what a module holds that a learner does not keep."""
    usual = (torch.float32, torch.get_default_dtype())  # a default is not about this module
    found = [
        f"{_some(names)} {what}"
        for what, names in (
            ("requires_grad=False", _parameters(module, lambda parameter: not parameter.requires_grad)),
            ("a type other than float32", _parameters(module, lambda parameter: parameter.dtype not in usual)),
            ("weights that were loaded, trained or set", list(_set_weights(module))),
            ("an evaluation mode of its own", list(_set_apart(module))),
        )
        if names
    ]
    if found:
        warnings.warn(
            "only the shape of a network is kept: every task makes weights of its own, in float32, and trains them; "
            f"ignored: {'; '.join(found)}",
            NetworkWarning,
            stacklevel=3,
        )


def _some(names: list[str]) -> str:
    others = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"'{names[0]}'{others}" + (" have" if others else " has")


def _parameters(module: nn.Module, test: Callable[[Tensor], bool]) -> list[str]:
    return [name for name, parameter in module.named_parameters() if test(parameter)]


def _set_weights(module: nn.Module) -> Iterator[str]:
    """Name the layers with weights that PyTorch does not start from: beyond its bound, or a norm's not 1 and 0."""
    for name, part in module.named_modules():
        own = dict(part.named_parameters(recurse=False)) | dict(part.named_buffers(recurse=False))
        if any(tensor.is_meta for tensor in own.values()):
            continue
        if isinstance(part, _LAYERS):
            bound = 1.01 / prod(part.weight.shape[1:]) ** 0.5  # |w| <= 1 / sqrt(inputs of a unit), and rounding
            changed = any(bool((tensor.detach().abs() > bound).any()) for tensor in own.values())
        elif isinstance(part, _NORMS):
            ones = ("weight", "running_var")
            changed = any(bool((tensor.detach() != (kind in ones)).any()) for kind, tensor in own.items())
        else:
            continue
        if changed or any(parameter.grad is not None for parameter in part.parameters(recurse=False)):
            yield name


def _set_apart(module: nn.Module) -> Iterator[str]:
    """Name the layers in evaluation mode in a network that is in training mode."""
    if module.training:
        yield from (name for name, part in module.named_modules() if not part.training)

"""The weights of a traced module, by the names that a growth from nothing has for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bocl.errors import NetworkError
from bocl.networks.compact import contiguous_copy
from bocl.networks.graph import Graph
from bocl.networks.growth import tensor_names
from bocl.networks.trace import trace

_STATISTICS = {"weight": "weight", "bias": "bias", "mean": "running_mean", "var": "running_var"}


@dataclass(frozen=True, eq=False)
class Pretrained:
    """A traced module with its weights: the frozen base of every task that adds units to it.

    tensors  all weights but the head's
    module   the module itself
    """

    graph: Graph
    tensors: dict[str, Tensor]
    module: nn.Module

    @staticmethod
    def of(module: nn.Module) -> Pretrained:
        """Trace a module and take copies of its weights."""
        graph = trace(module, keeps_weights=True)
        for name, tensor in module.state_dict().items():
            if isinstance(tensor, Tensor) and tensor.is_meta:
                raise NetworkError(f"'{name}' is on the meta device and has no values; load the weights first")
        return Pretrained(graph, weights_of(module, graph), module)


def weights_of(module: nn.Module, graph: Graph) -> dict[str, Tensor]:
    """Return copies of the weights of the module that a graph was traced from; a norm without a bias has one of 0."""
    found: dict[str, Tensor] = {}
    for layer in graph.layers:
        part: Any = module.get_submodule(layer.name)
        weight, bias = tensor_names(layer)
        found[weight] = _copy(part.weight)
        if layer.bias:
            found[bias] = _copy(part.bias)
    for norm in graph.norms:
        part = module.get_submodule(norm.name)
        names = (("weight", "bias") if norm.affine else ()) + (("mean", "var") if norm.kind == "batch" else ())
        held = {name: getattr(part, _STATISTICS[name]) for name in names}
        held = {name: torch.zeros_like(part.weight) if tensor is None else tensor for name, tensor in held.items()}
        found |= {f"norm/{norm.name}/{name}": _copy(tensor) for name, tensor in held.items()}
    return found


def _copy(tensor: Tensor) -> Tensor:
    return contiguous_copy(tensor.cpu().float())  # as from a file: kernels differ by strides, and bits by kernels

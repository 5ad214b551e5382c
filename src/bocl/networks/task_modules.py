"""One task's network as a plain ``nn.Module`` that owns its tensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from copy import deepcopy
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bocl.networks.by_task import part_tensors
from bocl.networks.check import BASE
from bocl.networks.compact import CompactNetwork
from bocl.networks.graph import Graph
from bocl.networks.growth import is_parameter
from bocl.networks.lateral import column_logits
from bocl.networks.low_rank.backbone import Backbone
from bocl.networks.low_rank.modules import every_part_called
from bocl.networks.low_rank.network import TaskModule
from bocl.networks.memories import remembered
from bocl.networks.single_task import SingleTask
from bocl.networks.whole import HEAD, computing_with
from bocl.settings import parse_value
from bocl.widths import Widths

_NUMBER = re.compile(r"^\d+/")  # of the column that a tensor belongs to


class Tensors(nn.Module):
    """Tensors whose names begin alike."""

    def extra_repr(self) -> str:
        """Say what they are called, and their shapes."""
        own = {**self._parameters, **self._buffers}
        return ", ".join(f"{name}={tuple(tensor.shape)}" for name, tensor in own.items() if tensor is not None)


class TensorModule(nn.Module):
    """A function of named tensors and inputs. The tensor ``layer/fc1/weight`` is the parameter ``layer.fc1.weight``.

    compute  (tensors by name, x) → logits

    Parameters are in the order of their names, wherever the tensors come from: optimisers know them by number.
    """

    def __init__(self, compute: Callable[[dict[str, Tensor], Tensor], Tensor], tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._compute = compute
        self._places: dict[str, tuple[nn.Module, str]] = {}
        for name, tensor in sorted(tensors.items()):
            *path, leaf = name.replace("/", ".").split(".")
            part: nn.Module = self
            for step in path:
                if step not in part._modules:
                    part.add_module(step, Tensors())
                part = part.get_submodule(step)
            own = tensor.detach().clone()
            if is_parameter(_NUMBER.sub("", name)):
                part.register_parameter(leaf, nn.Parameter(own))
            else:
                part.register_buffer(leaf, own)
            self._places[name] = part, leaf

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (n, classes) for inputs (n, *shape)."""
        return self._compute({name: getattr(part, leaf) for name, (part, leaf) in self._places.items()}, x)


class HeadedModule(nn.Module):
    """A module that gives features, and a head on them."""

    def __init__(self, body: nn.Module, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.body = body
        self.head = Tensors()
        self.head.weight, self.head.bias = (nn.Parameter(part.detach().clone()) for part in (weight, bias))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (n, classes) for inputs (n, *shape)."""
        # Whoever compiles or exports sees to it: the switch is no part of a graph.
        with nullcontext() if torch.compiler.is_compiling() else every_part_called():
            features: Tensor = self.body(x)
        return F.linear(features, self.head.weight, self.head.bias)  # type: ignore[arg-type]


class RememberingModule(nn.Module):
    """A module that gives features, and what is remembered of them."""

    def __init__(self, body: nn.Module, memory: nn.Module) -> None:
        super().__init__()
        self.body, self.memory = body, memory

    def forward(self, x: Tensor) -> Tensor:
        """Return log probabilities (n, classes) for inputs (n, *shape)."""
        with nullcontext() if torch.compiler.is_compiling() else every_part_called():
            features: Tensor = self.body(x)
        logits: Tensor = self.memory(features)
        return logits


def task_module(network: Graph | Backbone, task: SingleTask) -> nn.Module:
    """Return a task's network, in evaluation mode; nothing is shared with what the task was taken from."""
    made: nn.Module
    if isinstance(network, Graph):
        made = TensorModule(_function_of(network, task), task.tensors)
    else:
        made = _with_head(network, task)
    return made.eval()


def _function_of(graph: Graph, task: SingleTask) -> Callable[[dict[str, Tensor], Tensor], Tensor]:
    if task.kind == "columns":
        return partial(_columns, graph, parse_value(int, task.facts["columns"], "facts.columns"))
    blocks: tuple[Widths, ...] = parse_value(tuple[Widths, ...], task.facts["blocks"], "facts.blocks")
    roots: tuple[int, ...] = parse_value(tuple[int, ...], task.facts["roots"], "facts.roots")
    if task.kind == "memories":
        return partial(_memories, graph, blocks, frozenset(roots), _recent(task))
    return partial(_compact, graph, blocks, frozenset(roots))


def _compact(
    graph: Graph, blocks: tuple[Widths, ...], roots: frozenset[int], tensors: dict[str, Tensor], x: Tensor
) -> Tensor:
    return CompactNetwork(graph, tensors, blocks, roots)(x)


def _memories(
    graph: Graph,
    blocks: tuple[Widths, ...],
    roots: frozenset[int],
    recent: tuple[int, ...],
    tensors: dict[str, Tensor],
    x: Tensor,
) -> Tensor:
    return remembered(recent, tensors, CompactNetwork(graph, tensors, blocks, roots).features(x))


def _recent(task: SingleTask) -> tuple[int, ...]:
    found: tuple[int, ...] = parse_value(tuple[int, ...], task.facts["recent"], "facts.recent")
    return found


def _columns(graph: Graph, count: int, tensors: dict[str, Tensor], x: Tensor) -> Tensor:
    return column_logits(graph, part_tensors(tensors, count), x)


def _with_head(backbone: Backbone, task: SingleTask) -> nn.Module:
    base = {name.removeprefix(BASE): tensor for name, tensor in task.tensors.items() if name.startswith(BASE)}
    own = {name: tensor for name, tensor in task.tensors.items() if not name.startswith(BASE)}
    if task.kind == "memories":
        memory = TensorModule(partial(remembered, _recent(task)), own)
        return RememberingModule(computing_with(backbone.module, base), memory)
    head = [own[name] for name in HEAD]
    if task.kind == "whole":
        return HeadedModule(computing_with(backbone.module, base), *head)
    return HeadedModule(deepcopy(TaskModule(backbone, dict(own)).module), *head)

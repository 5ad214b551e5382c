"""A whole copy of a trained module for every task, all of which is trained on: fine-tuning, task by task."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from copy import deepcopy
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from bocl.errors import NetworkError
from bocl.networks.by_task import join_tensors, part_tensors
from bocl.networks.check import BASE
from bocl.networks.growth import Shapes, uniform_within
from bocl.networks.low_rank.backbone import Backbone
from bocl.networks.low_rank.modules import copied, every_part_called
from bocl.networks.single_task import SingleTask
from bocl.settings import parse_value

HEAD = ("head/weight", "head/bias")  # a task's own, next to the names of the module's tensors


class WholeModules:
    """One copy of a module's tensors for each task, with a head.

    graph    the module as it was given, without a head
    tensors  of each task: the parameters and buffers of the module by their names, those that are shared once, and the
             head's
    """

    def __init__(self, backbone: Backbone) -> None:
        self.graph = backbone
        self.device = backbone.device
        self.tensors: list[dict[str, Tensor]] = []
        self._places = _first_names(backbone.module)
        self._given = {name: backbone.tensors[name] for name in self._places.values() if name in backbone.tensors}

    def fresh(self, classes: int, *, seed: int) -> WholeModule:
        """Return a copy for one more task, to be trained: the module as it was given, and a new head."""
        assert self.graph.features is not None
        generator = torch.Generator().manual_seed(seed)
        shapes = ((classes, self.graph.features), (classes,))
        head = {
            name: uniform_within(shape, self.graph.features, generator, torch.float32).to(self.device)
            for name, shape in zip(HEAD, shapes, strict=True)
        }
        return WholeModule(self.graph, {**self._given, **head})

    def commit(self, tensors: Mapping[str, Tensor]) -> None:
        """Keep a trained copy, as the next task's."""
        self.tensors.append({name: tensor.detach().to(self.device, copy=True) for name, tensor in tensors.items()})

    def predict(self, x: Tensor, task: int) -> Tensor:
        """Return logits (n, classes of the task)."""
        own = self.tensors[task]
        with torch.no_grad(), every_part_called():
            features = _computed(self.graph.module, self._places, own, x)
            return F.linear(features, *(own[name] for name in HEAD))

    def single_task(self, task: int) -> SingleTask:
        """Return what a task computes with: its copy."""
        tensors = {_stored(name): tensor for name, tensor in self.tensors[task].items()}
        return SingleTask("whole", {"features": self.graph.features}, tensors)

    def parameters(self) -> dict[str, int]:
        """Count what is stored, by part."""
        return _added([count_whole(self.graph, own) for own in self.tensors])

    def stored(self, first: int = 0, last: int | None = None, /) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return what is saved: how many features there are, and every tensor: ``TASK/base/NAME``, ``TASK/head/…``."""
        named = [{_stored(name): tensor for name, tensor in own.items()} for own in self.tensors[first:last]]
        return {"features": self.graph.features if self.tensors else None}, join_tensors(named, first)

    def stored_shapes(self, facts: Mapping[str, Any], classes: Sequence[int]) -> Shapes:
        """Return the shape of every saved tensor after tasks of these numbers of classes."""
        features = parse_value(int | None, facts.get("features"), "facts.features")
        body: Shapes = {_stored(name): tuple(tensor.shape) for name, tensor in self._given.items()}
        return join_tensors({**body, HEAD[0]: (count, features), HEAD[1]: (count,)} for count in classes)

    def restore(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor], classes: Sequence[int]) -> None:
        """Take back saved copies."""
        self.graph.recall(parse_value(int | None, facts.get("features"), "facts.features"), ())
        self.tensors = []
        for own in part_tensors(tensors, len(classes)):
            named = {name if name in HEAD else name.removeprefix(BASE): tensor for name, tensor in own.items()}
            for name, given in self._given.items():
                if named[name].dtype != given.dtype:
                    raise NetworkError(f"tensor '{name}' is {named[name].dtype}; the module's is {given.dtype}")
            self.commit(named)


class WholeModule:
    """A copy as it is trained: a stack of one, every tensor (1, …), single numbers (1, 1).

    Norms and dropout work as in training.
    """

    count = 1
    draws = True

    def __init__(self, backbone: Backbone, tensors: Mapping[str, Tensor]) -> None:
        trained = {name for name, _ in backbone.module.named_parameters()} | {*HEAD}
        self._shapes = {name: tensor.shape for name, tensor in tensors.items()}
        stacked = {name: tensor.detach().clone().view(1, *(tensor.shape or (1,))) for name, tensor in tensors.items()}
        self.parameters = {name: nn.Parameter(tensor) for name, tensor in stacked.items() if name in trained}
        self.state: dict[str, Tensor] = {name: self.parameters.get(name, tensor) for name, tensor in stacked.items()}
        self._module, self._places = copied(backbone.module), _first_names(backbone.module)
        buffers = backbone.module.named_buffers()  # those that no state dict holds may change in training, too
        self._not_kept = {name: buffer.clone() for name, buffer in buffers if name not in backbone.tensors}
        self.training = True

    @property
    def signature(self) -> Hashable:
        """No two copies share a captured step."""
        return id(self)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The copy's tensors as they are stored."""
        return {name: tensor.detach().clone() for name, tensor in self._own().items()}

    def _own(self) -> dict[str, Tensor]:
        """Return the copy's tensors in the module's shapes, as views of the stack."""
        return {name: tensor.view(self._shapes[name]) for name, tensor in self.state.items()}

    def precompute(self, _inputs: Tensor) -> Tensor | None:
        """Compute nothing: all of it is trained."""
        return None

    def __call__(self, x: Tensor, task: int = 0, precomputed: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Return logits (1, n, classes) for inputs (n, *shape)."""
        self._module.train(self.training)
        own = self._own()
        head = [own.pop(name) for name in HEAD]
        with every_part_called():
            features = _computed(self._module, self._places, {**own, **self._not_kept}, x)
        return F.linear(features, *head).unsqueeze(0)


def computing_with(module: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """Return a copy of a module with tensors of its own: these, each given by its first name."""
    own = deepcopy(module)
    with torch.no_grad():
        for name, tensor in chain(own.named_parameters(), own.named_buffers()):
            if name in tensors:
                tensor.copy_(tensors[name])
    return own


def _first_names(module: nn.Module) -> dict[str, str]:
    """Return the name of every place in a module that holds a tensor → the first name that the tensor has.

    Layers may share a tensor, and a layer may have two names, of which the first one counts.
    """
    found: dict[str, str] = {}
    first: dict[int, str] = {}
    for name, part in module.named_modules():
        own = chain(part._parameters.items(), part._buffers.items())
        for place, tensor in ((f"{name}.{short}".lstrip("."), tensor) for short, tensor in own if tensor is not None):
            found[place] = first.setdefault(id(tensor), place)
    return found


def _computed(module: nn.Module, places: Mapping[str, str], tensors: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Return what a module computes for x with other tensors, each given by its first name."""
    everywhere = {place: tensors[name] for place, name in places.items() if name in tensors}
    result: Tensor = functional_call(module, everywhere, x, tie_weights=False)
    return result


def _stored(name: str) -> str:
    """Return the name by which a tensor of a task is saved: the module's own may be of any type."""
    return name if name in HEAD else f"{BASE}{name}"


def count_whole(backbone: Backbone, tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Count the parameters of a copy, by part."""
    body = sum(tensors[name].numel() for name, _ in backbone.module.named_parameters())
    return {"shared": body, "heads": sum(tensors[name].numel() for name in HEAD), "attention": 0, "norms": 0}


def _added(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    parts = ("shared", "heads", "attention", "norms")
    return {part: sum(count[part] for count in counts) for part in parts}

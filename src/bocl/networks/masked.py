"""A network of fixed size in which every task has a subnetwork, named by a bit per weight.

Task t computes with the weights W ⊙ m_t of the layers, and with biases, norms and a head of its own. A weight is fixed
by the first task that uses it, so what a task computes with never changes. Of every task is kept

    bits/NAME/mask     (⌈n/8⌉,) bytes    m_t of a layer with n weights
    layer/NAME/values  (k,)              the weights that no earlier task uses, in their order in the layer
    layer/NAME/bias, norm/NAME/…, head/…

Where weights are signed constants, ±√(2/fan-in) each, no values are kept, but once the signs, with the first task:

    bits/NAME/signs    (⌈n/8⌉,) bytes

The signs are drawn from a seed. They are kept all the same, as a bit each, because no one promises that another
version of PyTorch draws the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod, sqrt
from typing import Any

import torch
from torch import Tensor

from bocl.checks import Natural
from bocl.errors import NetworkError
from bocl.networks.bits import coded_size, count_bits, packed, unpacked
from bocl.networks.by_task import join_tensors, part_tensors
from bocl.networks.check import BITS
from bocl.networks.compact import CompactNetwork, assemble
from bocl.networks.graph import Graph, Layer
from bocl.networks.growth import Growth, GrowthSpace, Shapes, count_tensors, initialise, uniform_within
from bocl.networks.single_task import SingleTask
from bocl.settings import parse_value

ByLayer = dict[str, Tensor]  # name of a layer → a tensor in the shape of its weight


class MaskedNetwork:
    """Weights that tasks share, and what every task has of its own.

    signed   whether weights are constants with a sign each, which no task changes
    tasks    what is kept of every task
    weights  of every layer; 0 where no task uses one, but for constants
    used     of every layer, which weights a task uses
    """

    def __init__(self, graph: Graph, *, signed: bool = False, device: torch.device | str = "cpu") -> None:
        self.graph = graph
        self.signed = signed
        self.device = torch.device(device)
        self._forms = {layer.name: _form(graph, layer) for layer in graph.layers}
        self._begin()

    def _begin(self) -> None:
        self.tasks: list[dict[str, Tensor]] = []
        empty = partial(torch.zeros, dtype=torch.float32, device=self.device)
        self.weights = {name: empty(form) for name, form in self._forms.items()}
        self.used = {name: torch.zeros_like(weight, dtype=torch.bool) for name, weight in self.weights.items()}
        self._views: dict[int, CompactNetwork] = {}

    def start(self, classes: int, *, seed: int) -> Growth:
        """Return the tensors a new task starts from, as if the network were new: its head, norms and biases, and W."""
        return initialise(GrowthSpace.first(self.graph, classes), self.graph.widths, seed=seed)

    def constants(self, *, seed: int) -> ByLayer:
        """Return signed constants: those that are kept, or before the first task ones drawn from the seed."""
        if self.tasks:
            return self.weights
        generator = torch.Generator().manual_seed(seed)
        signs = {name: torch.rand(form, generator=generator) < 0.5 for name, form in self._forms.items()}
        return {name: _constants(sign.to(self.device)) for name, sign in signs.items()}

    def scores(self, *, seed: int) -> ByLayer:
        """Return fresh scores of all weights: uniform in ±1/√fan-in."""
        generator = torch.Generator().manual_seed(seed)
        fans = {name: prod(form[1:]) for name, form in self._forms.items()}
        return {
            name: uniform_within(form, fans[name], generator, torch.float32).to(self.device)
            for name, form in self._forms.items()
        }

    def commit(self, own: Mapping[str, Tensor], masks: ByLayer, weights: ByLayer) -> None:
        """Keep a task: its own biases, norms and head, its masks, and the weights they name."""
        kept = {name: tensor.detach().to(self.device, copy=True) for name, tensor in own.items()}
        kept = {name: tensor for name, tensor in kept.items() if not name.endswith("/rows")}
        for name, mask in masks.items():
            kept[f"{BITS}{name}/mask"] = packed(mask)
            if not self.signed:
                kept[f"layer/{name}/values"] = weights[name][mask & ~self.used[name]].detach().to(self.device)
            elif not self.tasks:
                kept[f"{BITS}{name}/signs"] = packed(weights[name] > 0)
        self._add(kept)

    def _add(self, kept: dict[str, Tensor]) -> None:
        """Make what is kept of one more task part of the network; tensors that are there stay as they are."""
        weights, used = {}, {}
        for name, form in self._forms.items():
            mask, before = unpacked(kept[f"{BITS}{name}/mask"], form), self.used[name]
            used[name], weights[name] = before | mask, self.weights[name]
            if not self.signed:
                values, new = kept[f"layer/{name}/values"], mask & ~before
                if len(values) != int(new.sum()):
                    raise NetworkError(
                        f"task {len(self.tasks)} has {len(values)} new weights in layer '{name}', but its mask has "
                        f"{int(new.sum())}"
                    )
                weights[name] = weights[name].masked_scatter(new, values)
            elif not self.tasks:
                weights[name] = _constants(unpacked(kept[f"{BITS}{name}/signs"], form))
        self.tasks.append(kept)
        self.weights, self.used = weights, used

    def mask(self, task: int) -> ByLayer:
        """Return which weights a task uses."""
        return {name: unpacked(self.tasks[task][f"{BITS}{name}/mask"], form) for name, form in self._forms.items()}

    def predict(self, x: Tensor, task: int) -> Tensor:
        """Return logits (n, classes of the task) for inputs (n, *shape)."""
        with torch.no_grad():
            return self._view(task)(x)

    def single_task(self, task: int) -> SingleTask:
        """Return what a task computes with, apart from the others; weights that it does not use are 0."""
        return self._view(task).single_task()

    def _view(self, task: int) -> CompactNetwork:
        """Return a task's network, made once: contiguous copies of W ⊙ m_t and of the task's own tensors."""
        if task not in self._views:
            own = {name: tensor for name, tensor in self.tasks[task].items() if not name.startswith(BITS)}
            for name, mask in self.mask(task).items():
                own.pop(f"layer/{name}/values", None)
                own[f"layer/{name}/rows"] = torch.where(mask, self.weights[name], 0.0)
            self._views[task] = assemble(self.graph, None, Growth(self.graph.widths, len(own["head/weight"]), own))
        return self._views[task]

    def stored(self, first: int = 0, last: int | None = None, /) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return what is saved: how many weights of every layer each task was the first to use, and every tensor."""
        facts = {"first_used": [[len(values) for values in self._values(task)] for task in self.tasks[first:last]]}
        return facts, join_tensors(self.tasks[first:last], first)

    def _values(self, task: Mapping[str, Tensor]) -> list[Tensor]:
        return [] if self.signed else [task[f"layer/{name}/values"] for name in self._forms]

    def stored_shapes(self, facts: Mapping[str, Any], classes: Sequence[int]) -> Shapes:
        """Return the shape of every saved tensor; refuse numbers of weights that cannot be."""
        first_used = parse_value(tuple[tuple[Natural, ...], ...], facts["first_used"], "facts.first_used")
        counts = () if self.signed else tuple(map(prod, self._forms.values()))
        if len(first_used) != len(classes) or any(len(task) != len(counts) for task in first_used):
            raise NetworkError(
                f"facts.first_used must have {len(counts)} numbers for each of the {len(classes)} tasks seen"
            )
        for name, most, found in zip(self._forms, counts, map(sum, zip(*first_used, strict=True)), strict=False):
            if found > most:
                raise NetworkError(f"facts.first_used has {found} weights of layer '{name}', which has {most}")
        return join_tensors(
            self._shapes(task, *entry) for task, entry in enumerate(zip(classes, first_used, strict=True))
        )

    def _shapes(self, task: int, classes: int, first_used: Sequence[int]) -> Shapes:
        found = {
            name: shape
            for name, shape in GrowthSpace.first(self.graph, classes).shapes(self.graph.widths).items()
            if not name.endswith("/rows")
        }
        for name, form in self._forms.items():
            found[f"{BITS}{name}/mask"] = (-(-prod(form) // 8),)
            if self.signed and not task:
                found[f"{BITS}{name}/signs"] = found[f"{BITS}{name}/mask"]
        return found | {f"layer/{name}/values": (count,) for name, count in zip(self._forms, first_used, strict=False)}

    def restore(self, _facts: Mapping[str, Any], tensors: Mapping[str, Tensor], classes: Sequence[int]) -> None:
        """Take back saved tasks."""
        self._begin()
        for kept in part_tensors(tensors, len(classes)):
            self._add({name: tensor.to(self.device) for name, tensor in kept.items()})

    def parameters(self) -> dict[str, int]:
        """Count what is stored, by part; bits count as the parameters that take their memory."""
        return self._count(self.tasks)

    def added(self) -> dict[str, int]:
        """Count what the last task added."""
        return self._count(self.tasks[-1:])

    def _count(self, tasks: Sequence[Mapping[str, Tensor]]) -> dict[str, int]:
        bits = [[tensor for name, tensor in task.items() if name.startswith(BITS)] for task in tasks]
        rest = [{name: tensor for name, tensor in task.items() if not name.startswith(BITS)} for task in tasks]
        return count_tensors(*rest) | {"masks": sum(map(count_bits, bits))}

    def coded_masks(self) -> int:
        """Return what masks would count once they are coded, each by what is known of the tasks before it."""
        total, used = 0.0, {name: torch.zeros_like(mask) for name, mask in self.used.items()}
        for task in range(len(self.tasks)):
            for name, mask in self.mask(task).items():
                total += coded_size(mask, used[name])
                used[name] = used[name] | mask
        if self.signed and self.tasks:
            total += sum(prod(form) for form in self._forms.values())  # signs are as likely + as -
        return -(-int(total) // 32)


def _form(graph: Graph, layer: Layer) -> tuple[int, ...]:
    """Return the shape of a layer's weight: (out, in, *kernel)."""
    shape = GrowthSpace.first(graph, 1).shapes(graph.widths)[f"layer/{layer.name}/rows"]
    return tuple(int(size) for size in shape)


def _constants(signs: Tensor) -> Tensor:
    """Return ±√(2/fan-in) for signs (out, in, *kernel), true for +."""
    size = sqrt(2 / max(prod(signs.shape[1:]), 1))
    return torch.where(signs, torch.full((), size, device=signs.device), torch.full((), -size, device=signs.device))

"""Blocks: the units that tasks added, and the frozen network that some of them make together.

A task reads the blocks of some earlier tasks, and of all tasks that those read. In the network of several blocks, the
weight from a unit of block b to one of block a is

    of a's rows       if a reads b, or a = b
    of b's columns    if b reads a
    0                 if neither reads the other

Tasks are numbers; ``growths[t]`` is what task t added. The block of a pretrained base has the number BASE_BLOCK, and
every task reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from bocl.networks.compact import CompactNetwork
from bocl.networks.graph import Graph
from bocl.networks.growth import Growth

BASE_BLOCK = -1
Growths = Sequence[Growth] | Mapping[int, Growth]


def with_all_they_read(tasks: Iterable[int], growths: Growths) -> tuple[int, ...]:
    """Return tasks and all that they read, in order."""
    return tuple(sorted({other for task in tasks for other in (*growths[task].reads, task)}))


def frozen_network(graph: Graph, growths: Growths, tasks: Sequence[int], *, own_norms: bool = True) -> CompactNetwork:
    """Return the layers that the blocks of ``tasks``, one at least, make; it has no gates and no head.

    own_norms  whether every task has norms of its own, so that there are none here; else each unit's are those it was
               added with
    """
    weights: dict[str, Tensor] = {}
    if not own_norms:
        names = [name for name in growths[tasks[0]].tensors if name.startswith("norm/")]
        of_input = {f"norm/{norm.name}" for norm in graph.norms if norm.source.group is None}
        for name in names:
            parts = [growths[task].tensors[name] for task in tasks]
            weights[name] = parts[0] if name.rpartition("/")[0] in of_input else torch.cat(parts)
    for layer in graph.layers:
        assert layer.group is not None
        prefix, source = f"layer/{layer.name}", layer.source
        if layer.bias:
            weights[f"{prefix}/bias"] = torch.cat([growths[task].tensors[f"{prefix}/bias"] for task in tasks])
        if layer.separate:
            for place, task in enumerate(tasks):
                weights[f"{prefix}/weight.{place}"] = growths[task].tensors[f"{prefix}/rows"]
            continue
        units = _Places(growths, tasks, layer.group)
        inputs = None if source.group is None else _Places(growths, tasks, source.group, source.spread)
        like = growths[tasks[0]].tensors[f"{prefix}/rows"]
        columns = source.width if inputs is None else inputs.count
        weight = like.new_zeros(units.count, columns, *layer.kernel)
        for task in tasks:
            own = growths[task]
            rows = weight[units.of_one(task)]
            if inputs is None:
                rows.copy_(own.tensors[f"{prefix}/rows"])
                continue
            rows.index_copy_(1, inputs.of((*own.reads, task)).to(like.device), own.tensors[f"{prefix}/rows"])
            read_back = own.tensors.get(f"{prefix}/columns")
            if read_back is not None:
                part = weight[:, inputs.of_one(task)]
                part.index_copy_(0, units.of(own.reads).to(like.device), read_back)
        weights[f"{prefix}/weight"] = weight
    blocks = tuple(growths[task].widths for task in tasks)
    roots = frozenset(place for place, task in enumerate(tasks) if not growths[task].reads)
    return CompactNetwork(graph, weights, blocks, roots)


def latest_norms(graph: Graph, growths: Growths, tasks: Sequence[int]) -> dict[str, Tensor]:
    """Return the norms that a task which reads ``tasks`` continues from: of every unit, those of its latest reader.

    A norm of the raw input, which every task normalises anew, continues only from a pretrained base's.
    """
    found: dict[str, Tensor] = {}
    for norm in graph.norms:
        group = norm.source.group
        if group is None:
            known: Mapping[str, Tensor] = growths[BASE_BLOCK].tensors if BASE_BLOCK in tasks else {}
            found |= {name: tensor for name, tensor in known.items() if name.rpartition("/")[0] == f"norm/{norm.name}"}
            continue
        places = _Places(growths, tasks, group, norm.source.spread)
        for task in tasks:
            own: Mapping[str, Tensor] = growths[task].tensors
            for name in [name for name in own if name.rpartition("/")[0] == f"norm/{norm.name}"]:
                whole = found.setdefault(name, own[name].new_zeros(places.count))
                whole.index_copy_(0, places.of((*growths[task].reads, task)).to(whole.device), own[name])
    return found


class _Places:
    """Where the units of some tasks lie in one group, in the order of the tasks; ``spread`` columns each."""

    def __init__(self, growths: Growths, tasks: Sequence[int], group: int, spread: int = 1) -> None:
        self._slices: dict[int, slice] = {}
        self.count = 0
        for task in tasks:
            width = growths[task].widths[group] * spread
            self._slices[task] = slice(self.count, self.count + width)
            self.count += width

    def of_one(self, task: int) -> slice:
        return self._slices[task]

    def of(self, tasks: Sequence[int]) -> Tensor:
        """Return the places (n,) of several tasks' units."""
        slices = [self._slices[task] for task in tasks]
        return torch.cat([torch.arange(part.start, part.stop) for part in slices] or [torch.arange(0)])

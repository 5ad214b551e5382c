"""A network whose units and connections carry the number of the task that brought them: DEN's.

Units of a group are kept in the order of their stamps, so what a task sees, all that is stamped no later than itself,
is the top-left corner of every matrix. A connection has the later stamp of its two ends. Later tasks may still change
old units; every task has its own head and norms.

    layer/NAME/rows (out, in, *kernel), layer/NAME/bias (out,)      shared
    head/weight (classes, in), head/bias (classes,)                 one per task
    norm/NAME/weight, bias, mean, var (C,)                          one per task

out and C are units of a group; in is raw channels, or the units read; after a flatten, each unit's spread of columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bocl.errors import NetworkError
from bocl.networks import functions
from bocl.networks.by_task import join_tensors, part_tensors
from bocl.networks.check import check_growths
from bocl.networks.compact import CompactNetwork, contiguous_copy, grown_weight
from bocl.networks.graph import Add, Function, Graph, Layer, Multiply, Norm
from bocl.networks.growth import Growth, GrowthSettings, GrowthSpace, Shapes, count_tensors, initialise, tensor_names
from bocl.networks.single_task import SingleTask
from bocl.networks.stacked import Children
from bocl.settings import parse_value
from bocl.widths import Widths


class StampedNetwork:
    """Shared layers, the units that every task added to them, and every task's own head and norms.

    layers  the shared tensors layer/… as they are now, with all units
    own     for each task its head/… and norm/…, over the units stamped no later
    added   for each task how many units it brought to each group
    """

    def __init__(self, graph: Graph, device: torch.device | str = "cpu") -> None:
        self.graph = graph
        self.device = torch.device(device)
        self.layers: dict[str, Tensor] = {}
        self.own: list[dict[str, Tensor]] = []
        self.added: list[Widths] = []
        self._views: dict[int, CompactNetwork] = {}

    def widths(self, task: int) -> Widths:
        """Return how many units of every group are stamped no later than ``task``."""
        return self.graph.total(self.added[: task + 1])

    def start(self, classes: int, *, seed: int) -> dict[str, Tensor]:
        """Return the tensors a new task starts from: all units there are, the last task's norms, a fresh head."""
        last = {name: tensor for name, tensor in self.own[-1].items() if name.startswith("norm/")} if self.own else {}
        before = self.widths(len(self.added) - 1)
        z = self.graph.no_units if self.own else self.graph.widths
        tensors = {name: tensor.clone() for name, tensor in {**self.layers, **last}.items()}
        return widened(self.graph, tensors, before, z, classes, seed=seed, device=self.device)

    def commit(self, tensors: Mapping[str, Tensor], added: Widths) -> None:
        """Keep what a task ended with; the units it added come last in every group."""
        kept = {name: tensor.detach().to(self.device, copy=True) for name, tensor in tensors.items()}
        self.layers = {name: tensor for name, tensor in kept.items() if name.startswith("layer/")}
        self.own.append({name: tensor for name, tensor in kept.items() if name not in self.layers})
        self.added.append(added)
        self._views = {}  # old units may have moved

    def stored(self, _first: int = 0, _last: int | None = None, /) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return what is saved: the stamps, and every tensor: shared by NAME, own by TASK/NAME."""
        return {"units": [list(added) for added in self.added]}, {**self.layers, **join_tensors(self.own)}

    def restore(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor], classes: Sequence[int]) -> None:
        """Take back saved tensors and stamps."""
        placed = {name: tensor.to(self.device) for name, tensor in tensors.items()}
        self.layers = {name: tensor for name, tensor in placed.items() if name.startswith("layer/")}
        own = {name: tensor for name, tensor in placed.items() if name not in self.layers}
        self.own = part_tensors(own, len(classes))
        self.added, self._views = [tuple(units) for units in facts["units"]], {}

    def predict(self, x: Tensor, task: int) -> Tensor:
        """Return logits (n, classes of the task) for inputs (n, *shape); units stamped later play no part."""
        with torch.no_grad():
            return self._view(task)(x)

    def single_task(self, task: int) -> SingleTask:
        """Return what a task computes with, apart from the others."""
        return self._view(task).single_task()

    def _view(self, task: int) -> CompactNetwork:
        """Return what a task sees, made once: the corner (out_t, in_t, *kernel) of every layer."""
        if task not in self._views:
            self._views[task] = self._corners(task)
        return self._views[task]

    def _corners(self, task: int) -> CompactNetwork:
        widths, weights = self.widths(task), dict(self.own[task])
        for layer in self.graph.layers:
            assert layer.group is not None
            units, prefix = widths[layer.group], f"layer/{layer.name}"
            corner = self.layers[f"{prefix}/rows"][:units, : layer.source.size(widths)]
            weights[f"{prefix}/weight"] = contiguous_copy(corner)
            if layer.bias:
                weights[f"{prefix}/bias"] = contiguous_copy(self.layers[f"{prefix}/bias"][:units])
        return CompactNetwork(self.graph, weights, tuple(self.added[: task + 1]))

    def parameters(self) -> dict[str, int]:
        """Count what is stored, by part."""
        return count_tensors(self.layers, *self.own)

    def stored_shapes(self, facts: Mapping[str, Any], classes: Sequence[int]) -> Shapes:
        """Return the shape of every saved tensor; refuse stamps that cannot be."""
        added = parse_value(tuple[Widths, ...], facts["units"], "facts.units")
        if len(added) != len(classes):
            raise NetworkError(
                f"facts.units has {len(added)} entries, not one for each of the {len(classes)} tasks seen"
            )
        check_growths(self.graph, {f"facts.units[{task}]": units for task, units in enumerate(added)})
        if added and added[0] != self.graph.widths:
            raise NetworkError(f"facts.units[0] is {added[0]}; the base network has {self.graph.widths}")
        found: Shapes = {}
        for task, count in enumerate(classes):
            widths = self.graph.total(added[: task + 1])
            for name, shape in GrowthSpace.first(self.graph, count).shapes(widths).items():
                found[name if name.startswith("layer/") else f"{task}/{name}"] = shape
        return found


def trainable(graph: Graph, tensors: Mapping[str, Tensor], widths: Widths, device: torch.device) -> Children:
    """Return a task's whole network, with these widths, as a stack of one: every tensor (1, …)."""
    return Children(graph, None, [Growth(widths, len(tensors["head/weight"]), dict(tensors))], device=device)


def widened(
    graph: Graph,
    tensors: Mapping[str, Tensor],
    before: Widths,
    z: Widths,
    classes: int,
    *,
    seed: int,
    device: torch.device | str,
) -> dict[str, Tensor]:
    """Add z new units to every group of widths ``before``, connected with all others; what there is stays.

    rows (out, in, *kernel) → (out + z_out, in + z_in, *kernel), head/weight (classes, in) → (classes, in + z_in)
    """
    space = GrowthSpace(graph, before, classes, GrowthSettings(attention=False))
    grown = {name: tensor.to(device) for name, tensor in initialise(space, z, last=tensors, seed=seed).tensors.items()}
    # A growth holds a layer's new rows and columns separately, and a fresh head. Here a layer is one matrix, and a head
    # that is being trained keeps what it has learnt.
    columns = {name: grown.pop(name) for name in list(grown) if name.endswith("/columns")}
    for name, old in tensors.items():
        if name.endswith("/rows"):
            grown[name] = grown_weight(old, columns.get(name.removesuffix("rows") + "columns"), grown[name])
        elif name.startswith("layer/"):
            grown[name] = torch.cat([old, grown[name]])
        elif name == "head/weight":
            grown[name] = torch.cat([old, grown[name][:, old.shape[1] :]], dim=1)
        elif name == "head/bias":
            grown[name] = old.clone()
    return grown


def rewired(graph: Graph, tensors: Mapping[str, Tensor], units: Sequence[Tensor]) -> dict[str, Tensor]:
    """Return the network made of these units: some may be left out, some may be there twice.

    units  for every group the numbers of its units, (C',)

    A unit brings its incoming weights, its bias, its place in norms, and the weights of all that read it.
    """
    found = dict(tensors)
    for layer in (*graph.layers, graph.head):
        weight, bias = tensor_names(layer)
        if layer.source.group is not None:
            columns = spread_units(units[layer.source.group], layer.source.spread)
            found[weight] = found[weight].index_select(1, columns)
        if layer.group is not None:
            for name in (weight, bias) if layer.bias else (weight,):
                found[name] = found[name].index_select(0, units[layer.group])
    for norm in graph.norms:
        if norm.source.group is not None:
            columns = spread_units(units[norm.source.group], norm.source.spread)
            for name in found:
                if name.rpartition("/")[0] == f"norm/{norm.name}":
                    found[name] = found[name].index_select(0, columns)
    return found


def duplicated(
    graph: Graph,
    tensors: Mapping[str, Tensor],
    old: Mapping[str, Tensor],
    before: Widths,
    copied: Sequence[Tensor],
) -> dict[str, Tensor]:
    """Copy units to the end of their groups, and put the originals back to what they were in ``old``.

    old     layer/NAME/rows (out_before, in_before, *kernel) and bias, before the task
    copied  for every group the numbers of the units to copy, (c,), all below ``before``

    Units after the first ``before`` of their group, the copies and the head now read the copy instead of the original.
    Old units still read the original, so that tasks which see only old units see what they saw.
    """
    counts = [len(tensors[f"layer/{group.name}/rows"]) for group in graph.groups]
    units = [
        torch.cat([torch.arange(count, device=copies.device), copies])
        for count, copies in zip(counts, copied, strict=True)
    ]
    found = rewired(graph, tensors, units)
    for layer in (*graph.layers, graph.head):
        weight, _ = tensor_names(layer)
        source = layer.source.group
        if source is not None:
            first_new = 0 if layer.group is None else before[layer.group]
            found[weight][:first_new, counts[source] * layer.source.spread :] = 0
            found[weight][first_new:, spread_units(copied[source], layer.source.spread)] = 0
    return restored(graph, found, old, copied)


def restored(
    graph: Graph, tensors: Mapping[str, Tensor], old: Mapping[str, Tensor], units: Sequence[Tensor]
) -> dict[str, Tensor]:
    """Put units, by their numbers (c,) in every group, back to what they were in ``old``: they read no later unit."""
    found = dict(tensors)
    for layer in graph.layers:
        assert layer.group is not None
        originals, (weight, bias) = units[layer.group], tensor_names(layer)
        found[weight] = found[weight].index_fill(0, originals, 0)
        found[weight][originals, : old[weight].shape[1]] = old[weight][originals]
        if layer.bias:
            found[bias] = found[bias].index_copy(0, originals, old[bias][originals])
    return found


def spread_units(units: Tensor, spread: int) -> Tensor:
    """Return the numbers of the columns of units (C,), where each unit has ``spread`` columns in a row: (C·spread,)."""
    return (units[:, None] * spread + torch.arange(spread, device=units.device)).flatten()


def refuse_inseparable(graph: Graph) -> None:
    """Refuse a graph in which a unit cannot be added, copied or taken away without a change to the others."""
    for step in graph.steps:
        match step:
            case Add() | Multiply():
                reason = (
                    "computes with two values, which ties units of several layers into one; DEN prunes and copies "
                    "units of single layers (use a network without residual additions)"
                )
            case Layer() if step.separate:
                reason = f"is a {step.separate} convolution, whose units DEN cannot copy (use ordinary convolutions)"
            case Norm(kind="group" | "layer"):
                kind = f"{step.kind.title()}Norm"
                reason = f"is a {kind}: a unit that DEN removes would change the others' statistics (use BatchNorm)"
            case Norm(affine=False):
                reason = "is a norm without scale and shift, so no unit before it can be silenced (use affine=True)"
            case Function() if step.function in functions.MOVES_ZERO:
                reason = f"is a {step.function}, which does not keep 0: a silent unit would count (use ReLU or tanh)"
            case _:
                continue
        raise NetworkError(f"'{step.name}' {reason}")

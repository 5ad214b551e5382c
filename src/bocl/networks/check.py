"""Whether a graph and tensors read from a file make sense, before anything is built on them.

Every check raises a NetworkError that names the step or tensor at fault.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from bocl.errors import NetworkError, did_you_mean
from bocl.networks import functions
from bocl.networks.compact import assemble
from bocl.networks.graph import Add, Function, Graph, Group, Layer, Multiply, Norm, Source
from bocl.networks.growth import Growth, GrowthSpace, Shapes
from bocl.widths import Widths

BASE = "base/"  # begins the saved names of a pretrained network's own tensors
BITS = "bits/"  # begins the names of masks and signs


class Grows(Protocol):
    """What has groups that grow: a graph, or a backbone."""

    @property
    def groups(self) -> tuple[Group, ...]: ...


def check_graph(graph: Graph) -> None:
    """Refuse a graph that no tracing gives: steps that read forwards, unknown functions, groups that do not fit."""
    _require(bool(graph.steps and graph.groups), "the network has no steps or no groups")
    last = graph.steps[-1]
    if not isinstance(last, Layer) or last.group is not None or last.kernel:
        raise NetworkError(f"the last step, '{last.name}', is not the head: a linear layer of no group")
    groups: list[int | None] = [None]  # of every value
    for step in graph.steps:
        wanted = 2 if isinstance(step, Add | Multiply) else 1
        if len(step.reads) != wanted or not all(0 <= value < len(groups) for value in step.reads):
            raise NetworkError(f"step '{step.name}' reads {list(step.reads)}; it must read {wanted} earlier values")
        read = groups[step.reads[0]]
        match step:
            case Layer():
                _check_layer(step, read, graph)
                groups.append(step.group)
            case Norm():
                _check_norm(step, read, graph)
                groups.append(read)
            case Function():
                _check_function(step, read)
                groups.append(read)
            case Add() | Multiply():
                _require(read is not None, f"step '{step.name}' computes with the raw input")
                _require(read == groups[step.reads[1]], f"step '{step.name}' computes with two groups")
                groups.append(read)
    _check_names(graph)


def _check_layer(layer: Layer, read: int | None, graph: Graph) -> None:
    _check_source(layer.name, layer.source, read, graph)
    where = f"layer '{layer.name}'"
    if layer is not graph.steps[-1]:
        in_range = layer.group is not None and 0 <= layer.group < len(graph.groups)
        _require(in_range, f"{where} opens group {layer.group}; there are {len(graph.groups)}")
    _require(bool(layer.kernel) or layer.padding == (), f"{where} is linear but has a padding")
    sizes = [layer.stride, layer.dilation] + ([] if isinstance(layer.padding, str) else [layer.padding])
    fits = len(layer.kernel) <= 3 and all(len(size) == len(layer.kernel) for size in sizes)
    _require(fits, f"{where} has a kernel, stride, padding and dilation of different or unknown lengths")
    _require(not layer.kernel or layer.source.spread == 1, f"{where} is a convolution of a flattened value")
    if layer.separate:
        _require(bool(layer.kernel) and read is not None, f"{where} is separate, but not a convolution of units")
        _require(layer.separate != "depthwise" or layer.group == read, f"{where} is depthwise, but opens a group")
        widths = layer.source.width, 0 if layer.group is None else graph.groups[layer.group].width
        fits = all(width % layer.groups == 0 for width in widths)
        _require(fits, f"{where} has {layer.groups} groups for {widths[0]} and {widths[1]} channels")


def _check_norm(norm: Norm, read: int | None, graph: Graph) -> None:
    _check_source(norm.name, norm.source, read, graph)
    if norm.kind == "group":
        fits = norm.source.width % norm.num_groups == 0 and norm.source.spread == 1
        _require(fits, f"norm '{norm.name}' has {norm.num_groups} groups for {norm.source.width} channels")


def _check_source(name: str, source: Source, read: int | None, graph: Graph) -> None:
    _require(
        source.group == read, f"step '{name}' reads group {source.group} by its source, but a value of group {read}"
    )
    if read is not None:
        width = graph.groups[read].width
        _require(source.width == width, f"step '{name}' reads {source.width} channels of a group of {width}")


def _check_function(step: Function, read: int | None) -> None:
    allowed = functions.ARGUMENTS.get(step.function)
    if allowed is None:
        raise NetworkError(
            f"step '{step.name}' is the unknown function '{step.function}'"
            + did_you_mean(step.function, functions.ARGUMENTS)
        )
    for argument in step.arguments:
        _require(argument in allowed, f"step '{step.name}' has an unknown argument '{argument}' of {step.function}()")
    _require(step.group == read, f"step '{step.name}' has group {step.group}, but reads a value of group {read}")


def _check_names(graph: Graph) -> None:
    """Refuse two layers or norms whose tensors would have the same name, and a group that no layer opens."""
    for steps in ((*graph.layers, graph.head), graph.norms):
        names = [step.name for step in steps]
        _require(len(set(names)) == len(names), f"two steps have the same name among {', '.join(names)}")
    for number, group in enumerate(graph.groups):
        openers = [layer for layer in graph.layers if layer.separate != "depthwise"]
        opens = any(layer.name == group.name and layer.group == number for layer in openers)
        _require(opens, f"group '{group.name}' is opened by no layer of its name")


def check_takes(graph: Graph, shape: tuple[int, ...], classes: int) -> None:
    """Refuse a graph that cannot take samples of this shape; it is run on shapes only, without memory for numbers."""
    wanted = GrowthSpace.first(graph, classes).shapes(graph.widths)
    try:
        tensors = {name: torch.empty(_plain(size), device="meta") for name, size in wanted.items()}
        logits = assemble(graph, None, Growth(graph.widths, classes, tensors))(torch.empty(2, *shape, device="meta"))
    except (RuntimeError, ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise NetworkError(f"the network cannot take samples of shape {shape}: {reason}") from error
    _require(logits.shape == (2, classes), f"the network does not give {classes} logits for samples of shape {shape}")


def check_growths(graph: Grows, added: Mapping[str, Widths], *, from_nothing: bool = True) -> None:
    """Refuse units that no tasks can have added; ``added`` has them in order, by their place in the file.

    from_nothing  whether the first task makes the network, so that it has units in every group
    """
    for number, (place, units) in enumerate(added.items()):
        fits = len(units) == len(graph.groups) and min(units) >= 0
        _require(fits, f"{place} is {units}; it must be one number of 0 or more for each of {len(graph.groups)} groups")
        made = number > 0 or not from_nothing or min(units) > 0
        _require(made, f"{place} is {units}; the first network has units in every group")


def check_reads(reads: Sequence[tuple[int, ...]], *, with_lineage: bool = True) -> None:
    """Refuse tasks that read a later one, or one without all that it reads; ``reads`` has one entry per task.

    with_lineage  whether who reads a task reads all that it reads
    """
    for task, others in enumerate(reads):
        place = f"facts.growths[{task}].reads"
        fits = list(others) == sorted(set(others)) and all(0 <= other < task for other in others)
        _require(fits, f"{place} is {others}; it must be numbers of earlier tasks in order")
        there, covered = set(others), set[int]()
        for other in reversed(others) if with_lineage else ():
            if other not in covered:  # what is covered reads nothing that is not
                _require(there.issuperset(reads[other]), f"{place} has {other}, but not all that it reads")
                covered.update(reads[other])


def check_tensors(tensors: Mapping[str, Tensor], wanted: Shapes) -> None:
    """Refuse tensors that do not have the wanted names and shapes, or are not float32; bits are bytes."""
    for name in sorted(wanted.keys() - tensors.keys()):
        raise NetworkError(f"tensor '{name}' is missing")
    for name in sorted(tensors.keys() - wanted.keys()):
        raise NetworkError(f"tensor '{name}' belongs to nothing in the network")
    for name, tensor in tensors.items():
        shape, size = tuple(tensor.shape), _plain(wanted[name])
        _require(shape == size, f"tensor '{name}' has shape {shape}; the network needs {size}")
        ours = not re.match(rf"(\d+/)?{BASE}", name)  # a pretrained module may hold numbers of any type
        kind = torch.uint8 if re.match(rf"(\d+/)?{BITS}", name) else torch.float32
        _require(not ours or tensor.dtype == kind, f"tensor '{name}' is {tensor.dtype}, not {kind}")


def _plain(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(size) for size in shape)


def _require(fact: bool, otherwise: str) -> None:
    if not fact:
        raise NetworkError(otherwise)

"""What to do about samples of a shape that a network or a task does not take."""

from __future__ import annotations

from math import prod

from torch import nn

from bocl.networks.graph import Function, Graph, Layer
from bocl.wording import counted

Shape = tuple[int, ...]


def advice_for_network(graph: Graph, shape: Shape) -> str | None:
    """Say why the first layer cannot read samples of this shape, and the way out, if that can be known."""
    place = next(at for at, step in enumerate(graph.steps) if isinstance(step, Layer) and step.source.group is None)
    first, before = graph.steps[place], [step for step in graph.steps[:place] if isinstance(step, Function)]
    assert isinstance(first, Layer)
    wanted, space = first.source.width, len(first.kernel)
    if space:
        return _advice_for_channels(first.name, wanted, space, shape)
    reads = f"'{first.name}' reads {counted(wanted, 'number')}"
    if not any("pool" in step.function or step.function == "global_average" for step in before):
        flattened = any(step.function == "flatten" for step in before)
        if prod(shape) == wanted and not flattened:
            return f"{reads}, and a sample is not flat; begin the network with nn.Flatten()"
        if prod(shape) != wanted:
            return f"{reads}, not {prod(shape)}; build the network for these samples"
    return None


def advice_for_module(module: nn.Module, shape: Shape) -> str | None:
    """Say the same of a module of any code, whose first convolution is taken for its first layer."""
    for name, part in module.named_modules():
        if isinstance(part, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            return _advice_for_channels(name, part.in_channels, len(part.kernel_size), shape)
    return None


def _advice_for_channels(name: str, wanted: int, space: int, shape: Shape) -> str | None:
    reads = f"'{name}' reads {counted(wanted, 'channel')}"
    if len(shape) == space:
        way_out = "add one with X[:, None]" if wanted == 1 else f"give (n, {wanted}, {', '.join(map(str, shape))})"
        return f"{reads}, and there is no axis of channels; {way_out}"
    if len(shape) == space + 1 and shape[0] != wanted:
        if shape[-1] == wanted:
            return f"{reads}, which come first; give {_channels_first('X', shape)}"
        return f"{reads}, not {shape[0]}; build the network for these samples"
    return None


def advice_for_task(wanted: Shape, given: Shape) -> str:
    """Say how x of shape ``given`` becomes (n, *wanted), if that can be known."""
    if given == wanted:
        return ": x[None] for one sample"
    if len(given) == len(wanted) + 1 > 2 and given[1:] == (*wanted[1:], wanted[0]):
        return f": {_channels_first('x', given[1:])}"
    if given[1:] == wanted[1:] and wanted[0] == 1 and len(wanted) > 1:
        return ": x[:, None]"
    if len(given) > 1 and prod(given[1:]) == prod(wanted):
        return f": x.reshape({', '.join(map(str, (-1, *wanted)))})"
    return ""


def _channels_first(name: str, shape: Shape) -> str:
    order = ", ".join(map(str, (0, len(shape), *range(1, len(shape)))))
    return f"{name}.transpose({order}), or of a tensor {name}.permute({order})"

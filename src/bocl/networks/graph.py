"""A network as data: its steps in order, and the channel groups that can grow.

A convolution or linear layer opens a group of channels; activations, pools, dropout, norms and depthwise
convolutions keep it; an addition or a product ties two groups into one; a flatten spreads each channel over
several columns; the last linear layer is the head. Growing, gating, stacking, counting and saving are all
written on these steps, so a new architecture needs no new code.

Values are numbered: 0 is the raw input, i is the result of ``steps[i - 1]``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

from bocl.checks import Fraction, Natural, NonNegative, PositiveInt
from bocl.errors import NetworkError, did_you_mean
from bocl.settings import parse_value
from bocl.widths import Widths

DRAWING = ("dropout", "stochastic_depth")  # functions that draw random numbers in training
_Argument = bool | int | float | str | None | tuple[int | None, ...]


@dataclass(frozen=True)
class Source:
    """What a layer or norm reads: a channel group, or the raw input (group None).

    width   channels in the base network; all the columns of raw input
    spread  columns per channel: H·W after a flatten, else 1
    """

    group: int | None
    width: PositiveInt
    spread: PositiveInt = 1

    def size(self, widths: Widths) -> int:
        """Return how many channels or columns this is at the given group widths."""
        return self.width if self.group is None else widths[self.group] * self.spread


@dataclass(frozen=True)
class Layer:
    """A linear or convolutional layer. Its rows are the units of ``group``; the head has no group.

    In a separate layer what one growth added reads nothing but itself: in a depthwise convolution every unit by itself,
    in a grouped one the base network in its groups, and any other growth as one group.
    """

    name: str
    reads: tuple[int, ...]
    source: Source
    group: int | None
    bias: bool
    kernel: tuple[PositiveInt, ...] = ()  # () is a linear layer
    stride: tuple[PositiveInt, ...] = ()
    padding: tuple[Natural, ...] | Literal["same", "valid"] = ()
    dilation: tuple[PositiveInt, ...] = ()
    separate: Literal["", "depthwise", "grouped"] = ""
    groups: PositiveInt = 1  # grouped: of the base network

    @property
    def gated(self) -> bool:
        """Whether attention can stand before it: raw input is never gated, nor what is read separately."""
        return self.source.group is not None and not self.separate

    def groups_of(self, inputs: int, units: int, *, is_root: bool) -> int:
        """Return in how many groups a separate layer convolves what one growth added.

        is_root  whether the growth reads no other
        """
        if self.separate == "depthwise":
            return units
        return self.groups if is_root and inputs % self.groups == 0 == units % self.groups else 1


@dataclass(frozen=True)
class Norm:
    """A batch, group or layer normalisation; every task keeps its own scale, shift and statistics."""

    name: str
    reads: tuple[int, ...]
    source: Source
    kind: Literal["batch", "group", "layer"]
    affine: bool
    eps: NonNegative
    momentum: Fraction = 0.1  # batch: of the running statistics
    num_groups: PositiveInt = 1  # group: of the base network; each growth adds one group of its own


@dataclass(frozen=True)
class Function:
    """A parameterless function of ``networks/functions.py``."""

    name: str
    reads: tuple[int, ...]
    group: int | None
    function: str
    arguments: dict[str, _Argument] = field(default_factory=dict)


@dataclass(frozen=True)
class Add:
    """The sum of two values of one group: a residual connection."""

    name: str
    reads: tuple[int, ...]


@dataclass(frozen=True)
class Multiply:
    """The product of two values of one group, one of which may be a single number for each channel."""

    name: str
    reads: tuple[int, ...]


Step = Layer | Norm | Function | Add | Multiply


@dataclass(frozen=True)
class Group:
    """Channels that grow together, named after the layer that opens them."""

    name: str
    width: PositiveInt  # in the base network


@dataclass(frozen=True)
class Graph:
    """A traced network."""

    steps: tuple[Step, ...]
    groups: tuple[Group, ...]

    @cached_property
    def widths(self) -> Widths:
        """Widths of the base network."""
        return tuple(group.width for group in self.groups)

    @cached_property
    def no_units(self) -> Widths:
        """0 for every group: the widths before a first task, and the growth that adds no unit."""
        return (0,) * len(self.groups)

    def total(self, widths: Iterable[Widths]) -> Widths:
        """Add widths up, group by group."""
        return tuple(map(sum, zip(self.no_units, *widths, strict=True)))

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """Hidden layers, the head left out."""
        return tuple(step for step in self.steps[:-1] if isinstance(step, Layer))

    @cached_property
    def norms(self) -> tuple[Norm, ...]:
        """Normalisations in order."""
        return tuple(step for step in self.steps if isinstance(step, Norm))

    @cached_property
    def draws(self) -> bool:
        """Whether training draws random numbers, as dropout does."""
        return any(isinstance(step, Function) and step.function in DRAWING for step in self.steps)

    @cached_property
    def head(self) -> Layer:
        """The last layer; every task has its own."""
        head = self.steps[-1]
        assert isinstance(head, Layer)
        return head


_STEPS: dict[str, type[Step]] = {
    "layer": Layer, "norm": Norm, "function": Function, "add": Add, "multiply": Multiply
}  # fmt: skip
_LEFT_OUT = {"separate": "", "groups": 1}  # as written before there were such layers
_NAMES = {kind: name for name, kind in _STEPS.items()}


def to_json(graph: Graph) -> dict[str, Any]:
    """Return the graph as plain JSON values."""
    return {
        "groups": [asdict(group) for group in graph.groups],
        "steps": [{"step": _NAMES[type(step)], **_fields(step)} for step in graph.steps],
    }


def _fields(step: Step) -> dict[str, Any]:
    return {name: value for name, value in asdict(step).items() if name not in _LEFT_OUT or value != _LEFT_OUT[name]}


def from_json(data: dict[str, Any]) -> Graph:
    """Rebuild a graph from ``to_json``, or raise InputError naming the step or field of a wrong kind.

    ``networks/check.py`` checks whether the steps fit together.
    """
    parse_value(dict[str, Any], data, "graph")
    steps = []
    for index, entry in enumerate(parse_value(list[dict[str, Any]], data["steps"], "graph.steps")):
        where = f"graph.steps[{index}]"
        kind = parse_value(str, entry.pop("step", None), f"{where}.step")
        if kind not in _STEPS:
            raise NetworkError(f"{where}.step: unknown kind '{kind}'" + did_you_mean(kind, _STEPS))
        steps.append(parse_value(_STEPS[kind], entry, where))
    return Graph(tuple(steps), parse_value(tuple[Group, ...], data["groups"], "graph.groups"))

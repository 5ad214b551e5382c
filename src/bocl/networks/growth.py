"""What one task adds to the network: its tensors, their shapes, their first values and their number.

A layer W grows by new units (rows) and by what old units read from them (columns):

    W = | frozen   columns |        frozen   (o, i)           the pieces of the earlier tasks it reads
        |       rows       |        columns  (o, z_in)        as the wiring has them
                                    rows     (z_out, i + z_in)

A task that reads no other, such as the first, grows from nothing: all its units are rows. Names of tensors:

    layer/NAME/rows, columns, bias    gate/NAME/…    norm/NAME/weight, bias, mean, var    head/weight, bias
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import chain
from math import prod
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from bocl.checks import Fraction, Number, Positive, PositiveInt, section
from bocl.errors import ConfigError
from bocl.networks import attention
from bocl.networks.graph import Graph, Layer, Source
from bocl.widths import Widths
from bocl.wording import shown

Shapes = dict[str, tuple[Any, ...]]
PARTS = ("shared", "heads", "attention", "norms")
_PART_OF = {
    **dict.fromkeys(("layer", "lateral", "factor"), "shared"),
    **{"head": "heads", "gate": "attention", "norm": "norms"},
    **dict.fromkeys(("mpfc", "bla"), "shared"),
}
_STATISTICS = ("mean", "var")
_Reduction = Annotated[PositiveInt, Field(le=10**9)]  # beyond the width of any layer
_GateBias = Annotated[Number, Field(ge=-1e6, le=1e6)]  # a sigmoid is flat long before


#: Settings that only the other form reads.
UNREAD = {
    "units": ("groups", "depth", "scale", "head"),
    "low-rank": ("wiring", "gates", "gate_share", "reduction_nodes", "reduction_channels"),
}


@section("growth")
@dataclass(frozen=True)
class GrowthSettings:
    """How the network grows.

    form                `units`: every task adds units to the layers of a traced network; `low-rank`: every task adds
                        low-rank factors to the layers of a trained module, which may be any code
    reads               whose units a task reads: `all` earlier tasks', those of the `first` one, none (`own`: a network
                        of its own), or what a search finds best (`choose`; methods without a search read all)
    wiring              `full`: old units also read this task's new units; `lean`: the same, but not through a flatten,
                        where every unit costs many columns; `forward`: they do not
    attention           gate what layers read (from the second task on)
    gates               `unit`: one number per unit read, where frozen units read it, and only if all gates are at most
                        gate_share of what the task adds; `sample`: a small network computes the gates of every layer
                        but the first for each sample, as in the paper
    gate_share          most that gates of the kind `unit` may be of what a task adds
    reduction_nodes     r of a `sample` gate over nodes: hidden width = max(2, ⌈C / r⌉)
    reduction_channels  r of one over channels
    gate_bias           b_s at the start; +3 opens the gates
    norms               of what a task reads: `frozen`, or every `task` has its own scales, shifts and statistics, which
                        start from those there are. None: `task` where units grow, `frozen` in low-rank growth
    groups              of low-rank growth: {name: pattern of the names of its layers}; layers of a group have the same
                        rank. None: attention-in, attention-out, mlp, expand and project, by thirds of the depth
    depth               of low-rank growth: share of the layers, from the end, that may have factors
    scale               α of low-rank growth: factors of rank r count α/√r
    head                of low-rank growth: name of the linear layer that every task replaces by its own, or `none`.
                        None: the last one, if it is named like a head
    """

    reads: Literal["choose", "all", "first", "own"] = "choose"
    wiring: Literal["full", "lean", "forward"] = "lean"
    attention: bool = True
    gates: Literal["unit", "sample"] = "unit"
    gate_share: Fraction = 0.1
    reduction_nodes: _Reduction = 64
    reduction_channels: _Reduction = 16
    gate_bias: _GateBias = 3.0
    form: Literal["units", "low-rank"] = "units"
    norms: Literal["frozen", "task"] | None = None
    groups: dict[str, str] = field(default_factory=dict)
    depth: Annotated[Positive, Field(le=1)] = 1.0
    scale: Positive = 4.0
    head: str | None = None

    def __post_init__(self) -> None:
        defaults = {entry.name: entry.default for entry in fields(self)}
        defaults["groups"] = {}
        for name in UNREAD[self.form]:
            if getattr(self, name) != defaults[name]:
                given, usual = shown(getattr(self, name)), shown(defaults[name])
                raise ConfigError(
                    f"growth.{name} is {given}, which growth.form = '{self.form}' does not read; leave it out, or set "
                    f"it to {usual}"
                )

    @property
    def own_norms(self) -> bool:
        """Whether a task has norms of its own for what it reads."""
        return self.norms == "task" or (self.norms is None and self.form == "units")


#: Every task reads all units of all earlier ones, old units read all new ones, and gates depend on the sample.
PAPERS_WAY = GrowthSettings("all", "full", gates="sample")


@dataclass(frozen=True, eq=False)
class Growth:
    """What one task added: z, its number of classes, its own tensors in compact form, and the tasks it reads."""

    widths: Widths
    classes: int
    tensors: dict[str, Tensor]
    reads: tuple[int, ...] = ()


@dataclass(frozen=True)
class GrowthSpace:
    """Every growth that a task may choose from, one for each z.

    before    width of every group that the task reads; 0 each if it reads none
    classes   of the task
    settings  how the network grows

    z is (…, groups) integers: one growth or an array of them. Counts are (…,) and exact; no tensor is made for them.
    """

    graph: Graph
    before: Widths
    classes: int
    settings: GrowthSettings

    @classmethod
    def first(cls, graph: Graph, classes: int) -> GrowthSpace:
        """Return the growths from nothing: without attention, and without old units that could read new ones."""
        return cls(graph, graph.no_units, classes, GrowthSettings())

    def shapes(self, z: Any) -> Shapes:
        """Return the shape of every tensor that growing by z adds.

        With a leading dimension n of z, every entry of a shape that depends on z is an (n,) array.
        """
        z = np.asarray(z, dtype=np.int64)
        first = not any(self.before)
        found: Shapes = {}
        gated: dict[str, Any] = {}  # layers with unit gates → how many

        def sizes(source: Source) -> tuple[int, Any]:
            """Return how many columns are read from old and from new units."""
            if source.group is None:
                return source.width, 0
            return self.before[source.group] * source.spread, z[..., source.group] * source.spread

        for layer in (*self.graph.layers, self.graph.head):
            old_inputs, new_inputs = sizes(layer.source)
            if not layer.gated or not self.settings.attention or first:
                pass
            elif self.settings.gates == "unit":
                if layer.group is not None:  # in a head, which is all the task's own, its weights can do the same
                    gated[layer.name] = (old_inputs + new_inputs) // layer.source.spread
            else:
                nodes = not layer.kernel and layer.source.spread == 1  # a vector of nodes, one column each
                reduction = self.settings.reduction_nodes if nodes else self.settings.reduction_channels
                channels = (old_inputs + new_inputs) // layer.source.spread
                hidden = attention.hidden_width(channels, reduction)
                gate = ((hidden, channels), (hidden,), (channels, hidden), (channels,))
                for name, shape in zip(attention.NAMES, gate, strict=True):
                    found[f"gate/{layer.name}/{name}"] = shape
            weight, bias = tensor_names(layer)
            units = self.classes if layer.group is None else z[..., layer.group]
            if layer.separate == "depthwise":
                found[weight] = (units, 1, *layer.kernel)
            elif layer.separate:
                found[weight] = (units, self._grouped_inputs(layer, new_inputs, units), *layer.kernel)
            else:
                found[weight] = (units, old_inputs + new_inputs, *layer.kernel)
            if layer.group is not None and layer.gated and not first and self._reads_back(layer):
                found[f"layer/{layer.name}/columns"] = (self.before[layer.group], new_inputs, *layer.kernel)
            if layer.bias:
                found[bias] = (units,)
        for norm in self.graph.norms:
            names = ("weight", "bias") if norm.affine else ()
            old_units, new_units = sizes(norm.source)
            kept = old_units + new_units if self.settings.own_norms or first else new_units
            for name in names + (_STATISTICS if norm.kind == "batch" else ()):
                found[f"norm/{norm.name}/{name}"] = (kept,)
        if gated:
            rest = sum(np.asarray(prod(shape), dtype=np.int64) for name, shape in found.items() if is_parameter(name))
            numbers = sum(gated.values())
            affordable = numbers <= self.settings.gate_share * (numbers + rest)
            found |= {f"gate/{name}/{attention.UNIT}": (count * affordable,) for name, count in gated.items()}
        return found

    def _grouped_inputs(self, layer: Layer, inputs: Any, units: Any) -> Any:
        """Return how many of its own new inputs a new unit of a grouped convolution reads."""
        whole = (inputs % layer.groups == 0) & (units % layer.groups == 0) & (not any(self.before))
        return np.where(whole, inputs // layer.groups, inputs)[()]

    def _reads_back(self, layer: Layer) -> bool:
        """Whether old units of a layer read new ones."""
        wiring = self.settings.wiring
        return wiring == "full" or (wiring == "lean" and layer.source.spread == 1)

    def count(self, z: Any) -> dict[str, NDArray[np.int64]]:
        """Count the parameters growing by z would add, by part."""
        return count_shapes(self.shapes(z), np.asarray(z).shape[:-1])

    def count_all(self, z: Any) -> NDArray[np.int64]:
        """Count all parameters growing by z would add."""
        total: NDArray[np.int64] = np.sum(list(self.count(z).values()), axis=0)
        return total

    def count_by_group(self, z: Any) -> NDArray[np.int64]:
        """Count the shared parameters added inside each group's own layers: (…, groups)."""
        owners = {f"layer/{layer.name}": layer.group for layer in self.graph.layers}
        return count_by_owner(self.shapes(z), owners, np.asarray(z).shape)


def count_shapes(shapes: Shapes, lead: tuple[int, ...]) -> dict[str, NDArray[np.int64]]:
    """Count the parameters of these shapes by part, for growths z of the shape ``lead`` + (groups,)."""
    totals = {part: np.zeros(lead, dtype=np.int64) for part in PARTS}
    for name, shape in shapes.items():
        if is_parameter(name):
            totals[_part(name)] += np.asarray(prod(shape), dtype=np.int64)
    return totals


def count_by_owner(shapes: Shapes, owners: Mapping[str, int | None], like: tuple[int, ...]) -> NDArray[np.int64]:
    """Count parameters by group, for z of the shape ``like``; ``owners``: {beginning of a tensor's name: group}."""
    totals = np.zeros(like, dtype=np.int64)
    for name, shape in shapes.items():
        group = owners.get(name.rpartition("/")[0])
        if group is not None:
            totals[..., group] += np.asarray(prod(shape), dtype=np.int64)
    return totals


def count_tensors(*stored: Mapping[str, Tensor]) -> dict[str, int]:
    """Count the parameters that are stored, by part."""
    totals = dict.fromkeys(PARTS, 0)
    for name, tensor in chain.from_iterable(tensors.items() for tensors in stored):
        if is_parameter(name):
            totals[_part(name)] += tensor.numel()
    return totals


def tensor_names(layer: Layer, head: str = "head") -> tuple[str, str]:
    """Return the names of a layer's own weight and bias in a growth; a network with several heads numbers them."""
    prefix, weight = (head, "weight") if layer.group is None else (f"layer/{layer.name}", "rows")
    return f"{prefix}/{weight}", f"{prefix}/bias"


def is_parameter(name: str) -> bool:
    """Whether a tensor is trained: all but the running statistics of norms are."""
    return not (name.startswith("norm/") and name.rsplit("/", 1)[1] in _STATISTICS)


def initialise(
    space: GrowthSpace,
    z: Widths,
    *,
    last: Mapping[str, Tensor] | None = None,
    reads: tuple[int, ...] = (),
    seed: int,
    dtype: torch.dtype = torch.float32,
) -> Growth:
    """Make a child's new tensors: uniform in ±1/√fan-in of the grown layer, as PyTorch starts its own layers.

    last   tensors of the task before: norms of old units continue from them
    reads  the tasks whose units it reads, those of ``space.before``

    Gates start open. The draw depends only on the seed.
    """
    generator = torch.Generator().manual_seed(seed)
    graph = space.graph
    grown = graph.total([space.before, z])
    fan_in = {layer.name: layer.source.size(grown) * prod(layer.kernel) for layer in (*graph.layers, graph.head)}
    shapes = space.shapes(z)
    separate = [layer.name for layer in graph.layers if layer.separate]
    fan_in |= {name: int(prod(shapes[f"layer/{name}/rows"][1:])) for name in separate}

    def uniform(shape: tuple[int, ...], fan: int) -> Tensor:
        return uniform_within(shape, fan, generator, dtype)

    tensors: dict[str, Tensor] = {}
    for name, wanted in shapes.items():
        shape = tuple(int(entry) for entry in wanted)
        part, _, rest = name.partition("/")
        owner, _, kind = rest.rpartition("/")
        if part == "norm":
            tensor = torch.full(shape, 1.0 if kind in ("weight", "var") else 0.0, dtype=dtype)
            if last and name in last:
                tensor[: len(last[name])] = last[name].to("cpu", dtype)
        elif part == "gate" and kind in ("expand.bias", attention.UNIT):
            tensor = torch.full(shape, space.settings.gate_bias, dtype=dtype)
        elif part == "gate":
            fan_name = "expand.weight" if kind.startswith("expand") else "reduce.weight"
            tensor = uniform(shape, shape[1] if kind == fan_name else tensors[f"gate/{owner}/{fan_name}"].shape[1])
        else:
            tensor = uniform(shape, fan_in[graph.head.name if part == "head" else owner])
        tensors[name] = tensor
    return Growth(z, space.classes, tensors, reads)


def uniform_within(shape: tuple[int, ...], fan_in: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Draw a tensor uniformly in ±1/√fan-in."""
    return torch.empty(shape, dtype=dtype).uniform_(-1, 1, generator=generator).div_(max(fan_in, 1) ** 0.5)


def _part(name: str) -> str:
    """Return the part a tensor belongs to; heads of a network with several are numbered."""
    return _PART_OF[name.split("/")[0].rstrip("0123456789")]

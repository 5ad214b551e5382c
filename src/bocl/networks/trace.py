"""An ordinary ``nn.Module`` → its graph, by symbolic tracing (torch.fx).

Only the shape of the module is used: every task makes its own weights, from the run's seeds.
What cannot be traced or grown is refused with the name of the module and the reason.
"""

from __future__ import annotations

import operator
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from bocl.errors import NetworkError
from bocl.networks import functions
from bocl.networks.graph import Add, Function, Graph, Group, Layer, Multiply, Norm, Source, Step
from bocl.networks.ignored import check_nothing_lost, warn_of_ignored

#: Functions by what calls them: F.relu, torch.relu, x.relu().
_CALLS: dict[Any, str] = {
    **{getattr(F, name): name for name in functions.ARGUMENTS if hasattr(F, name)},
    **{torch.relu: "relu", torch.tanh: "tanh", torch.sigmoid: "sigmoid"},
    **{"relu": "relu", "relu_": "relu", "tanh": "tanh", "sigmoid": "sigmoid", "contiguous": "identity"},
}
_TORCH = Path(torch.__file__).parent
_PAIRS: dict[Any, type[Add] | type[Multiply]] = {
    **dict.fromkeys((operator.add, operator.iadd, torch.add, "add", "add_"), Add),
    **dict.fromkeys((operator.mul, operator.imul, torch.mul, torch.multiply, "mul", "mul_"), Multiply),
}
_STOCHASTIC_DEPTH = ("StochasticDepth", "DropPath")  # as torchvision and timm call it
_NOT_KEPT = ("divisor_override", "return_indices")  # arguments of pools that change what they compute


@dataclass(frozen=True)
class _Value:
    """A traced tensor: what its channels are, and where it is."""

    group: int | None = None  # None: the raw input
    width: int | None = None  # channels; None while the raw input's are unknown
    flat: bool = False  # a vector per sample
    spread: int | None = None  # columns per channel; None until a layer shows it
    index: int = 0


def trace(module: nn.Module, *, keeps_weights: bool = False) -> Graph:
    """Trace a module of conv, linear, norm, pool and activation layers into a graph.

    keeps_weights  whether the module's weights are used too, so that nobody need be warned that they are not

    Raises:
        NetworkError: naming the module and the reason, when it cannot be traced or grown.

    Warns:
        NetworkWarning: naming what the module holds that no learner keeps: its weights, frozen flags, other types.
    """
    if not isinstance(module, nn.Module):
        raise NetworkError(f"a network must be an nn.Module, not {type(module).__name__}: {module!r}")
    check_nothing_lost(module)
    try:
        tracer = _Tracer()
        steps = tracer.trace(module)
    except Exception as error:  # fx reports control flow on values as many kinds of exception
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise NetworkError(
            f"{type(module).__name__} cannot be traced: {reason} "
            "(its forward must be the same for every input: no branches or loops on tensor values)"
        ) from error
    graph = _Tracing(fx.GraphModule(tracer.root, steps)).graph()
    if not keeps_weights:
        warn_of_ignored(module)
    return graph


class _Tracer(fx.Tracer):
    """Notes for every call of a function or method where it stands; a module has a name already."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a module is one step; stochastic depth is, whoever wrote it."""
        return type(m).__name__ in _STOCHASTIC_DEPTH or super().is_leaf_module(m, module_qualified_name)

    def create_node(self, kind: str, *arguments: Any, **others: Any) -> fx.Node:
        """Make a node with its ``line``: ``" (net.py, line 12)"``."""
        node = super().create_node(kind, *arguments, **others)
        if kind in ("call_function", "call_method"):
            for frame, line in traceback.walk_stack(sys._getframe(1)):
                file = Path(frame.f_code.co_filename)
                if file == Path(__file__):
                    break  # a forward of PyTorch's own, such as that of nn.Sequential
                if not file.is_relative_to(_TORCH):
                    node.meta["line"] = f" ({file.name}, line {line})"
                    break
        return node


class _Tracing:
    """One pass over the nodes of a traced module."""

    def __init__(self, traced: fx.GraphModule) -> None:
        self.modules = dict(traced.named_modules())
        self._check_in_place(list(traced.graph.nodes))
        traced.graph.eliminate_dead_code()
        self.nodes = list(traced.graph.nodes)
        self.steps: list[Step] = []
        self.values: dict[fx.Node, _Value] = {}
        self.opened: list[Group] = []  # every group opened, before additions tie some together
        self.tied: list[int] = []  # union-find parents over self.opened
        self.used: set[str] = set()
        self.weights: set[nn.Parameter] = set()
        self.outputs: set[int] = set()  # values that are the result of a linear layer
        # By type of module (a subclass computes something else: lazy, parametrised or quantised), function or method.
        self.followed: dict[Any, Callable[[fx.Node, str, Any, _Value], None]] = {
            **dict.fromkeys((*functions.MODULES, *_CALLS), self._function),
            **dict.fromkeys((nn.Flatten, torch.flatten, "flatten"), self._flatten),
            **dict.fromkeys((torch.reshape, "reshape", "view"), self._view),
            **dict.fromkeys((torch.mean, "mean"), self._mean),
        }
        self.grown: dict[Any, Callable[[fx.Node, str, Any, _Value], None]] = {
            nn.Linear: self._linear,
            **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), self._convolution),
            **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), self._batch_norm),
            nn.GroupNorm: self._group_norm,
            nn.LayerNorm: self._layer_norm,
        }

    def graph(self) -> Graph:
        inputs = [node for node in self.nodes if node.op == "placeholder"]
        if len(inputs) != 1:
            raise NetworkError(f"the network takes {len(inputs)} inputs; it must take one tensor")
        self.values[inputs[0]] = _Value()
        for node in self.nodes:
            if node.op == "output":
                self._check_output(node)
            elif node.op == "get_attr":
                raise NetworkError(
                    f"'{node.target}' is a parameter or buffer used directly; only the weights of layers can grow"
                )
            elif node.op != "placeholder" and not self._is_size(node):
                try:
                    self._follow(node)
                except NetworkError as error:
                    raise NetworkError(f"{error}{node.meta.get('line', '')}") from error
        return self._numbered()

    def _is_size(self, node: fx.Node) -> bool:
        """Whether a node is a size, as of a flatten written as view(x.size(0), -1)."""
        if node.target is operator.getitem:
            return node.args[0] not in self.values
        if node.op == "call_module":
            return False
        return node.target in ("size", "dim") or (node.target is getattr and node.args[1] in ("shape", "ndim"))

    def _follow(self, node: fx.Node) -> None:
        """Add the step that a call of a module, function or method is."""
        module = self.modules[str(node.target)] if node.op == "call_module" else None
        kind, name = (node.target, node.name) if module is None else (type(module), str(node.target))
        if module is None and kind in _PAIRS:
            self._pair(node, _PAIRS[kind])
        elif type(module).__name__ in _STOCHASTIC_DEPTH:
            value = self._read(node, name)
            share = getattr(module, "p", getattr(module, "drop_prob", 0.0)) or 0.0
            self._apply(node, name, "stochastic_depth", {"p": float(share)}, value)
        elif module is not None and kind in self.grown:
            value = self._read(node, name)
            self._check_own(name, module)
            self.grown[kind](node, name, module, value)
        elif kind in self.followed:
            self.followed[kind](node, name, module, self._read(node, name))
        elif module is not None:
            raise NetworkError(
                f"'{name}' is a {type(module).__name__}, which cannot be grown "
                "(layers that can: Linear, Conv1d-3d, BatchNorm, GroupNorm, LayerNorm of vectors, pools, activations, "
                "Flatten, Dropout)"
            )
        else:
            raise NetworkError(
                f"'{name}' calls {getattr(kind, '__name__', kind)}(), which cannot be grown "
                "(functions that can: +, *, flatten, mean over space, activations, pools, dropout)"
            )

    def _read(self, node: fx.Node, name: str) -> _Value:
        argument = node.args[0] if node.args else None
        if not isinstance(argument, fx.Node) or argument not in self.values:
            raise NetworkError(f"'{name}' does not read the output of a layer that can be followed")
        return self.values[argument]

    def _check_own(self, name: str, module: nn.Module) -> None:
        """Refuse a layer that is used twice, or shares its weights with another."""
        if name in self.used:
            raise NetworkError(f"'{name}' is used twice; a layer that grows can stand in one place only")
        self.used.add(name)
        weights = set(module.parameters(recurse=False))
        if weights & self.weights:
            raise NetworkError(f"'{name}' shares its weights with another layer; every layer grows weights of its own")
        self.weights |= weights

    def _check_in_place(self, nodes: list[fx.Node]) -> None:
        """Refuse a value that is changed in place and read again: a graph has only the value before."""
        place = {node: number for number, node in enumerate(nodes)}
        for node in nodes:
            if node.op == "call_module":
                in_place = getattr(self.modules[str(node.target)], "inplace", False)
            elif node.op == "call_method":
                in_place = str(node.target).endswith("_")
            else:
                in_place = node.target in (operator.iadd, operator.imul) or node.kwargs.get("inplace", False)
            changed = node.args[0] if in_place and node.args else None
            if isinstance(changed, fx.Node) and any(place[user] > place[node] for user in changed.users):
                raise NetworkError(
                    f"'{node.name}' changes '{changed.name}' in place, which is read again after it; use inplace=False"
                )

    # -- layers and norms --------------------------------------------------------------------------

    def _linear(self, node: fx.Node, name: str, module: nn.Linear, value: _Value) -> None:
        if value.group is not None and not value.flat:
            raise NetworkError(f"'{name}' is linear but reads a feature map; flatten it first")
        source = self._source(name, module.in_features, value)
        opened = self._open(name, module.out_features)
        layer = Layer(name, (value.index,), source, opened, bias=module.bias is not None)
        self._add(node, layer, _Value(opened, module.out_features, flat=True, spread=1))
        self.outputs.add(self.values[node].index)

    def _convolution(self, node: fx.Node, name: str, module: Any, value: _Value) -> None:
        if value.flat:
            raise NetworkError(f"'{name}' is a convolution but reads a flattened vector")
        if module.groups != 1 and value.group is None:
            raise NetworkError(f"'{name}' convolves the raw input in groups={module.groups}; put a layer before it")
        depthwise = module.groups == module.in_channels == module.out_channels > 1
        if module.padding_mode != "zeros":
            raise NetworkError(f"'{name}' has padding_mode='{module.padding_mode}'; only 'zeros' is supported")
        source = self._source(name, module.in_channels, value)
        opened = value.group if depthwise else self._open(name, module.out_channels)
        layer = Layer(
            name,
            (value.index,),
            source,
            opened,
            bias=module.bias is not None,
            separate="depthwise" if depthwise else "grouped" if module.groups > 1 else "",
            groups=1 if depthwise else module.groups,
            kernel=tuple(module.kernel_size),
            stride=tuple(module.stride),
            padding=module.padding if module.padding in ("same", "valid") else tuple(module.padding),
            dilation=tuple(module.dilation),
        )
        self._add(node, layer, _Value(opened, module.out_channels))

    def _batch_norm(self, node: fx.Node, name: str, module: Any, value: _Value) -> None:
        if not module.track_running_stats or module.momentum is None:
            raise NetworkError(
                f"'{name}' keeps no running statistics with a fixed momentum; its predictions would depend on "
                "what else is in the batch (use track_running_stats=True and a momentum)"
            )
        source = self._source(name, module.num_features, value)
        norm = Norm(name, (value.index,), source, "batch", module.affine, module.eps, momentum=module.momentum)
        spread = source.spread if value.flat else None
        self._add(node, norm, replace(value, width=value.width or module.num_features, spread=spread))

    def _group_norm(self, node: fx.Node, name: str, module: nn.GroupNorm, value: _Value) -> None:
        if value.flat:
            raise NetworkError(f"'{name}' is a GroupNorm on a vector; a single added unit would always be zero")
        source = self._source(name, module.num_channels, value)
        norm = Norm(name, (value.index,), source, "group", module.affine, module.eps, num_groups=module.num_groups)
        self._add(node, norm, replace(value, width=module.num_channels))

    def _layer_norm(self, node: fx.Node, name: str, module: nn.LayerNorm, value: _Value) -> None:
        if not value.flat or len(module.normalized_shape) != 1:
            raise NetworkError(
                f"'{name}' is a LayerNorm over {tuple(module.normalized_shape)}; only one over the units of a vector "
                "can grow (use GroupNorm or BatchNorm on feature maps)"
            )
        source = self._source(name, module.normalized_shape[0], value)
        if source.spread != 1:
            raise NetworkError(f"'{name}' is a LayerNorm right after a flatten; put a linear layer before it")
        affine = module.weight is not None
        norm = Norm(name, (value.index,), source, "layer", affine, module.eps)
        self._add(node, norm, replace(value, width=value.width or module.normalized_shape[0], spread=source.spread))

    def _source(self, name: str, inputs: int, value: _Value) -> Source:
        """Return what a layer of so many inputs reads; their number shows how many columns each channel has."""
        if value.width is None or (value.group is None and value.flat):
            return Source(None, inputs)
        columns = value.spread if value.flat else 1
        expected = value.width * columns if columns else f"a multiple of {value.width}"
        if inputs % value.width or (columns and inputs != expected):
            kind = "features" if value.flat else "channels"
            raise NetworkError(f"'{name}' expects {inputs} {kind} but reads {expected}")
        return Source(value.group, value.width, inputs // value.width)

    def _open(self, name: str, width: int) -> int:
        if width < 1:
            raise NetworkError(f"'{name}' has {width} units; a layer starts with one or more")
        self.opened.append(Group(name, width))
        self.tied.append(len(self.tied))
        return len(self.opened) - 1

    def _root(self, group: int) -> int:
        while self.tied[group] != group:
            group = self.tied[group]
        return group

    def _add(self, node: fx.Node, step: Step, value: _Value) -> None:
        self.steps.append(step)
        self.values[node] = replace(value, index=len(self.steps))

    # -- functions ---------------------------------------------------------------------------------

    def _pair(self, node: fx.Node, kind: type[Add] | type[Multiply]) -> None:
        """Add or multiply two values, which ties their groups."""
        name, does = node.name, "adds" if kind is Add else "multiplies"
        if node.kwargs or any(argument not in self.values for argument in node.args) or len(node.args) != 2:
            raise NetworkError(f"'{name}' {does} something that is not the output of a layer")
        left, right = (self.values[argument] for argument in node.args)  # type: ignore[index]
        if left.group is None or right.group is None:
            raise NetworkError(f"'{name}' {does} the raw input, whose width cannot grow; put a layer before it")
        if left.width != right.width or left.flat != right.flat:
            raise NetworkError(f"'{name}' {does} {left.width} channels and {right.width}; their widths must agree")
        if self.outputs & {left.index, right.index} and any(user.op == "output" for user in node.users):
            raise NetworkError(f"'{name}' ends the network; it must end in one Linear layer, the head")
        first, second = sorted((self._root(left.group), self._root(right.group)))
        self.tied[second] = first
        spread = left.spread or right.spread
        self._add(node, kind(name, (left.index, right.index)), replace(left, group=first, spread=spread))

    def _function(self, node: fx.Node, name: str, module: nn.Module | None, value: _Value) -> None:
        function = _CALLS[node.target] if module is None else functions.MODULES[type(module)]
        names = functions.ARGUMENTS[function]
        if module is None:
            others = [f"argument {place}" for place in range(1 + len(names), len(node.args))]
            given = dict(zip((*names, *others), node.args[1:], strict=False)) | dict(node.kwargs)
        else:
            given = {argument: getattr(module, argument, None) for argument in (*names, *_NOT_KEPT)}
        kept = {argument: given.pop(argument) for argument in names if argument in given}
        for argument, item in given.items():
            if argument not in ("inplace", "training") and item not in (None, False):
                raise NetworkError(f"'{name}' has {argument}={item}, which is not supported; leave it out")
        if function == "dropout":
            kept.setdefault("p", 0.5)
        self._apply(node, name, function, kept, value)

    def _flatten(self, node: fx.Node, name: str, module: nn.Flatten | None, value: _Value) -> None:
        given = dict(zip(("start_dim", "end_dim"), node.args[1:], strict=False)) | dict(node.kwargs)
        start, end = given.get("start_dim", 0), given.get("end_dim", -1)
        if module is not None:
            start, end = module.start_dim, module.end_dim
        if (start, end) == (2, -1):
            raise NetworkError(
                f"'{name}' flattens dimensions 2 … -1, which makes a sequence, as attention reads it, and attention "
                "cannot be grown; use flatten(1), or a mean over space, and linear layers after it"
            )
        if (start, end) != (1, -1):
            raise NetworkError(f"'{name}' flattens dimensions {start} … {end}; use 1 … -1, so that samples stay apart")
        self._apply(node, name, "flatten", {}, value)

    def _view(self, node: fx.Node, name: str, _module: None, value: _Value) -> None:
        shape = node.args[1:]
        if len(shape) == 1 and isinstance(shape[0], tuple | list):
            shape = tuple(shape[0])
        keeps_batch = len(shape) == 2 and (shape[0] == -1 or _is_batch_size(shape[0]))
        if not keeps_batch or not isinstance(shape[1], int):
            raise NetworkError(f"'{name}' reshapes to {shape}; only a flatten to (batch, -1) can be followed")
        self._apply(node, name, "flatten", {}, value)

    def _mean(self, node: fx.Node, name: str, _module: None, value: _Value) -> None:
        dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        spatial = isinstance(dims, tuple | list) and set(dims) in ({2, 3}, {-1, -2}, {2}, {2, 3, 4})
        if not spatial or value.flat or node.kwargs.get("keepdim", False):
            raise NetworkError(f"'{name}' takes a mean over {dims}; only a mean over all of space can be followed")
        self._apply(node, name, "global_average", {}, value)

    def _apply(self, node: fx.Node, name: str, function: str, arguments: dict[str, Any], value: _Value) -> None:
        plain = {key: tuple(item) if isinstance(item, list) else item for key, item in arguments.items()}
        if any(isinstance(item, fx.Node) for item in plain.values()):
            raise NetworkError(f"'{name}' takes an argument computed from the data; it must be a constant")
        if function == "interpolate" and value.group is not None:
            raise NetworkError(f"'{name}' resizes a feature map; only the raw input can be resized")
        if "pool" in function and value.flat:
            raise NetworkError(f"'{name}' pools a vector, which would mix its units; pool before the flatten")
        result = value
        if function in functions.FLATTENS and not value.flat:
            result = replace(value, flat=True, spread=1 if function == "global_average" else None)
        self._add(node, Function(name, (value.index,), value.group, function, plain), result)

    # -- the end -----------------------------------------------------------------------------------

    def _check_output(self, node: fx.Node) -> None:
        result = node.args[0]
        value = self.values.get(result) if isinstance(result, fx.Node) else None
        if value is None or value.index not in self.outputs or value.index != len(self.steps):
            raise NetworkError(
                "the network does not end in a Linear layer; its last step must be the head, giving one logit per class"
            )
        if isinstance(result, fx.Node) and len(result.users) > 1:
            raise NetworkError("the last Linear layer is also read inside the network; the head must stand at the end")

    def _numbered(self) -> Graph:
        """Number the groups that are left after tying, in order, without the head's."""
        head = self.steps[-1]
        assert isinstance(head, Layer)
        roots = sorted({self._root(group) for group in range(len(self.opened))} - {head.group})
        if not roots:
            raise NetworkError("the network has no hidden layer that could grow, only a head")
        number: dict[int | None, int | None] = {None: None, head.group: None}
        number |= {group: roots.index(self._root(group)) for group in range(len(self.opened)) if group != head.group}
        steps: list[Step] = []
        for step in self.steps:
            if isinstance(step, Layer | Norm):
                step = replace(step, source=replace(step.source, group=number[step.source.group]))
            if isinstance(step, Layer | Function):
                step = replace(step, group=number[step.group])
            steps.append(step)
        return Graph(tuple(steps), tuple(self.opened[root] for root in roots))


def _is_batch_size(size: object) -> bool:
    """Whether a traced number is the batch's: x.size(0), x.shape[0] or x.size()[0]."""
    if not isinstance(size, fx.Node):
        return False
    if size.target == "size":
        return (*size.args[1:], *size.kwargs.values()) == (0,)
    return bool(size.target is operator.getitem and size.args[1] == 0)

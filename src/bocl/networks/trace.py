"""An ordinary ``nn.Module`` → its graph, by symbolic tracing (torch.fx).

Only the shape of the module is used: every task makes its own weights, from the run's seeds.
What cannot be traced or grown is refused with the name of the module and the reason.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from bocl.errors import NetworkError
from bocl.networks import functions
from bocl.networks.graph import Add, Function, Graph, Group, Layer, Norm, Source, Step

_ADDITIONS = (operator.add, operator.iadd, torch.add)
_CALLS: dict[Any, str] = {
    getattr(F, name): name for name in functions.ARGUMENTS if hasattr(F, name) and callable(getattr(F, name))
}
_CALLS |= {torch.relu: "relu", torch.tanh: "tanh", torch.sigmoid: "sigmoid"}
_METHODS = {"relu": "relu", "relu_": "relu", "tanh": "tanh", "sigmoid": "sigmoid", "contiguous": "identity"}


@dataclass(frozen=True)
class _Value:
    """A traced tensor: where it is, and what its channels are."""

    index: int
    group: int | None  # None: the raw input
    width: int | None  # channels; None while the raw input's are unknown
    flat: bool  # a vector per sample
    spread: int | None  # columns per channel; None until a layer says


def trace(module: nn.Module) -> Graph:
    """Trace a module of conv, linear, norm, pool and activation layers into a graph.

    Raises:
        NetworkError: naming the module and the reason, when it cannot be traced or grown.
    """
    if not isinstance(module, nn.Module):
        raise NetworkError(f"a network must be an nn.Module, not {type(module).__name__}: {module!r}")
    try:
        traced = fx.symbolic_trace(module)
    except Exception as error:  # fx reports control flow on values as many kinds of exception
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise NetworkError(
            f"{type(module).__name__} cannot be traced: {reason} "
            "(its forward must be the same for every input: no branches or loops on tensor values)"
        ) from error
    return _Tracing(traced).graph()


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

    def graph(self) -> Graph:
        inputs = [node for node in self.nodes if node.op == "placeholder"]
        if len(inputs) != 1:
            raise NetworkError(f"the network takes {len(inputs)} inputs; it must take one tensor")
        self.values[inputs[0]] = _Value(0, None, None, flat=False, spread=None)
        for node in self.nodes:
            if node.op == "output":
                self._check_output(node)
            elif node.op == "call_module":
                self._module(node)
            elif node.op in ("call_function", "call_method"):
                self._call(node)
            elif node.op == "get_attr":
                raise NetworkError(
                    f"'{node.target}' is a parameter or buffer used directly; only the weights of layers can grow"
                )
        return self._numbered()

    # -- modules -----------------------------------------------------------------------------------

    def _module(self, node: fx.Node) -> None:
        name, module = str(node.target), self.modules[str(node.target)]
        value = self._read(node, name)
        kind = type(module)  # a subclass computes something else: lazy, parametrised or quantised
        with_weights: dict[type[nn.Module], Callable[[fx.Node, str, Any, _Value], None]] = {
            nn.Linear: self._linear,
            **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), self._convolution),
            **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), self._batch_norm),
            nn.GroupNorm: self._group_norm,
        }
        if kind in with_weights:
            self._check_own(name, module)
            with_weights[kind](node, name, module, value)
        elif isinstance(module, nn.Flatten):
            self._flatten(node, name, module.start_dim, module.end_dim, value)
        elif kind in functions.MODULES:
            function = functions.MODULES[kind]
            kept = {argument: getattr(module, argument) for argument in functions.ARGUMENTS[function]}
            ignored = {argument: getattr(module, argument, None) for argument in ("divisor_override", "return_indices")}
            self._check_ignored(name, ignored)
            self._function(node, name, function, kept, value)
        else:
            raise NetworkError(
                f"'{name}' is a {type(module).__name__}, which cannot be grown "
                "(layers that can: Linear, Conv1d-3d, BatchNorm, GroupNorm, pools, activations, Flatten, Dropout)"
            )

    def _check_own(self, name: str, module: nn.Module) -> None:
        """Refuse a layer that stands in two places, or shares its weights with another."""
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
                in_place = node.target is operator.iadd or node.kwargs.get("inplace", False)
            changed = node.args[0] if in_place and node.args else None
            if isinstance(changed, fx.Node) and any(place[user] > place[node] for user in changed.users):
                raise NetworkError(
                    f"'{node.name}' changes '{changed.name}' in place, which is read again after it; use inplace=False"
                )

    def _check_ignored(self, name: str, arguments: dict[str, Any]) -> None:
        """Refuse arguments that matter and are not kept."""
        for argument, given in arguments.items():
            if given not in (None, False):
                raise NetworkError(f"'{name}' has {argument}={given}, which is not supported; leave it out")

    def _linear(self, node: fx.Node, name: str, module: nn.Linear, value: _Value) -> None:
        if value.group is not None and not value.flat:
            raise NetworkError(f"'{name}' is linear but reads a feature map; flatten it first")
        source = self._columns(name, module.in_features, value)
        opened = self._open(name, module.out_features)
        layer = Layer(name, (value.index,), source, opened, bias=module.bias is not None)
        self._add(node, layer, opened, module.out_features, flat=True, spread=1)
        self.outputs.add(self.values[node].index)

    def _convolution(self, node: fx.Node, name: str, module: Any, value: _Value) -> None:
        if value.flat:
            raise NetworkError(f"'{name}' is a convolution but reads a flattened vector")
        if module.groups != 1:
            raise NetworkError(f"'{name}' has groups={module.groups}; only ordinary convolutions (groups=1) can grow")
        if module.padding_mode != "zeros":
            raise NetworkError(f"'{name}' has padding_mode='{module.padding_mode}'; only 'zeros' is supported")
        source = Source(value.group, module.in_channels)
        self._check_width(name, module.in_channels, value)
        opened = self._open(name, module.out_channels)
        layer = Layer(
            name,
            (value.index,),
            source,
            opened,
            bias=module.bias is not None,
            kernel=tuple(module.kernel_size),
            stride=tuple(module.stride),
            padding=module.padding if isinstance(module.padding, str) else tuple(module.padding),
            dilation=tuple(module.dilation),
        )
        self._add(node, layer, opened, module.out_channels, flat=False, spread=None)

    def _batch_norm(self, node: fx.Node, name: str, module: Any, value: _Value) -> None:
        if not module.track_running_stats or module.momentum is None:
            raise NetworkError(
                f"'{name}' keeps no running statistics with a fixed momentum; its predictions would depend on "
                "what else is in the batch (use track_running_stats=True and a momentum)"
            )
        source = self._columns(name, module.num_features, value)
        norm = Norm(name, (value.index,), source, "batch", module.affine, module.eps, momentum=module.momentum)
        spread = source.spread if value.flat else None
        self._add(node, norm, value.group, value.width or module.num_features, flat=value.flat, spread=spread)

    def _group_norm(self, node: fx.Node, name: str, module: nn.GroupNorm, value: _Value) -> None:
        if value.flat:
            raise NetworkError(f"'{name}' is a GroupNorm on a vector; a single added unit would always be zero")
        self._check_width(name, module.num_channels, value)
        source = Source(value.group, module.num_channels)
        norm = Norm(name, (value.index,), source, "group", module.affine, module.eps, num_groups=module.num_groups)
        self._add(node, norm, value.group, module.num_channels, flat=False, spread=None)

    # -- functions and methods ---------------------------------------------------------------------

    def _call(self, node: fx.Node) -> None:
        target = node.target
        if target in ("size", "dim") or (target is getattr and node.args[1] in ("shape", "ndim")):
            return  # sizes: a flatten written as view(x.size(0), -1) reads one
        if target is operator.getitem and node.args[0] not in self.values:
            return
        name = node.name
        if target in _ADDITIONS or target in ("add", "add_"):
            self._addition(node)
        elif target in (torch.flatten, "flatten"):
            value = self._read(node, name)
            given = dict(zip(("start_dim", "end_dim"), node.args[1:], strict=False)) | dict(node.kwargs)
            self._flatten(node, name, given.get("start_dim", 0), given.get("end_dim", -1), value)
        elif target in ("view", "reshape", torch.reshape):
            self._view(node)
        elif target in ("mean", torch.mean):
            self._mean(node)
        elif target in _CALLS or (node.op == "call_method" and target in _METHODS):
            function = _CALLS[target] if node.op == "call_function" else _METHODS[str(target)]
            value = self._read(node, name)
            names = functions.ARGUMENTS[function]
            given = dict(zip(names, node.args[1:], strict=False)) | dict(node.kwargs)
            kept = {argument: given[argument] for argument in names if argument in given}
            ignored = dict(enumerate(node.args[1 + len(names) :], start=1 + len(names))) | given
            for argument in (*names, "inplace", "training"):
                ignored.pop(argument, None)
            self._check_ignored(name, {f"argument {argument}": item for argument, item in ignored.items()})
            if function == "dropout":
                kept.setdefault("p", 0.5)
            self._function(node, name, function, kept, value)
        else:
            label = target if isinstance(target, str) else getattr(target, "__name__", str(target))
            raise NetworkError(
                f"'{name}' calls {label}(), which cannot be grown "
                "(functions that can: +, flatten, mean over space, activations, pools, dropout)"
            )

    def _addition(self, node: fx.Node) -> None:
        name = node.name
        if node.kwargs or any(argument not in self.values for argument in node.args) or len(node.args) != 2:
            raise NetworkError(f"'{name}' adds something that is not the output of a layer")
        left, right = (self.values[argument] for argument in node.args)  # type: ignore[index]
        if left.group is None or right.group is None:
            raise NetworkError(f"'{name}' adds the raw input, whose width cannot grow; put a layer before the addition")
        if left.width != right.width or left.flat != right.flat:
            raise NetworkError(f"'{name}' adds {left.width} channels to {right.width}; residual widths must agree")
        if self.outputs & {left.index, right.index} and any(user.op == "output" for user in node.users):
            raise NetworkError(f"'{name}' ends the network in an addition; it must end in one Linear layer, the head")
        first, second = sorted((self._root(left.group), self._root(right.group)))
        self.tied[second] = first
        step = Add(name, (left.index, right.index))
        self._add(node, step, first, left.width, flat=left.flat, spread=left.spread or right.spread)

    def _view(self, node: fx.Node) -> None:
        value = self._read(node, node.name)
        shape = node.args[1:]
        if len(shape) == 1 and isinstance(shape[0], tuple | list):
            shape = tuple(shape[0])
        keeps_batch = len(shape) == 2 and (shape[0] == -1 or _is_batch_size(shape[0]))
        if not keeps_batch or not isinstance(shape[1], int):
            raise NetworkError(f"'{node.name}' reshapes to {shape}; only a flatten to (batch, -1) can be followed")
        self._function(node, node.name, "flatten", {}, value)

    def _flatten(self, node: fx.Node, name: str, start: Any, end: Any, value: _Value) -> None:
        if (start, end) != (1, -1):
            raise NetworkError(f"'{name}' flattens dimensions {start} … {end}; use 1 … -1, so that samples stay apart")
        self._function(node, name, "flatten", {}, value)

    def _mean(self, node: fx.Node) -> None:
        value = self._read(node, node.name)
        dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        spatial = isinstance(dims, tuple | list) and set(dims) in ({2, 3}, {-1, -2}, {2}, {2, 3, 4})
        if not spatial or value.flat or node.kwargs.get("keepdim", False):
            raise NetworkError(f"'{node.name}' takes a mean over {dims}; only a mean over all of space can be followed")
        self._function(node, node.name, "global_average", {}, value)

    # -- bookkeeping -------------------------------------------------------------------------------

    def _read(self, node: fx.Node, name: str) -> _Value:
        argument = node.args[0] if node.args else None
        if not isinstance(argument, fx.Node) or argument not in self.values:
            raise NetworkError(f"'{name}' does not read the output of a layer that can be followed")
        return self.values[argument]

    def _function(self, node: fx.Node, name: str, function: str, arguments: dict[str, Any], value: _Value) -> None:
        plain = {key: tuple(item) if isinstance(item, list) else item for key, item in arguments.items()}
        if any(isinstance(item, fx.Node) for item in plain.values()):
            raise NetworkError(f"'{name}' takes an argument computed from the data; it must be a constant")
        if "pool" in function and value.flat:
            raise NetworkError(f"'{name}' pools a vector, which would mix its units; pool before the flatten")
        flattens = function in functions.FLATTENS
        spread = value.spread
        if flattens and not value.flat:
            spread = 1 if function == "global_average" else None
        step = Function(name, (value.index,), value.group, function, plain)
        self._add(node, step, value.group, value.width, flat=value.flat or flattens, spread=spread)

    def _columns(self, name: str, features: int, value: _Value) -> Source:
        """Find how many columns each channel spreads over, from the number of features a layer reads."""
        if value.group is None:
            return Source(None, features)
        assert value.width is not None
        expected = value.width * value.spread if value.spread else None
        if not value.flat:
            expected = value.width
        if features % value.width or (expected is not None and features != expected):
            raise NetworkError(
                f"'{name}' expects {features} features but reads {expected or f'a multiple of {value.width}'}"
            )
        return Source(value.group, value.width, features // value.width)

    def _check_width(self, name: str, channels: int, value: _Value) -> None:
        if value.width is not None and value.width != channels:
            raise NetworkError(f"'{name}' expects {channels} channels but reads {value.width}")

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

    def _add(
        self, node: fx.Node, step: Step, group: int | None, width: int | None, *, flat: bool, spread: int | None
    ) -> None:
        self.steps.append(step)
        self.values[node] = _Value(len(self.steps), group, width, flat, spread)

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

"""K children of unequal width, trained together as one padded batch.

Every tensor of a child lies in the top-left corner of a padded one, and the padded ones are stacked: (K, …).
Units that are only padding read zero weights, put out zero and feed zero weights, so they get zero
gradients and stay zero: a child trained in a stack takes the steps it would take alone.

Children share the mini-batch and what is known. Values before the first layer have no K; after it they
are (K, n, C, …).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bocl.errors import InputError
from bocl.networks import functions
from bocl.networks.attention import gate, gate_parts
from bocl.networks.compact import CompactNetwork, normalise_blocks
from bocl.networks.graph import Add, Function, Graph, Layer, Norm, Widths
from bocl.networks.growth import Growth, GrowthSettings, is_parameter, shapes
from bocl.networks.known_and_new import by_pieces, multiplies_whole, whole
from bocl.networks.products import children_first, own_product, plain_product, shared_product, side_by_side


@dataclass(frozen=True)
class _Value:
    """A value on its way through the stack: units all children share, then each child's own.

    shared  (n, C, *space), or None
    own     (K, n, C', *space), or None
    apart   whether own holds new units alone, the known ones being shared or left out
    """

    shared: Tensor | None = None
    own: Tensor | None = None
    apart: bool = False


class Children:
    """K growths of one known network, to be trained.

    known       the network before this task, frozen; None for a first task
    pad_to      widths every child is padded to; at least each child's own
    settings    how the growths were made
    head_of     name of the head that a task uses, for networks with several
    parameters  name → (K, …), trained
    buffers     name → (K, …), running statistics of norms
    masks       mask/GROUP → (K, C): 1 for units a child has, 0 for padding; of groups where that must be told
    training    whether batch norms use and update batch statistics, and dropout is on
    """

    def __init__(
        self,
        graph: Graph,
        known: CompactNetwork | None,
        growths: Sequence[Growth],
        *,
        pad_to: Widths | None = None,
        settings: GrowthSettings = GrowthSettings(),  # noqa: B008 - frozen
        head_of: Callable[[int], str] = lambda _task: "head",
        device: torch.device | str = "cpu",
    ) -> None:
        self.graph = graph
        self.known = known
        self.head_of = head_of
        self.training = True
        self.before = known.widths if known is not None else (0,) * len(graph.groups)
        self.widths = [growth.widths for growth in growths]
        self.pad_to = pad_to or tuple(map(max, zip(*self.widths, strict=True)))
        for z in self.widths:
            if len(z) != len(graph.groups) or any(own > most for own, most in zip(z, self.pad_to, strict=True)):
                raise InputError(f"a child adds {z}; this round has room for one number per group up to {self.pad_to}")
        self._growths = [Growth(growth.widths, growth.classes, {}) for growth in growths]
        self._corners = [{name: tuple(t.shape) for name, t in growth.tensors.items()} for growth in growths]
        self.parameters: dict[str, nn.Parameter] = {}
        self.buffers: dict[str, Tensor] = {}
        padded = shapes(graph, self.before, self.pad_to, growths[0].classes, settings)
        for name, first in growths[0].tensors.items():  # numbered heads are in no growth's shapes
            stacked = _stack([growth.tensors[name] for growth in growths], padded.get(name, first.shape)).to(device)
            if is_parameter(name):
                self.parameters[name] = nn.Parameter(stacked)
            else:
                self.buffers[name] = stacked
        self._prefix = _known_prefix(graph) if known is not None else (0, 0)
        self.masks: dict[str, Tensor] = {}
        dtype = next(iter(growths[0].tensors.values())).dtype
        for group in _masked_groups(graph):
            own = torch.tensor([self.before[group] + z[group] for z in self.widths])
            mask = torch.arange(self.before[group] + self.pad_to[group]) < own[:, None]
            self.masks[f"mask/{group}"] = mask.to(device, dtype)

    @property
    def count(self) -> int:
        """K."""
        return len(self._growths)

    @property
    def draws(self) -> bool:
        """Whether a training step draws random numbers."""
        return self.graph.draws

    @property
    def signature(self) -> Hashable:
        """Children of one signature differ in the values of their state alone."""
        shapes = tuple((name, tuple(tensor.shape), tensor.dtype) for name, tensor in self.state.items())
        return id(self.known), id(self.graph), shapes

    @property
    def state(self) -> dict[str, Tensor]:
        """Every tensor of the children, (K, …) each."""
        return {**self.parameters, **self.buffers, **self.masks}

    def growth(self, index: int) -> Growth:
        """Return child ``index`` in compact form, as copies."""
        state = self.state
        tensors = {
            name: state[name].detach()[_corner(index, shape)].clone(memory_format=torch.contiguous_format)
            for name, shape in self._corners[index].items()
        }
        empty = self._growths[index]
        return Growth(empty.widths, empty.classes, tensors)

    def __call__(self, x: Tensor, task: int = 0, known: Tensor | None = None) -> Tensor:
        """Return logits (K, n, classes) for shared inputs (n, *shape).

        known  of these samples, from ``precompute``; computed here when it is not given
        """
        begin, end = self._prefix if known is not None else (0, 0)
        values: list[_Value] = [_Value(shared=x)]
        for number, step in enumerate(self.graph.steps, start=1):
            skip_known = begin <= number <= end
            value = values[step.reads[0]]
            match step:
                case Layer():
                    value = self._layer(step, value, self.head_of(task), skip_known)
                case Norm():
                    value = _Value(own=self._norm(step, self._join(value)))
                case Function():
                    value = self._function(step, value)
                case Add():
                    value = _Value(own=self._join(value) + self._join(values[step.reads[1]]))
            if number == end:
                value = _Value(known, value.own, apart=True)
            values.append(value)
        logits = values[-1].own
        assert logits is not None
        return logits

    def precompute(self, inputs: Tensor) -> Tensor | None:
        """Compute what known units of the first layer make of all samples: it is the same in every step.

        Nothing gates raw input, so the first layer's known part, and the functions right after it, never change
        while children are trained. Returns (n, C, *space), or None where there is no such part.
        """
        end = self._prefix[1]
        if self.known is None or not end:
            return None
        values = [inputs]
        with torch.no_grad():
            for step in self.graph.steps[:end]:
                value = values[step.reads[0]]
                if isinstance(step, Layer):
                    prefix = f"layer/{step.name}"
                    weight, bias = self.known.weights[f"{prefix}/weight"], self.known.weights.get(f"{prefix}/bias")
                    values.append(plain_product(step, value, weight, bias))
                else:
                    assert isinstance(step, Function)
                    values.append(functions.apply(step.function, value, step.arguments, training=False))
        return values[-1]

    def _layer(self, layer: Layer, value: _Value, head: str, skip_known: bool) -> _Value:
        prefix = f"layer/{layer.name}"
        if layer.source.group is None and value.own is None:
            assert value.shared is not None
            return self._first_layer(layer, value.shared, skip_known)
        rows, bias = self.parameters.get(f"{prefix}/rows"), self.parameters.get(f"{prefix}/bias")
        if rows is None:  # the head
            weight, bias = self.parameters[f"{head}/weight"], self.parameters.get(f"{head}/bias")
            return _Value(own=own_product(layer, self._gated(layer, value), weight, bias))
        if self.known is None:
            return _Value(own=own_product(layer, self._gated(layer, value), rows, bias))
        known, known_bias = self.known.weights[f"{prefix}/weight"], self.known.weights.get(f"{prefix}/bias")
        columns = self.parameters.get(f"{prefix}/columns")
        if multiplies_whole(layer, known):
            joined, joined_bias = whole(known, known_bias, columns, rows, bias)
            return _Value(own=own_product(layer, self._gated(layer, value), joined, joined_bias))
        parts = self._gated_parts(layer, value, known.shape[1])
        return _Value(own=by_pieces(layer, parts, (known, known_bias), columns, (rows, bias)))

    def _first_layer(self, layer: Layer, x: Tensor, skip_known: bool) -> _Value:
        """A layer on raw input, the same for all children: known units are computed once, new ones all together."""
        prefix = f"layer/{layer.name}"
        rows, bias = self.parameters[f"{prefix}/rows"], self.parameters.get(f"{prefix}/bias")
        own = shared_product(layer, x, rows, bias) if rows.shape[1] else None
        if self.known is None:
            return _Value(own=own)
        if skip_known:
            return _Value(own=own, apart=True)
        weight, known_bias = self.known.weights[f"{prefix}/weight"], self.known.weights.get(f"{prefix}/bias")
        return _Value(plain_product(layer, x, weight, known_bias), own, apart=True)

    def _gated(self, layer: Layer, value: _Value) -> Tensor:
        """Return the layer's input (K, n, C, *space), gated where the task has attention."""
        x = self._join(value)
        if f"gate/{layer.name}/reduce.weight" in self.parameters:
            return gate(x, self.parameters, f"gate/{layer.name}")
        return x

    def _gated_parts(self, layer: Layer, value: _Value, known: int) -> tuple[Tensor, Tensor]:
        """Return the same in two parts: from the ``known`` units, and from new ones."""
        gated = f"gate/{layer.name}/reduce.weight" in self.parameters
        if gated and value.apart and value.shared is not None and layer.source.spread == 1:
            return gate_parts(value.shared, value.own, self.parameters, f"gate/{layer.name}")
        x = self._gated(layer, value)
        old, new = torch.split(x, [known, x.shape[2] - known], dim=2)
        return old, new

    def _join(self, value: _Value) -> Tensor:
        """Return a value as (K, n, C, *space)."""
        if value.shared is None:
            assert value.own is not None
            return value.own
        shared = value.shared.expand(self.count, *value.shared.shape)
        return shared if value.own is None else torch.cat([shared, value.own], dim=2)

    def _function(self, step: Function, value: _Value) -> _Value:
        shared, own = value.shared, value.own
        if shared is not None:
            shared = functions.apply(step.function, shared, step.arguments, training=self.training)
        if own is not None:
            own = self._own_function(step, own)
            if step.function in functions.MOVES_ZERO and step.group is not None:
                mask = self.masks[f"mask/{step.group}"]
                mask = mask[:, self.before[step.group] :] if value.apart else mask
                mask = mask.repeat_interleave(own.shape[2] // mask.shape[1], dim=1)
                own = own * _per_channel(mask, own)
        return _Value(shared, own, value.apart)

    def _own_function(self, step: Function, own: Tensor) -> Tensor:
        if own.dim() > 3 and not own.is_cuda and step.function not in functions.FLATTENS:
            out = functions.apply(step.function, side_by_side(own), step.arguments, training=self.training)
            return children_first(out, self.count)
        flat = functions.apply(step.function, own.flatten(0, 1), step.arguments, training=self.training)
        return _split_lead(flat, own)

    def _norm(self, norm: Norm, x: Tensor) -> Tensor:
        """Normalise x (K, n, C, *space) with each child's own statistics, scale and shift, (K, C) each."""
        prefix = f"norm/{norm.name}"
        if norm.kind == "group":
            x = self._group_norm(norm, x)
        else:
            x = normalise_batch(
                norm, x, self.buffers[f"{prefix}/mean"], self.buffers[f"{prefix}/var"], training=self.training
            )
        if not norm.affine:
            return x
        weight, bias = self.parameters[f"{prefix}/weight"], self.parameters[f"{prefix}/bias"]
        return x * _per_channel(weight, x) + _per_channel(bias, x)

    def _group_norm(self, norm: Norm, x: Tensor) -> Tensor:
        """Known blocks as they were; the new units of each child as one group, padding left out of its statistics."""
        group = norm.source.group
        if group is None:
            return _split_lead(normalise_blocks(x.flatten(0, 1), [norm.source.width], norm.num_groups, norm.eps), x)
        if self.known is None:  # the base network itself: nothing is padded
            return _split_lead(normalise_blocks(x.flatten(0, 1), [x.shape[2]], norm.num_groups, norm.eps), x)
        known = self.before[group]
        sizes = [z[group] for z in self.known.blocks]
        old = _split_lead(normalise_blocks(x[:, :, :known].flatten(0, 1), sizes, norm.num_groups, norm.eps), x)
        mask = _per_channel(self.masks[f"mask/{group}"][:, known:], x)
        new = x[:, :, known:] * mask  # padding is zero already; this keeps the mean's gradient from it
        over = tuple(range(2, x.dim()))
        own = mask.expand(-1, -1, -1, *new.shape[3:]).sum(over, keepdim=True).clamp(min=1)
        centred = (new - new.sum(over, keepdim=True) / own) * mask
        var = centred.square().sum(over, keepdim=True) / own
        return torch.cat([old, centred * (var + norm.eps).rsqrt()], dim=2)


def normalise_batch(norm: Norm, x: Tensor, running_mean: Tensor, running_var: Tensor, *, training: bool) -> Tensor:
    """Normalise x (K, n, C, *space) by the batch's statistics, which the running ones (K, C) follow, or by those."""
    mean, var = running_mean, running_var
    if training:
        over = (1, *range(3, x.dim()))
        var, mean = torch.var_mean(x, over, correction=0)
        samples = x.shape[1] * x[0, 0, 0].numel()
        with torch.no_grad():
            running_mean.lerp_(mean, norm.momentum)
            running_var.lerp_(var * (samples / max(samples - 1, 1)), norm.momentum)
    return (x - _per_channel(mean, x)) * _per_channel((var + norm.eps).rsqrt(), x)


def _known_prefix(graph: Graph) -> tuple[int, int]:
    """Return (first, last) value numbers of the first layer on raw input and the functions that follow it in a row."""
    readers = [0] * (len(graph.steps) + 1)
    for step in graph.steps:
        for read in step.reads:
            readers[read] += 1
    for begin, step in enumerate(graph.steps, start=1):
        if isinstance(step, Layer):
            end = begin
            for number, after in enumerate(graph.steps[begin:], start=begin + 1):
                follows = isinstance(after, Function) and after.function != "dropout" and after.reads == (end,)
                if not follows or readers[end] != 1:
                    break
                end = number
            return (begin, end) if step.source.group is None else (0, 0)
        if not isinstance(step, Function) or step.function == "dropout":
            return 0, 0
    return 0, 0


def _masked_groups(graph: Graph) -> list[int]:
    """Return the groups in which padding must be told from units: group norms count them, some functions move zero."""
    groups = [norm.source.group for norm in graph.norms if norm.kind == "group"]
    groups += [
        step.group for step in graph.steps if isinstance(step, Function) and step.function in functions.MOVES_ZERO
    ]
    return sorted({group for group in groups if group is not None})


def _per_channel(values: Tensor, x: Tensor) -> Tensor:
    """Shape (K, C) values so that they broadcast over x (K, n, C, *space)."""
    return values.view(values.shape[0], 1, values.shape[1], *(1,) * (x.dim() - 3))


def _stack(tensors: list[Tensor], padded: tuple[int, ...]) -> Tensor:
    """Lay every child's tensor in the top-left corner of a zero tensor of the padded shape."""
    shape = [max(sizes) for sizes in zip(padded, *(tensor.shape for tensor in tensors), strict=True)]
    stacked = tensors[0].new_zeros(len(tensors), *shape)
    for index, tensor in enumerate(tensors):
        stacked[_corner(index, tensor.shape)] = tensor
    return stacked


def _corner(index: int, shape: tuple[int, ...]) -> tuple[int | slice, ...]:
    """Return the place of child ``index``'s own tensor in a stack."""
    return (index, *(slice(size) for size in shape))


def _split_lead(flat: Tensor, like: Tensor) -> Tensor:
    """Turn (K·n, …) back into (K, n, …), K and n as in ``like``."""
    return flat.reshape(*like.shape[:2], *flat.shape[1:])

"""K children of unequal width, trained together as one padded batch.

Every tensor of a child lies in the top-left corner of a padded one, and the padded ones are stacked: (K, …).
Padding has zero weights in and out, so its output and its gradients are zero and it stays zero: a child trained in a
stack takes the same steps as on its own.

Children share the mini-batch and the frozen network. Values before the first layer have no K; after it they
are (K, n, C, …).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn

from bocl.errors import InputError
from bocl.networks import functions
from bocl.networks.aside import logits_aside, own_norm
from bocl.networks.attention import UNIT, gate, gate_parts, gates_of, is_gated
from bocl.networks.compact import CompactNetwork, bias_alone, contiguous_copy, evaluate, grown_weight
from bocl.networks.frozen_and_new import by_pieces, multiplies_whole
from bocl.networks.graph import DRAWING, Add, Function, Graph, Layer, Multiply, Norm, Step
from bocl.networks.growth import Growth, GrowthSettings, GrowthSpace, is_parameter, tensor_names
from bocl.networks.norm_chains import NormChain, norm_chains
from bocl.networks.norms import (
    normalise_batch,
    normalise_batch_chain,
    normalise_blocks,
    normalise_masked,
    per_channel,
    scale_and_shift,
)
from bocl.networks.products import gated_product, is_one_kernel, own_product, plain_product, shared_product
from bocl.networks.stack_layout import children_first, children_in_channels
from bocl.widths import Widths


@dataclass(frozen=True)
class _Value:
    """A value in the stack: the units that all children share, then each child's own.

    shared  (n, C, *space), or None
    own     (K, n, C', *space), or None
    apart   whether own holds only new units; the frozen ones are shared, or not computed
    means   (K, n, C), the means over space of a value that is all own, where they are known
    """

    shared: Tensor | None = None
    own: Tensor | None = None
    apart: bool = False
    means: Tensor | None = None


class Children:
    """K growths of one frozen network, to be trained.

    frozen      the network before this task; None for a first task
    pad_to      widths every child is padded to; at least each child's own
    settings    how the growths were made
    head_of     name of the head that a task uses, for networks with several
    parameters  name → (K, …), trained
    buffers     name → (K, …), running statistics of norms
    masks       mask/GROUP → (K, C), 1 for units and 0 for padding, for the groups where this matters;
                gate/LAYER/has gates → (K, 1), whether a child has unit gates there
    training    whether batch norms use and update batch statistics, and dropout is on
    """

    def __init__(
        self,
        graph: Graph,
        frozen: CompactNetwork | None,
        growths: Sequence[Growth],
        *,
        pad_to: Widths | None = None,
        settings: GrowthSettings = GrowthSettings(),  # noqa: B008 - frozen
        head_of: Callable[[int], str] = lambda _task: "head",
        device: torch.device | str = "cpu",
    ) -> None:
        self.graph = graph
        self.count, self.draws = len(growths), graph.draws
        self.frozen = frozen
        self.head_of = head_of
        self.training = True
        self.before = frozen.widths if frozen is not None else graph.no_units
        self.widths = [growth.widths for growth in growths]
        self.pad_to = pad_to or tuple(map(max, zip(*self.widths, strict=True)))
        for z in self.widths:
            if len(z) != len(graph.groups) or any(own > most for own, most in zip(z, self.pad_to, strict=True)):
                raise InputError(f"a child adds {z}; this round has room for one number per group up to {self.pad_to}")
        self._classes = [growth.classes for growth in growths]
        self._reads = growths[0].reads  # the same for all
        self._corners = [{name: tuple(t.shape) for name, t in growth.tensors.items()} for growth in growths]
        self.parameters: dict[str, Tensor] = {}
        self.buffers: dict[str, Tensor] = {}
        if any(name.endswith(f"/{UNIT}") and shape != (0,) for child in self._corners for name, shape in child.items()):
            settings = replace(settings, gate_share=1.0)  # room for gates, even where a child of pad_to had none
        padded = GrowthSpace(graph, self.before, self._classes[0], settings).shapes(self.pad_to)
        for name, first in growths[0].tensors.items():  # numbered heads are in no growth's shapes
            stacked = stacked_tensors([growth.tensors[name] for growth in growths], padded.get(name, first.shape)).to(
                device
            )
            if is_parameter(name):
                self.parameters[name] = nn.Parameter(stacked)
            else:
                self.buffers[name] = stacked
        gated = any(name.startswith("gate/") for name in self.parameters)
        self._own_norms = settings.own_norms or frozen is None
        frozen_norms = not self._own_norms or not graph.norms
        self._aside = settings.wiring == "forward" and frozen_norms and not gated and frozen is not None
        on_gpu = torch.device(device).type == "cuda" and self._own_norms
        self._chains, self._inside = norm_chains(graph) if on_gpu else ({}, frozenset[int]())
        self._prefix = _fixed_prefix(graph) if frozen is not None else (0, 0)
        if self._prefix[1] in {chain.norm.reads[0] for chain in self._chains.values()}:
            self._prefix = 0, 0  # the first convolution is one kernel, which computes known and new units
        self.masks: dict[str, Tensor] = {}
        dtype = next(iter(growths[0].tensors.values())).dtype
        for group in _masked_groups(graph):
            own = torch.tensor([self.before[group] + z[group] for z in self.widths])
            mask = torch.arange(self.before[group] + self.pad_to[group]) < own[:, None]
            self.masks[f"mask/{group}"] = mask.to(device, dtype)
        for name in [name for name in self.parameters if name.startswith("gate/") and name.endswith(f"/{UNIT}")]:
            has_gates = [[corners[name] != (0,)] for corners in self._corners]
            self.masks[f"{name.removesuffix(UNIT)}has gates"] = torch.tensor(has_gates, device=device)

    @property
    def signature(self) -> Hashable:
        """Children of one signature differ only in the values of their state."""
        shapes = tuple((name, tuple(tensor.shape), tensor.dtype) for name, tensor in self.state.items())
        return id(self.frozen), id(self.graph), shapes  # both live as long as these children do

    @property
    def state(self) -> dict[str, Tensor]:
        """Every tensor of the children, (K, …) each."""
        return {**self.parameters, **self.buffers, **self.masks}

    def growth(self, index: int) -> Growth:
        """Return child ``index`` in compact form, as copies."""
        state = self.state
        corners = self._corners[index].items()
        tensors = {name: contiguous_copy(state[name][corner(index, shape)]) for name, shape in corners}
        return Growth(self.widths[index], self._classes[index], tensors, self._reads)

    def __call__(self, x: Tensor, task: int = 0, precomputed: Tensor | None = None) -> Tensor:
        """Return logits (K, n, classes) for shared inputs (n, *shape).

        precomputed  what ``precompute`` returned for these samples; computed here when it is not given
        """
        if self._aside and self.frozen is not None:
            return logits_aside(self, self.frozen, x, self.head_of(task))
        # Given ``precomputed``, the first layer leaves its frozen units out and the functions after it see only new
        # units; ``precomputed`` takes the place of the frozen ones where the prefix ends. Values count from 1.
        begin, end = self._prefix if precomputed is not None else (0, 0)
        values: list[_Value] = [_Value(shared=x)]
        for number, step in enumerate(self.graph.steps, start=1):
            value = values[step.reads[0]]
            match step:
                case _ if number in self._inside:
                    value = _Value()  # computed where its chain ends
                case _ if number in self._chains:
                    value = self._norm_chain(self._chains[number], values)
                case Layer():
                    value = self._layer(step, value, self.head_of(task), number == begin)
                case Norm():
                    value = _Value(own=self._norm(step, self._join(value)))
                case Function():
                    value = self._function(step, value)
                case Add():
                    value = _Value(own=self._join(value) + self._join(values[step.reads[1]]))
                case Multiply():
                    value = _Value(own=self._join(value) * self._join(values[step.reads[1]]))
            if number == end:
                value = _Value(precomputed, value.own, apart=True)
            values.append(value)
        return self._join(values[-1])

    def precompute(self, inputs: Tensor) -> Tensor | None:
        """Compute the outputs of the first layer's frozen units, which are the same in every step.

        Raw input is never gated, so the first layer's frozen part, and the functions right after it, do not change
        while children are trained. Returns (n, C, *space), or None where there is no such part.
        """
        end = self._prefix[1]
        if self.frozen is None or not end or self._aside:
            return None
        frozen = self.frozen
        with torch.no_grad():
            return evaluate(
                self.graph.steps[:end],
                inputs,
                lambda layer, x: plain_product(layer, x, *frozen.weight_and_bias(layer)),
                norm=None,
                training=False,
            )[-1]

    def _layer(self, layer: Layer, value: _Value, head: str, skip_frozen: bool) -> _Value:
        weight_name, bias_name = tensor_names(layer, head)
        rows, bias = self.parameters[weight_name], self.parameters.get(bias_name)
        if layer.separate:
            return self._separate_layer(layer, value, rows, bias)
        if self._chains and is_one_kernel(layer, self._image(value)):
            return _Value(own=self._layer_in_one(layer, value, rows, bias))
        if layer.source.group is None and value.own is None:
            assert value.shared is not None
            return self._first_layer(layer, value.shared, rows, bias, skip_frozen)
        if self.frozen is None or layer.group is None:  # a first task's layers, and every head, are the task's own
            return _Value(own=own_product(layer, self._gated(layer, value), rows, bias))
        frozen, frozen_bias = self.frozen.weight_and_bias(layer)
        if multiplies_whole(layer, frozen):
            return _Value(own=own_product(layer, self._gated(layer, value), *self._whole(layer, rows, bias)))
        columns = self.parameters.get(f"layer/{layer.name}/columns")
        parts = self._gated_parts(layer, value, frozen.shape[1])
        return _Value(own=by_pieces(layer, parts, (frozen, frozen_bias), columns, (rows, bias)))

    def _whole(self, layer: Layer, rows: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return each child's weight and bias, of frozen and new units."""
        if self.frozen is None or layer.group is None:
            return rows, bias
        frozen, frozen_bias = self.frozen.weight_and_bias(layer)
        if frozen_bias is not None and bias is not None:
            bias = torch.cat([frozen_bias.expand(self.count, -1), bias], dim=1)
        return grown_weight(frozen, self.parameters.get(f"layer/{layer.name}/columns"), rows), bias

    def _layer_in_one(self, layer: Layer, value: _Value, rows: Tensor, bias: Tensor | None) -> Tensor:
        """Compute a convolution, known and new units and gates, by one kernel."""
        prefix, gates = f"gate/{layer.name}", None
        x = self._image(value) if value.own is None else self._join(value)
        if is_gated(self.parameters, prefix):
            gates = gates_of(x, {**self.parameters, **self.masks}, prefix, value.means)
        return gated_product(layer, x, gates, *self._whole(layer, rows, bias))

    def _image(self, value: _Value) -> Tensor:
        """Return a value whose shape counts: (K, n, C, *space), or (1, n, C, *space) of what children share."""
        if value.own is not None:
            return value.own
        assert value.shared is not None
        return value.shared.unsqueeze(0)

    def _separate_layer(self, layer: Layer, value: _Value, rows: Tensor, bias: Tensor | None) -> _Value:
        """Compute a layer in which frozen units read frozen ones only, and new ones each child's own."""
        x = self._join(value)
        if self.frozen is None:
            groups = layer.groups_of(x.shape[2], rows.shape[1], is_root=True)
            return _Value(own=own_product(layer, x, rows, bias, groups))
        assert layer.source.group is not None
        old, new = x.split([self.before[layer.source.group], x.shape[2] - self.before[layer.source.group]], dim=2)
        known = _split_lead(self.frozen.separate_product(layer, old.flatten(0, 1)), x)
        if not rows.shape[1]:
            return _Value(own=known)
        if rows.numel():
            groups = layer.groups_of(new.shape[2], rows.shape[1], is_root=False)
            own = own_product(layer, new, rows, bias, groups)
        else:
            own = bias_alone((*x.shape[:2], rows.shape[1], *known.shape[3:]), bias, known)
        return _Value(own=torch.cat([known, own], dim=2))

    def _first_layer(self, layer: Layer, x: Tensor, rows: Tensor, bias: Tensor | None, skip_frozen: bool) -> _Value:
        """Compute a layer on raw input, which all children share: frozen units once, new ones in one product."""
        own = shared_product(layer, x, rows, bias) if rows.shape[1] else None
        if self.frozen is None:
            return _Value(own=own)
        shared = None if skip_frozen else plain_product(layer, x, *self.frozen.weight_and_bias(layer))
        return _Value(shared, own, apart=True)

    def _gated(self, layer: Layer, value: _Value) -> Tensor:
        """Return the layer's input (K, n, C, *space), gated where the task has attention."""
        x = self._join(value)
        if is_gated(self.parameters, f"gate/{layer.name}"):
            return gate(x, {**self.parameters, **self.masks}, f"gate/{layer.name}")
        return x

    def _gated_parts(self, layer: Layer, value: _Value, frozen: int) -> tuple[Tensor, Tensor]:
        """Return the same in two parts: (K, n, frozen) from frozen units, and (K, n, C - frozen) from new ones."""
        gated = is_gated(self.parameters, f"gate/{layer.name}")
        # A value still apart need not be joined and split again, unless it was flattened: then ``gate`` takes the
        # mean of each channel.
        if gated and value.apart and value.shared is not None and layer.source.spread == 1:
            return gate_parts(value.shared, value.own, {**self.parameters, **self.masks}, f"gate/{layer.name}")
        x = self._gated(layer, value)
        old, new = torch.split(x, [frozen, x.shape[2] - frozen], dim=2)
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
            shared = functions.apply(step, shared, training=self.training)
        if own is not None:
            own = self.own_function(step, own, new_only=value.apart)
        return _Value(shared, own, value.apart)

    def own_function(self, step: Function, own: Tensor, *, new_only: bool) -> Tensor:
        """Apply a function to values (K, n, C, *space) of all units, or of new ones only; padding stays 0."""
        own = self._applied(step, own)
        if step.function in functions.MOVES_ZERO and step.group is not None:
            mask = self.masks[f"mask/{step.group}"]
            mask = mask[:, self.before[step.group] :] if new_only else mask
            mask = mask.repeat_interleave(own.shape[2] // max(mask.shape[1], 1), dim=1)
            own = own * per_channel(mask, own)
        return own

    def _applied(self, step: Function, own: Tensor) -> Tensor:
        if own.dim() > 3 and not own.is_cuda and step.function not in functions.FLATTENS:
            return children_first(functions.apply(step, children_in_channels(own), training=self.training), self.count)
        return _split_lead(functions.apply(step, own.flatten(0, 1), training=self.training), own)

    def _norm(self, norm: Norm, x: Tensor) -> Tensor:
        """Normalise x (K, n, C, *space) with each child's own statistics, scale and shift, (K, C) each."""
        prefix = f"norm/{norm.name}"
        if not self._own_norms:
            return self._norm_of_new(norm, x)
        weight, bias = self.parameters.get(f"{prefix}/weight"), self.parameters.get(f"{prefix}/bias")
        if norm.kind == "batch":
            mean, var = self.buffers[f"{prefix}/mean"], self.buffers[f"{prefix}/var"]
            return normalise_batch(norm, x, mean, var, weight, bias, training=self.training)
        x = self._group_norm(norm, x) if norm.kind == "group" else self._layer_norm(norm, x)
        return scale_and_shift(x, weight, bias)

    def _norm_chain(self, chain: NormChain, values: Sequence[_Value]) -> _Value:
        """Normalise a value by batch norm, add another, and apply the ReLU, where the chain has them."""
        norm, prefix = chain.norm, f"norm/{chain.norm.name}"
        x = self._join(values[norm.reads[0]])
        other = None if chain.other is None else self._join(values[chain.other])
        weight, bias = self.parameters.get(f"{prefix}/weight"), self.parameters.get(f"{prefix}/bias")
        running = self.buffers[f"{prefix}/mean"], self.buffers[f"{prefix}/var"]
        y, means = normalise_batch_chain(
            norm, x, other, *running, weight, bias, rectifies=chain.rectifies, training=self.training
        )
        return _Value(own=y, means=means)

    def _norm_of_new(self, norm: Norm, x: Tensor) -> Tensor:
        """Normalise frozen units with the scale, shift and statistics they have, and new ones with each child's."""
        assert self.frozen is not None
        group = norm.source.group
        first_new = x.shape[2] if group is None else self.before[group] * norm.source.spread
        old, new = x.split([first_new, x.shape[2] - first_new], dim=2)
        known = _split_lead(self.frozen.norm(norm, old.flatten(0, 1)), x)
        own = own_norm(self, norm, old, new)
        return known if own is None else torch.cat([known, own], dim=2)

    def _group_norm(self, norm: Norm, x: Tensor) -> Tensor:
        """Normalise frozen blocks as before, and each child's new units as one group, without the padding."""
        group = norm.source.group
        if group is None or self.frozen is None:  # raw input, or networks of one width: nothing is padded
            return _split_lead(normalise_blocks(norm, x.flatten(0, 1), [x.shape[2]]), x)
        first_new = self.before[group]
        sizes = [z[group] for z in self.frozen.blocks]
        old = _split_lead(normalise_blocks(norm, x[:, :, :first_new].flatten(0, 1), sizes, self.frozen.roots), x)
        mask = per_channel(self.masks[f"mask/{group}"][:, first_new:], x)
        return torch.cat([old, normalise_masked(norm, x[:, :, first_new:], mask)], dim=2)

    def _layer_norm(self, norm: Norm, x: Tensor) -> Tensor:
        """Normalise by the units of the first frozen block, or by all where there is none; padding stays 0."""
        group = norm.source.group
        first = x.shape[2] if group is None or self.frozen is None else self.frozen.blocks[0][group]
        normalised = _split_lead(normalise_blocks(norm, x.flatten(0, 1), [first]), x)
        return normalised if group is None else normalised * per_channel(self.masks[f"mask/{group}"], x)

    def kept(self, which: Sequence[int]) -> Self:
        """Return the children at these places as a stack of their own, padded as this one; its tensors are copies."""
        places, made = list(which), copy(self)
        made.count = len(places)
        made.widths = [self.widths[at] for at in places]
        made._classes = [self._classes[at] for at in places]
        made._corners = [self._corners[at] for at in places]
        made.parameters = {
            name: nn.Parameter(of_children(tensor.detach(), places)) for name, tensor in self.parameters.items()
        }
        made.buffers = {name: of_children(tensor, places) for name, tensor in self.buffers.items()}
        made.masks = {name: of_children(tensor, places) for name, tensor in self.masks.items()}
        return made


def _fixed_prefix(graph: Graph) -> tuple[int, int]:
    """Return the first and last value whose frozen units are the same in every step: (0, 0) where there are none.

    The first is the first layer's. The functions right after it follow, but no norm, which learns, and no dropout,
    which draws. It ends at a value that two steps read, because the second reader would miss the frozen units.
    """
    readers = [read for step in graph.steps for read in step.reads]

    def is_fixed(step: Step) -> bool:
        return isinstance(step, Function) and step.function not in DRAWING

    begin = 1 + next(number for number, step in enumerate(graph.steps) if isinstance(step, Layer))
    if not all(map(is_fixed, graph.steps[: begin - 1])):
        return 0, 0
    end = begin
    for number, step in enumerate(graph.steps[begin:], start=begin + 1):
        if not is_fixed(step) or step.reads != (end,) or readers.count(end) != 1:
            break
        end = number
    return begin, end


def _masked_groups(graph: Graph) -> list[int]:
    """Return the groups that need a mask: group norms count their units, or functions move their zeros."""
    groups = {norm.source.group for norm in graph.norms if norm.kind != "batch"}
    for step in graph.steps:
        if isinstance(step, Function) and step.function in functions.MOVES_ZERO:
            groups.add(step.group)
    return sorted(group for group in groups if group is not None)


def stacked_tensors(tensors: list[Tensor], padded: tuple[int, ...]) -> Tensor:
    """Put every child's tensor into the top-left corner of a zero tensor of the padded shape."""
    shape = [max(sizes) for sizes in zip(padded, *(tensor.shape for tensor in tensors), strict=True)]
    stacked = tensors[0].new_zeros(len(tensors), *shape)
    for index, tensor in enumerate(tensors):
        stacked[corner(index, tensor.shape)] = tensor
    return stacked


def of_children(stacked: Tensor, places: Sequence[int]) -> Tensor:
    """Return a copy of the tensors of some children, in this order.

    An index would give a tensor without elements strides that gradients do not have, and autograd would warn.
    """
    return torch.stack([stacked[at] for at in places])


def corner(index: int, shape: tuple[int, ...]) -> tuple[int | slice, ...]:
    """Return the place of child ``index``'s own tensor in a stack."""
    return (index, *(slice(size) for size in shape))


def _split_lead(flat: Tensor, like: Tensor) -> Tensor:
    """Turn (K·n, …) back into (K, n, …), K and n as in ``like``."""
    return flat.reshape(*like.shape[:2], *flat.shape[1:])

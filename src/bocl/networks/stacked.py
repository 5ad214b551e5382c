"""K children of unequal width, trained together as one padded batch.

Every tensor of a child lies in the top-left corner of a padded one, and the padded ones are stacked: (K, …).
Units that are only padding read zero weights, put out zero and feed zero weights, so they get zero
gradients and stay zero: a child trained in a stack takes the steps it would take alone.

Children share the mini-batch and what is known. Values before the first layer have no K; after it they
are (K, n, C, …).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bocl.errors import InputError
from bocl.networks import functions
from bocl.networks.attention import gate
from bocl.networks.compact import CONVOLUTIONS, CompactNetwork, normalise_blocks
from bocl.networks.graph import Add, Function, Graph, Layer, Norm, Widths
from bocl.networks.growth import Growth, GrowthSettings, is_parameter, shapes


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

    def __call__(self, x: Tensor, task: int = 0) -> Tensor:
        """Return logits (K, n, classes) for shared inputs (n, *shape)."""
        values, stacked = [x], [False]
        for step in self.graph.steps:
            value, is_stacked = values[step.reads[0]], stacked[step.reads[0]]
            match step:
                case Layer():
                    value = self._layer(step, value, is_stacked, self.head_of(task))
                    is_stacked = True
                case Norm():
                    value = self._norm(step, value if is_stacked else value.expand(self.count, *value.shape))
                    is_stacked = True
                case Function():
                    value = self._function(step, value, is_stacked)
                case Add():
                    value = value + values[step.reads[1]]
            values.append(value)
            stacked.append(is_stacked)
        return values[-1]

    def _layer(self, layer: Layer, x: Tensor, is_stacked: bool, head: str) -> Tensor:
        if f"gate/{layer.name}/reduce.weight" in self.parameters:
            x = gate(x, self.parameters, f"gate/{layer.name}")
        if layer.group is None:
            return self._product(layer, x, self.parameters[f"{head}/weight"], self.parameters.get(f"{head}/bias"))
        prefix = f"layer/{layer.name}"
        rows, bias = self.parameters[f"{prefix}/rows"], self.parameters.get(f"{prefix}/bias")
        columns = self.parameters.get(f"{prefix}/columns")
        new = self._product(layer, x, rows, bias) if is_stacked else self._shared_product(layer, x, rows, bias)
        if self.known is None:
            return new
        weight, old_bias = self.known.weights[f"{prefix}/weight"], self.known.weights.get(f"{prefix}/bias")
        seen = weight.shape[1]
        if not is_stacked:
            old = _apply(layer, x, weight, old_bias)
            return torch.cat([old.expand(self.count, *old.shape), new], dim=2)
        old = _split_lead(_apply(layer, x[:, :, :seen].flatten(0, 1), weight, old_bias), x)
        if columns is not None and columns.shape[2]:
            old = old + self._product(layer, x[:, :, seen:], columns, None)
        return torch.cat([old, new], dim=2)

    def _product(self, layer: Layer, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Each child's own weight (K, out, in, *kernel) on its own x (K, n, in, *space)."""
        if not layer.kernel:
            if bias is None:
                return torch.bmm(x, weight.mT)
            return torch.baddbmm(bias.unsqueeze(1), x, weight.mT)
        if not weight.shape[1]:
            return self._no_units(layer, x, weight)
        grouped = x.transpose(0, 1).flatten(1, 2)  # (n, K·in, *space)
        out = _apply(layer, grouped, weight.flatten(0, 1), None if bias is None else bias.flatten(), groups=self.count)
        return _children_first(out, self.count)

    def _shared_product(self, layer: Layer, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Every child's weight on one shared x (n, in, *space): a single product for all of them."""
        if not weight.shape[1]:
            return self._no_units(layer, x.expand(self.count, *x.shape), weight)
        out = _apply(layer, x, weight.flatten(0, 1), None if bias is None else bias.flatten())
        return _children_first(out, self.count)

    def _no_units(self, layer: Layer, x: Tensor, weight: Tensor) -> Tensor:
        """Return the output of zero units, (K, n, 0, *space); PyTorch has no convolution without filters."""
        single = _apply(layer, x[0, :1, :1], weight.new_zeros(1, 1, *layer.kernel), None) if layer.kernel else x[0, :1]
        return x.new_zeros(*x.shape[:2], 0, *single.shape[2:])

    def _function(self, step: Function, x: Tensor, is_stacked: bool) -> Tensor:
        if not is_stacked:
            return functions.apply(step.function, x, step.arguments, training=self.training)
        flat = functions.apply(step.function, x.flatten(0, 1), step.arguments, training=self.training)
        out = _split_lead(flat, x)
        if step.function in functions.MOVES_ZERO and step.group is not None:
            mask = self.masks[f"mask/{step.group}"]
            mask = mask.repeat_interleave(out.shape[2] // mask.shape[1], dim=1)
            out = out * _per_channel(mask, out)
        return out

    def _norm(self, norm: Norm, x: Tensor) -> Tensor:
        """Normalise x (K, n, C, *space) with each child's own statistics, scale and shift, (K, C) each."""
        prefix = f"norm/{norm.name}"
        if norm.kind == "group":
            x = self._group_norm(norm, x)
        else:
            running_mean, running_var = self.buffers[f"{prefix}/mean"], self.buffers[f"{prefix}/var"]
            mean, var = running_mean, running_var
            if self.training:
                over = (1, *range(3, x.dim()))
                var, mean = torch.var_mean(x, over, correction=0)
                samples = x.shape[1] * x[0, 0, 0].numel()
                with torch.no_grad():
                    running_mean.lerp_(mean, norm.momentum)
                    running_var.lerp_(var * (samples / max(samples - 1, 1)), norm.momentum)
            x = (x - _per_channel(mean, x)) * _per_channel((var + norm.eps).rsqrt(), x)
        if not norm.affine:
            return x
        weight, bias = self.parameters[f"{prefix}/weight"], self.parameters[f"{prefix}/bias"]
        return x * _per_channel(weight, x) + _per_channel(bias, x)

    def _group_norm(self, norm: Norm, x: Tensor) -> Tensor:
        """Known blocks as they were; the new units of each child as one group, padding left out of its statistics."""
        group = norm.source.group
        if group is None:
            return _split_lead(normalise_blocks(x.flatten(0, 1), [norm.source.width], norm.blocks, norm.eps), x)
        if self.known is None:  # the base network itself: nothing is padded
            return _split_lead(normalise_blocks(x.flatten(0, 1), [x.shape[2]], norm.blocks, norm.eps), x)
        known = self.before[group]
        sizes = [z[group] for z in self.known.blocks]
        old = _split_lead(normalise_blocks(x[:, :, :known].flatten(0, 1), sizes, norm.blocks, norm.eps), x)
        mask = _per_channel(self.masks[f"mask/{group}"][:, known:], x)
        new = x[:, :, known:] * mask  # padding is zero already; this keeps the mean's gradient from it
        over = tuple(range(2, x.dim()))
        own = mask.expand(-1, -1, -1, *new.shape[3:]).sum(over, keepdim=True).clamp(min=1)
        centred = (new - new.sum(over, keepdim=True) / own) * mask
        var = centred.square().sum(over, keepdim=True) / own
        return torch.cat([old, centred * (var + norm.eps).rsqrt()], dim=2)


def _masked_groups(graph: Graph) -> list[int]:
    """Return the groups in which padding must be told from units: group norms count them, some functions move zero."""
    groups = [norm.source.group for norm in graph.norms if norm.kind == "group"]
    groups += [
        step.group for step in graph.steps if isinstance(step, Function) and step.function in functions.MOVES_ZERO
    ]
    return sorted({group for group in groups if group is not None})


def _apply(layer: Layer, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int = 1) -> Tensor:
    """The plain product of a layer: x (n, in, *space), weight (out, in, *kernel)."""
    if not layer.kernel:
        return F.linear(x, weight, bias)
    convolve = CONVOLUTIONS[len(layer.kernel)]
    return convolve(x, weight, bias, layer.stride, layer.padding, layer.dilation, groups)


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


def _children_first(out: Tensor, count: int) -> Tensor:
    """Turn (n, K·units, *space) into (K, n, units, *space)."""
    return out.reshape(len(out), count, out.shape[1] // count, *out.shape[2:]).transpose(0, 1)

"""K children of a frozen module, each with factors of its own, trained together.

The module runs once for all of them, on K · n samples, the first child's n samples first. Ranks are padded to the
largest: padding is zero in both factors, so its gradients are zero and it stays zero. What comes before the first layer
with factors is the same for all children and in every step. It is computed once for each sample.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from typing import Self

import torch
from torch import Tensor, nn

from bocl.errors import InputError
from bocl.networks.compact import contiguous_copy
from bocl.networks.growth import Growth, is_parameter
from bocl.networks.low_rank.backbone import Backbone
from bocl.networks.low_rank.cut import first_part, give, without_first_part
from bocl.networks.low_rank.modules import (
    WithStackedFactors,
    WithStackedNorms,
    copied,
    every_part_called,
    replace_parts,
)
from bocl.networks.stacked import corner, of_children, stacked_tensors
from bocl.widths import Widths

MOST_ROWS = 2048  # samples times children that are scored at once, so that a large module fits into memory

Read = Mapping[str, tuple[Tensor, Tensor]]  # {layer: factors of earlier tasks, scaled}


class FactoredChildren:
    """K growths of one backbone, to be trained.

    read        the factors of earlier tasks that all of them read
    pad_to      ranks every child is padded to; at least each child's own
    parameters  name → (K, …), trained
    buffers     name → (K, …): running statistics of norms
    scales      GROUP → (K, r): α/√r of every child, 0 for padding
    training    whether batch norms use and update batch statistics
    """

    draws = False  # the module is in evaluation mode

    def __init__(
        self,
        backbone: Backbone,
        growths: Sequence[Growth],
        read: Read,
        *,
        pad_to: Widths | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.backbone, self.read = backbone, read
        self.count = len(growths)
        self.training = True
        self.widths = [growth.widths for growth in growths]
        self.pad_to = pad_to or tuple(map(max, zip(*self.widths, strict=True)))
        for z in self.widths:
            if len(z) != len(self.pad_to) or any(own > most for own, most in zip(z, self.pad_to, strict=True)):
                raise InputError(f"a child adds {z}; this round has room for one number per group up to {self.pad_to}")
        self._classes, self._reads = [growth.classes for growth in growths], growths[0].reads
        self._corners = [{name: tuple(t.shape) for name, t in growth.tensors.items()} for growth in growths]
        padded = dict(self._corners[0])
        for layer in backbone.plan.layers:
            rank = self.pad_to[layer.group]
            padded[f"factor/{layer.name}/down"] = (rank, layer.inputs, *layer.kernel)
            padded[f"factor/{layer.name}/up"] = (layer.outputs, rank)
        self.parameters: dict[str, Tensor] = {}
        self.buffers: dict[str, Tensor] = {}
        for name in growths[0].tensors:
            stacked = stacked_tensors([growth.tensors[name] for growth in growths], padded[name]).to(device)
            if is_parameter(name):
                self.parameters[name] = nn.Parameter(stacked)
            else:
                self.buffers[name] = stacked
        self.scales = {
            str(group): self._scale_of(group).to(device, self.parameters["head/weight"].dtype)
            for group in range(len(self.pad_to))
        }
        self._build()

    def _scale_of(self, group: int) -> Tensor:
        """Return (K, r): α/√r of every child's own rank in a group, 0 for padding."""
        ranks = torch.tensor([z[group] for z in self.widths], dtype=torch.float64).unsqueeze(1)
        own = torch.arange(self.pad_to[group]) < ranks
        return torch.where(own, self.backbone.settings.scale / ranks.sqrt(), 0.0)

    def _build(self) -> None:
        """Make the module that computes all children: the backbone's own, with other parts in some places."""
        backbone = self.backbone
        grown = [layer for layer in backbone.plan.layers if self.pad_to[layer.group] or layer.name in self.read]
        self._only_heads = not grown and not backbone.norms
        self._cut = None if backbone.norms or self._only_heads else backbone.cut_before(grown)
        self._module = module = copied(backbone.module)
        parts: dict[str, nn.Module] = {}
        for layer in grown:
            down, up = (self.parameters[f"factor/{layer.name}/{side}"] for side in ("down", "up"))
            gates = self.parameters.get(f"gate/{layer.name}/unit")
            base, scale = module.get_submodule(layer.name), self.scales[str(layer.group)]
            parts[layer.name] = WithStackedFactors(base, layer, down, up, scale, self.read.get(layer.name), gates)
        for name, kinds in backbone.norms_by_name.items():
            own = {kind: self.state[f"norm/{name}/{kind}"] for kind in kinds}
            parts[name] = WithStackedNorms(module.get_submodule(name), own, self)
        replace_parts(module, parts)
        self._stand_ins = without_first_part(module, self._cut) if self._cut is not None else {}

    @property
    def signature(self) -> Hashable:
        """Children of one signature differ only in the values of their state."""
        shapes = tuple((name, tuple(tensor.shape), tensor.dtype) for name, tensor in self.state.items())
        return id(self.backbone), self._reads, shapes

    @property
    def state(self) -> dict[str, Tensor]:
        """Every tensor of the children, (K, …) each."""
        return {**self.parameters, **self.buffers, **{f"scale/{group}": scale for group, scale in self.scales.items()}}

    def growth(self, index: int) -> Growth:
        """Return child ``index`` in compact form, as copies."""
        state, corners = self.state, self._corners[index].items()
        tensors = {name: contiguous_copy(state[name][corner(index, shape)]) for name, shape in corners}
        return Growth(self.widths[index], self._classes[index], tensors, self._reads)

    def __call__(self, x: Tensor, task: int = 0, precomputed: Tensor | None = None) -> Tensor:
        """Return logits (K, n, classes) for shared inputs (n, *shape).

        precomputed  what ``precompute`` returned for these samples; computed here when it is not given
        """
        del task  # all children are of one task
        if precomputed is None:
            precomputed = self.precompute(x)
        elif not x.is_floating_point() and not self._only_heads:
            precomputed = precomputed[:, : x.shape[1]]  # token ids may be cut down to their longest text
        if torch.is_grad_enabled() or self.count * len(x) <= MOST_ROWS:
            return self._logits(x, precomputed)
        rows = max(1, MOST_ROWS // self.count)
        parts = [
            self._logits(x[start : start + rows], None if precomputed is None else precomputed[start : start + rows])
            for start in range(0, len(x), rows)
        ]
        return torch.cat(parts, dim=1)

    def _logits(self, x: Tensor, first: Tensor | None) -> Tensor:
        if self._only_heads:
            assert first is not None
            features = first.expand(self.count, *first.shape)
        else:
            if first is not None and self._cut is not None:
                give(self._stand_ins, self._cut, self._for_all(first))
            with every_part_called():
                features = self._module(self._for_all(x))
            features = features.view(self.count, len(x), -1)
        weight, bias = self.parameters["head/weight"], self.parameters["head/bias"]
        return torch.baddbmm(bias.unsqueeze(1), features, weight.mT)

    def _for_all(self, x: Tensor) -> Tensor:
        """Turn (n, …) into (K·n, …): the same samples for every child."""
        return x.expand(self.count, *x.shape).reshape(-1, *x.shape[1:])

    def precompute(self, inputs: Tensor) -> Tensor | None:
        """Compute what comes before the first layer with factors: (n, …); None where the module cannot be cut."""
        if self._cut is None and not self._only_heads:
            return None
        with torch.no_grad():
            return torch.cat([self._before_factors(rows) for rows in inputs.split(MOST_ROWS // 4)])

    def _before_factors(self, rows: Tensor) -> Tensor:
        return self.backbone.run(rows) if self._cut is None else first_part(self.backbone.module, self._cut, rows)

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
        made.scales = {group: of_children(tensor, places) for group, tensor in self.scales.items()}
        made._build()
        return made

"""K subnetworks of one network, to be trained: some weights are fixed, and which weights count may be learnt.

    W = m ⊙ (W' + θ ⊙ f)
    m = 1, or 1 for the c weights of a layer with the largest |s|, and 0 for the others

W' and f, which is 1 for free weights and 0 for fixed ones, are given; W' is 0 where f is 1. θ and the scores s are
trained. The gradient of s is that of m, as if m were |s| (straight through). No gradient, weight decay or momentum
reaches a fixed weight, because no optimiser holds it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bocl.networks.graph import Graph
from bocl.networks.growth import Growth
from bocl.networks.masked import ByLayer
from bocl.networks.stacked import Children


@dataclass(frozen=True, eq=False)
class Draft:
    """Where a subnetwork starts.

    start    all its own tensors; rows of layers are θ
    fixed    of every layer, which weights are not trained
    weights  W': their values, and 0 for the others
    scores   s, where the weights that count are chosen
    density  c, as a share of a layer's weights
    """

    start: Growth
    fixed: ByLayer
    weights: ByLayer
    scores: ByLayer = field(default_factory=dict)
    density: float = 1.0


class Subnetworks:
    """K networks of one shape, for the training loop: every tensor (K, …).

    parameters  layer/NAME/rows, which is θ, and all else that a growth from nothing has; score/NAME where m is learnt
    """

    def __init__(self, graph: Graph, drafts: Sequence[Draft], *, device: torch.device | str = "cpu") -> None:
        self._children = Children(graph, None, [draft.start for draft in drafts], device=device)
        self.count, self.draws = len(drafts), graph.draws
        self.training = True
        self._names = [layer.name for layer in graph.layers]
        self._given = {f"weights/{name}": torch.stack([each.weights[name] for each in drafts]) for name in self._names}
        for name in self._names:
            self._given[f"free/{name}"] = 1 - torch.stack([each.fixed[name] for each in drafts]).float()
        constant = {f"layer/{name}/rows" for name in self._names if not self._given[f"free/{name}"].any()}
        self.parameters = {name: each for name, each in self._children.parameters.items() if name not in constant}
        self._counts: dict[str, list[int]] = {}  # c of each network, where it is learnt which weights count
        for name in self._names if drafts[0].scores else ():
            self.parameters[f"score/{name}"] = nn.Parameter(torch.stack([each.scores[name] for each in drafts]))
            self._counts[name] = [max(1, round(each.density * each.scores[name].numel())) for each in drafts]

    @property
    def signature(self) -> Hashable:
        """Networks of one signature differ only in the values of their state."""
        shapes = tuple((name, tuple(tensor.shape), tensor.dtype) for name, tensor in self.state.items())
        return id(self._children.graph), repr(self._counts), shapes  # the graph lives as long as this does

    @property
    def state(self) -> dict[str, Tensor]:
        """Every tensor, (K, …) each."""
        return {**self.parameters, **self._children.buffers, **self._children.masks, **self._given}

    def precompute(self, _inputs: Tensor) -> None:
        """Nothing is the same in every step."""

    def __call__(self, x: Tensor, task: int = 0, precomputed: Tensor | None = None) -> Tensor:
        """Return logits (K, n, classes) for shared inputs (n, *shape)."""
        computing = copy(self._children)
        computing.training = self.training
        computing.parameters = self.parameters | {f"layer/{name}/rows": self._weight(name) for name in self._names}
        return computing(x, task, precomputed)

    def weights(self, index: int) -> ByLayer:
        """Return W of network ``index`` before its mask."""
        return {name: self._unmasked(name)[index].detach() for name in self._names}

    def masks(self, index: int) -> ByLayer:
        """Return m of network ``index``, where it is learnt."""
        return {name: self._mask(name)[index].detach() > 0 for name in self._names}

    def scores(self, index: int) -> ByLayer:
        """Return s of network ``index``, as copies."""
        return {name: self.parameters[f"score/{name}"][index].detach().clone() for name in self._names}

    def growth(self, index: int) -> Growth:
        """Return all else that network ``index`` trained, as copies, and θ."""
        return self._children.growth(index)

    def _weight(self, name: str) -> Tensor:
        return self._unmasked(name) * self._mask(name) if self._counts else self._unmasked(name)

    def _unmasked(self, name: str) -> Tensor:
        weights, theta = self._given[f"weights/{name}"], self.parameters.get(f"layer/{name}/rows")
        return weights if theta is None else torch.addcmul(weights, theta, self._given[f"free/{name}"])

    def _mask(self, name: str) -> Tensor:
        sizes = self.parameters[f"score/{name}"].abs()
        mask: Tensor = _Largest.apply(sizes, self._counts[name])  # type: ignore[no-untyped-call]
        return mask


class _Largest(torch.autograd.Function):
    """1 for the ``counts`` largest of each network's entries (K, …), else 0; its gradient passes as it is."""

    @staticmethod
    def forward(_ctx: Any, sizes: Tensor, counts: list[int]) -> Tensor:
        least = [_least(each.flatten(), count) for each, count in zip(sizes, counts, strict=True)]
        return (sizes >= torch.stack(least).view(-1, *(1,) * (sizes.dim() - 1))).to(sizes.dtype)

    @staticmethod
    def backward(_ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


def _least(sizes: Tensor, count: int) -> Tensor:
    """Return the least of the ``count`` largest of sizes (n,)."""
    place = len(sizes) - count
    if sizes.is_cuda:
        return sizes.kthvalue(place + 1)[0]
    return torch.tensor(np.partition(sizes.numpy(), place)[place])  # ten times as fast as ``kthvalue``

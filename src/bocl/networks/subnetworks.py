"""K subnetworks of one network, to be trained: some weights are fixed, and which weights count may be learnt.

    W = m ⊙ (W' where fixed, θ elsewhere)
    m = 1, or the c weights of a layer with the largest |s|

W' and the fixed places are given; θ and the scores s are trained. The gradient of s is that of m, as if m were |s|
(straight through). No gradient, weight decay or momentum reaches what is fixed, because no optimiser holds it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn

from bocl.networks.graph import Graph
from bocl.networks.growth import Growth
from bocl.networks.masked import ByLayer
from bocl.networks.stacked import Children


class Subnetworks:
    """K networks of one shape, for the training loop: every tensor (K, …).

    parameters  layer/NAME/rows, which is θ, and all else that a growth from nothing has; score/NAME where m is learnt
    """

    def __init__(
        self,
        graph: Graph,
        starts: Sequence[Growth],
        *,
        fixed: Sequence[ByLayer],
        weights: Sequence[ByLayer],
        scores: Sequence[ByLayer] = (),
        counts: Sequence[Mapping[str, int]] = (),
        device: torch.device | str = "cpu",
    ) -> None:
        """Take for each network where it starts, and by the name of a layer:

        fixed    which weights are not trained
        weights  their values, W'
        scores   s at the start; none where all of W counts
        counts   c
        """
        self._children = Children(graph, None, starts, device=device)
        self.count, self.draws = len(starts), graph.draws
        self.training = True
        self._names = [layer.name for layer in graph.layers]
        self._counts = [[each[name] for each in counts] for name in self._names] if scores else []
        self._fixed, self._weights = (
            {f"{what}/{name}": torch.stack([each[name] for each in given]) for name in self._names}
            for what, given in (("fixed", fixed), ("weights", weights))
        )
        constant = {f"layer/{name}/rows" for name in self._names if bool(self._fixed[f"fixed/{name}"].all())}
        self.parameters = {name: each for name, each in self._children.parameters.items() if name not in constant}
        if scores:
            stacked = {f"score/{name}": torch.stack([each[name] for each in scores]) for name in self._names}
            self.parameters |= {name: nn.Parameter(tensor) for name, tensor in stacked.items()}

    @property
    def signature(self) -> Hashable:
        """Networks of one signature differ only in the values of their state."""
        shapes = tuple((name, tuple(tensor.shape), tensor.dtype) for name, tensor in self.state.items())
        return id(self._children.graph), repr(self._counts), shapes  # the graph lives as long as this does

    @property
    def state(self) -> dict[str, Tensor]:
        """Every tensor, (K, …) each."""
        return {**self.parameters, **self._children.buffers, **self._children.masks, **self._fixed, **self._weights}

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
        fixed, weights, theta = self._fixed[f"fixed/{name}"], self._weights[f"weights/{name}"], f"layer/{name}/rows"
        return torch.where(fixed, weights, self.parameters[theta]) if theta in self.parameters else weights

    def _mask(self, name: str) -> Tensor:
        mask: Tensor = _Largest.apply(self.parameters[f"score/{name}"].abs(), self._counts[self._names.index(name)])  # type: ignore[no-untyped-call]
        return mask


class _Largest(torch.autograd.Function):
    """1 for the ``counts`` largest of each network's entries (K, …), else 0; its gradient passes as it is."""

    @staticmethod
    def forward(_ctx: Any, sizes: Tensor, counts: list[int]) -> Tensor:
        least = [each.flatten().kthvalue(each.numel() - count + 1)[0] for each, count in zip(sizes, counts, strict=True)]
        return (sizes >= torch.stack(least).view(-1, *(1,) * (sizes.dim() - 1))).to(sizes.dtype)

    @staticmethod
    def backward(_ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return gradient, None

"""Drop-transfer: dropout around the weights of an earlier network, where ordinary dropout is around zero."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from copy import copy
from dataclasses import replace

import torch.nn.functional as F
from torch import Tensor

from bocl.networks.graph import Layer
from bocl.networks.growth import Growth
from bocl.networks.plain import PlainNetwork
from bocl.networks.stacked import Children, _Value


class AroundEarlier(Children):
    """A plain network in training, whose hidden units are dropped to an earlier network's weights, for each sample.

        h_i = W°_i x              with probability p
        h_i = W°_i x + (W_i - W°_i) x / (1 - p)  otherwise

    W_i are the weights and bias of unit i, W°_i those of the earlier network. Once trained, h = W x.

    earlier  tensors layer/NAME/rows, bias of that network
    share    p
    """

    def __init__(self, network: PlainNetwork, earlier: Mapping[str, Tensor], share: float) -> None:
        growth = Growth(network.graph.widths, network.classes[-1], network.tensors)
        super().__init__(network.graph, None, [growth], head_of=network.head_of, device=network.device)
        self.draws, self.share = True, share
        self.earlier = {name: tensor.unsqueeze(0) for name, tensor in earlier.items()}

    @property
    def signature(self) -> Hashable:
        """Networks of one signature have the same earlier one."""
        return super().signature, id(self.earlier), self.share

    def _layer(self, layer: Layer, value: _Value, head: str, skip_frozen: bool) -> _Value:
        now = super()._layer(layer, value, head, skip_frozen)
        if not self.training or layer.group is None:
            return now
        before = copy(self)
        before.parameters = self.earlier
        then = super(AroundEarlier, before)._layer(layer, value, head, skip_frozen).own
        assert now.own is not None
        assert then is not None
        drawn = F.dropout(now.own.new_ones(*now.own.shape[:3], *(1,) * (now.own.dim() - 3)), self.share)
        return replace(now, own=then + drawn * (now.own - then))

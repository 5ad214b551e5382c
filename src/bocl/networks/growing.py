"""Networks that grow, in either form: by units, or by low-rank factors."""

from __future__ import annotations

import torch
from torch import nn

from bocl.errors import NetworkError
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.graph import Graph
from bocl.networks.growth import GrowthSettings, GrowthSpace
from bocl.networks.low_rank.backbone import Backbone
from bocl.networks.low_rank.children import FactoredChildren
from bocl.networks.low_rank.network import FactoredNetwork
from bocl.networks.low_rank.space import FactorSpace
from bocl.networks.pretrained import Pretrained
from bocl.networks.stacked import Children

GrowingNetwork = ExpandableNetwork | FactoredNetwork
GrowingSpace = GrowthSpace | FactorSpace
GrowingChildren = Children | FactoredChildren
Base = Graph | Pretrained | Backbone  # what the network of a learner is made from


def grows_in(base: Base) -> Graph | Backbone:
    """Return what has the groups that grow."""
    return base.graph if isinstance(base, Pretrained) else base


def groups_in_words(graph: Graph | Backbone) -> str:
    """Say which groups there are, and their widths, or the largest ranks that a search tries first."""
    if isinstance(graph, Graph):
        return "hidden groups " + ", ".join(f"{group.name} {group.width}" for group in graph.groups)
    if not graph.plan.layers:
        return "a whole copy of the module for every task"
    ranks = FactoredNetwork(graph).first_bounds()
    first = ", ".join(f"{group.name} {rank}" for group, rank in zip(graph.groups, ranks, strict=True))
    return f"groups of layers, and the largest ranks that are tried first: {first}"


def whole_base(
    network: nn.Module | Base, device: torch.device | str, *, pretrained: bool
) -> nn.Module | Graph | Backbone:
    """Return a pretrained module as it is, without factors, and any other network as it was given."""
    network = network.module if isinstance(network, Pretrained) else network
    if pretrained and isinstance(network, Graph):
        raise NetworkError("a traced network has no weights to start from; give the module")
    if isinstance(network, Backbone):
        return network.without_factors()
    return Backbone(network, None, device) if pretrained and isinstance(network, nn.Module) else network


def pretrained_base(module: nn.Module, growth: GrowthSettings, device: torch.device | str) -> Pretrained | Backbone:
    """Return a trained module as what tasks grow from."""
    if growth.form == "low-rank":
        return Backbone(module, growth, device)
    try:
        return Pretrained.of(module)
    except NetworkError as error:
        raise NetworkError(f"{error}; to adapt any module as it is, set growth.form = 'low-rank'") from error

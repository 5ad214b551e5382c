"""Operations are counted as PyTorch counts them."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bocl.networks.architectures import lenet, mlp
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.trace import trace
from bocl.training.flops import FlopCounter


@pytest.mark.parametrize(
    ("network", "shape"),
    [(mlp(inputs=20, hidden=[8, 6], classes=3), (20,)), (lenet(channels=3, classes=5), (3, 32, 32))],
    ids=["mlp", "lenet"],
)
def test_they_are_those_of_pytorch(network: torch.nn.Module, shape: tuple[int, ...]) -> None:
    graph = trace(network)
    grown = ExpandableNetwork(graph)
    grown.commit(grown.grow([graph.widths], 4, seeds=[0]).growth(0))
    small = tuple(1 for _ in graph.groups)
    children = grown.grow([small, tuple(2 for _ in graph.groups)], 4, seeds=[1, 2])
    x = torch.rand(1, *shape)
    with torch.no_grad(), FlopCounter() as ours:
        children(x, 1)
    with torch.no_grad(), FlopCounterMode(display=False) as theirs:
        children(x, 1)
    assert ours.count == theirs.get_total_flops() > 0

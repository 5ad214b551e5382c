"""Operations are counted as PyTorch counts them, and small steps use one thread."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from training_examples import children, easy_task

from bocl.networks.architectures import lenet, mlp
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.trace import trace
from bocl.training import threads
from bocl.training.threads import FlopCounter, sensible_threads


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
    stack = grown.grow([small, tuple(2 for _ in graph.groups)], 4, seeds=[1, 2])
    x = torch.rand(1, *shape)
    with torch.no_grad(), FlopCounter() as ours:
        stack(x, 1)
    with torch.no_grad(), FlopCounterMode(display=False) as theirs:
        stack(x, 1)
    assert ours.count == theirs.get_total_flops() > 0


@pytest.mark.usefixtures("two_threads")
def test_small_steps_use_one_thread_and_leave_the_count_as_it_was(monkeypatch):
    network, task = children(), easy_task()
    with sensible_threads(network, task, 8):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    with pytest.raises(RuntimeError, match="boom"), sensible_threads(network, task, 8):
        raise RuntimeError("boom")
    assert torch.get_num_threads() == 2
    monkeypatch.setattr(threads, "WORTH_SHARING", 10)
    with sensible_threads(network, task, 8):
        assert torch.get_num_threads() == 2

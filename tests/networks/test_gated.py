"""Networks whose units are read through gates: what a gate closes, what it holds, and how gates are annealed."""

from __future__ import annotations

import re

import pytest
import torch
from network_examples import IMAGE, NETWORKS, make_task

from bocl.errors import NetworkError
from bocl.networks.compact import assemble
from bocl.networks.gated import GatedNetwork, gated, held, refuse_unheld
from bocl.networks.graph import Graph
from bocl.networks.growth import Growth, GrowthSpace, initialise
from bocl.networks.trace import trace
from bocl.training.hooks import Hooks
from bocl.training.recipe import Recipe
from bocl.training.trainer import train

REFUSED = {"cnn, group norm", "residual, group norm", "layer norm"}
TAKEN = {name: build for name, build in NETWORKS.items() if name not in REFUSED}


@pytest.fixture(params=TAKEN)
def graph(request: pytest.FixtureRequest) -> Graph:
    """Return the graph of every network that can be gated."""
    return trace(TAKEN[request.param]())


def fresh(graph: Graph, seed: int = 0) -> dict[str, torch.Tensor]:
    return initialise(GrowthSpace.first(graph, 3), graph.widths, seed=seed).tensors


def some_gates(graph: Graph, seed: int = 0) -> dict[str, torch.Tensor]:
    """Return gates of which about half are open, at least one of each group."""
    draw = torch.Generator().manual_seed(seed)
    gates = {group.name: (torch.rand(group.width, generator=draw) < 0.5).float() for group in graph.groups}
    for gate in gates.values():
        gate[0] = 1
    return gates


def logits(graph: Graph, tensors, gates) -> torch.Tensor:
    x = torch.randn(5, *IMAGE, generator=torch.Generator().manual_seed(9))
    return assemble(graph, None, Growth(graph.widths, 3, gated(graph, tensors, gates)))(x)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_norms_over_several_units_are_refused_by_name(name):
    graph = trace(NETWORKS[name]())
    first = next(norm.name for norm in graph.norms)
    with pytest.raises(NetworkError, match=rf"'{re.escape(first)}' is a (Group|Layer)Norm: .*use BatchNorm"):
        refuse_unheld(graph)


def test_open_gates_change_nothing(graph):
    refuse_unheld(graph)
    tensors = fresh(graph)
    ones = {group.name: torch.ones(group.width) for group in graph.groups}
    for name, tensor in gated(graph, tensors, ones).items():
        assert torch.equal(tensor, tensors[name])


def test_what_is_held_is_all_that_a_task_computes_with(graph):
    """Whatever happens to the rest, its logits keep their bits; and of what is held nothing is idle."""
    tensors, gates = fresh(graph), some_gates(graph)
    before = logits(graph, tensors, gates)
    shares, other = held(graph, gates), fresh(graph, seed=1)
    assert shares.keys() == {name for name in tensors if name.startswith("layer/")}
    changed = {
        name: torch.where(shares[name].expand_as(tensor) == 1, tensor, other[name]) if name in shares else tensor
        for name, tensor in tensors.items()
    }
    assert any(not torch.equal(tensor, tensors[name]) for name, tensor in changed.items())
    assert torch.equal(logits(graph, changed, gates), before)
    assert not torch.equal(logits(graph, {**tensors, **{name: other[name] for name in shares}}, gates), before)


def test_a_closed_unit_plays_no_part(graph):
    tensors, gates, other = fresh(graph), some_gates(graph), fresh(graph, seed=1)
    before, changed = logits(graph, tensors, gates), 0
    for layer in graph.layers:  # what computes a closed unit may be anything
        closed = gates[graph.groups[layer.group].name] == 0
        for name in {f"layer/{layer.name}/rows", f"layer/{layer.name}/bias"} & tensors.keys():
            rows = closed.view(-1, *(1,) * (tensors[name].dim() - 1))
            tensors[name] = torch.where(rows, other[name], tensors[name])
            changed += closed.sum()
    assert changed
    assert torch.equal(logits(graph, tensors, gates), before)


def test_the_sharpness_rises_over_an_epoch_and_is_full_elsewhere():
    network = GatedNetwork(trace(NETWORKS["mlp"]()))
    stack = network.start(3, steepness=100.0, steps=5, seed=0)
    found = []
    for _ in range(7):
        found.append(stack.sharpness().item())
        stack.taken += 1
    steps = [0.01 + (100 - 0.01) * step / 4 for step in range(5)]
    assert found == pytest.approx([*steps, *steps[:2]])
    with torch.no_grad():
        assert stack.sharpness().item() == 100, "in measuring there is no step"
    stack.training = False
    assert stack.sharpness().item() == 100
    assert network.start(3, steepness=100.0, steps=1, seed=0).sharpness().item() == 100


def test_a_stack_computes_in_training_what_it_predicts_with_and_learns_its_gates(graph):
    network = GatedNetwork(graph)
    stack = network.start(3, steepness=50.0, steps=3, seed=0)
    begin = {name: tensor.detach().clone() for name, tensor in stack.embeddings.items()}
    count = lambda _parameters: stack.taken.add_(1) and None  # noqa: E731
    train(stack, [make_task()], Recipe("sgd", 0.05, batch_size=8, epochs=2), seed=0, hooks=Hooks(count))
    assert any(not torch.equal(tensor, begin[name]) for name, tensor in stack.embeddings.items())
    network.commit(stack)
    x = torch.randn(5, *IMAGE, generator=torch.Generator().manual_seed(9))
    torch.testing.assert_close(stack(x).detach()[0], network.predict(x, 0))


def test_a_task_starts_from_the_layers_there_are_and_the_last_task_s_norms():
    network = GatedNetwork(trace(NETWORKS["cnn, batch norm"]()))
    first = network.start(3, steepness=1.0, steps=1, seed=0)
    with torch.no_grad():
        for tensor in first.state.values():
            tensor.add_(1)
    network.commit(first)
    second = network.start(2, steepness=1.0, steps=1, seed=1)
    for name, tensor in first.children.state.items():
        assert torch.equal(second.children.state[name], tensor) != name.startswith("head/"), name
    assert not any(map(torch.equal, first.embeddings.values(), second.embeddings.values()))


def test_what_is_taken_is_the_most_that_any_task_has_open():
    network = GatedNetwork(trace(NETWORKS["mlp"]()))
    assert all((share == 0).all() for share in network.taken().values())
    for seed in range(2):
        network.commit(network.start(3, steepness=1.0, steps=1, seed=seed))
    for name, share in network.taken().items():
        assert torch.equal(share, torch.maximum(network.gates(0)[name], network.gates(1)[name]))

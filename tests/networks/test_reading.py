"""Whatever a task reads, nothing is forgotten, and the stack trains what the compact network computes."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from network_examples import NETWORKS, Remembered, hash_of, learn, make_task, random_stack
from torch import Tensor

from bocl.errors import NetworkError
from bocl.networks.architectures import mlp
from bocl.networks.attention import UNIT
from bocl.networks.blocks import frozen_network, latest_norms, with_all_they_read
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.graph import Graph, Layer
from bocl.networks.growth import PARTS, Growth, GrowthSettings, GrowthSpace, count_tensors, initialise
from bocl.networks.stacked import Children
from bocl.networks.trace import trace
from bocl.training.recipe import Recipe
from bocl.training.trainer import train
from bocl.widths import Widths

Reads = tuple[int, ...]
SETTINGS = st.builds(
    GrowthSettings,
    wiring=st.sampled_from(["full", "lean", "forward"]),
    attention=st.sampled_from([True, True, False]),
    gates=st.sampled_from(["unit", "sample"]),
    gate_share=st.sampled_from([0.1, 1.0]),
    reduction_nodes=st.sampled_from([2, 64]),
    reduction_channels=st.just(2),
)
FEW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Draw an MLP, or a network of convolutions and residual blocks with any norm, flattened before its last layer."""
    if draw(st.booleans(), label="mlp"):
        return trace(mlp(72, draw(st.lists(st.integers(1, 5), min_size=1, max_size=3), label="hidden"), 2))
    kinds = draw(st.lists(st.sampled_from(["plain", "residual"]), min_size=1, max_size=2), label="kinds")
    widths = [draw(st.integers(1, 4), label="width") for _ in kinds]
    norm = draw(st.sampled_from(["none", "batch", "group"]), label="norm")
    return trace(random_stack(kinds, widths, norm, draw(st.sampled_from(["max", "adaptive"]), label="pool")))


@st.composite
def reads_of(draw: st.DrawFn, network: ExpandableNetwork) -> Reads:
    """Draw what a next task reads: nothing, the first task, any tasks with all that they read, or all."""
    kind = draw(st.sampled_from(["own", "first", "some", "all"]), label="reads")
    if kind == "some":
        some = draw(st.sets(st.sampled_from(network.all_tasks), min_size=1), label="tasks")
        return with_all_they_read(some, network.growths)
    return {"own": (), "first": (0,), "all": network.all_tasks}[kind]


def widths_of(draw: st.DrawFn, graph: Graph, reads: Reads) -> Widths:
    """Draw a growth; a network of its own has units in every group."""
    return draw(st.tuples(*[st.integers(0 if reads else 1, 3)] * len(graph.groups)), label="z")


def restored(network: ExpandableNetwork) -> ExpandableNetwork:
    """Return the network after it was saved and loaded."""
    facts, tensors = network.stored()
    facts, classes = json.loads(json.dumps(facts)), [growth.classes for growth in network.growths]
    wanted = network.stored_shapes(facts, classes)
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == {
        name: tuple(map(int, shape)) for name, shape in wanted.items()
    }
    made = ExpandableNetwork(network.graph, network.settings)
    made.restore(facts, tensors, classes)
    return made


@FEW
@given(st.data())
def test_nothing_is_forgotten_whatever_each_task_reads(data):
    network = ExpandableNetwork(data.draw(graphs()), data.draw(SETTINGS))
    remembered = Remembered()
    learn(network, network.graph.widths, 3)
    remembered.take(network)
    for _ in range(data.draw(st.integers(2, 4), label="later tasks")):
        reads = data.draw(reads_of(network))
        z = widths_of(data.draw, network.graph, reads)
        learn(network, z, data.draw(st.integers(2, 4), label="classes"), reads=reads)
        remembered.check(network)
        remembered.take(network)
        assert network.growths[-1].reads == reads
    again = restored(network)
    assert [growth.reads for growth in again.growths] == [growth.reads for growth in network.growths]
    remembered.check(again)
    learn(again, (1,) * len(again.graph.groups), 2)
    remembered.check(again)


def several_lineages(
    graph: Graph, settings: GrowthSettings | None = None, dtype: torch.dtype = torch.float32
) -> ExpandableNetwork:
    """Return a network of six tasks: two that read nothing, one that reads the other, one that reads both lineages."""
    network = ExpandableNetwork(graph, settings)
    groups = len(graph.groups)
    for number, reads in enumerate([(), (0,), (), (2,), (0, 1), (0, 1, 2, 3)]):
        z = tuple(1 + (number + group) % 3 for group in range(groups)) if number else graph.widths
        growth = network.grow([z], 2 + number % 2, seeds=[number], dtype=dtype, reads=reads).growth(0)
        generator = torch.Generator().manual_seed(number)  # norms too are like those of a trained network
        norms = {
            name: torch.rand(tensor.shape, generator=generator, dtype=dtype) + 0.5
            for name, tensor in growth.tensors.items()
            if name.startswith("norm/")
        }
        network.commit(replace(growth, tensors=growth.tensors | norms))
    return network


CHOICES: list[Reads] = [(), (0,), (2,), (0, 1), (2, 3), (0, 2), (0, 1, 2, 3), (0, 1, 4), (0, 1, 2, 3, 4, 5)]
WAYS = [
    GrowthSettings(wiring=wiring, gates=gates, gate_share=share)
    for wiring in ("full", "lean", "forward")
    for gates, share in (("unit", 1.0), ("unit", 0.1), ("sample", 0.1))
]


@pytest.mark.parametrize("how", WAYS, ids=lambda how: f"{how.wiring}-{how.gates}-{how.gate_share}")
@pytest.mark.parametrize("name", NETWORKS)
def test_the_stack_computes_what_the_compact_network_does(name, how):
    network = several_lineages(trace(NETWORKS[name]()), how, torch.float64)
    x = make_task(dtype=torch.float64).validation.inputs
    groups = len(network.graph.groups)
    for reads in CHOICES:
        widths = [tuple((2, 0, 1)[(number + group) % 3] for group in range(groups)) for number in range(3)]
        if not reads:
            widths = [(2,) * groups] * 2
        pad_to = (4,) * groups if reads else None
        seeds = range(len(widths))
        children = network.grow(widths, 3, seeds=seeds, pad_to=pad_to, reads=reads, dtype=torch.float64)
        children.training = False
        for at, logits in enumerate(children(x)):
            compact = network.candidate(children.growth(at))
            torch.testing.assert_close(logits, compact(x), rtol=1e-9, atol=1e-9, msg=f"{reads} {widths[at]}")


@pytest.mark.parametrize("wiring", ["full", "lean", "forward"])
@pytest.mark.parametrize("name", ["mlp", "cnn", "cnn, group norm", "residual, batch norm"])
def test_children_with_gates_per_unit_train_in_one_stack_with_those_that_do_without(name, wiring):
    network = several_lineages(trace(NETWORKS[name]()), GrowthSettings(wiring=wiring), torch.float64)
    groups, reads, task = len(network.graph.groups), (0, 1), make_task(3, 6, samples=40, dtype=torch.float64)
    widths = [(3,) * groups, (0,) * groups, (1,) * groups]
    recipe = Recipe("sgd", learning_rate=0.05, weight_decay=0.0, batch_size=8, epochs=2)
    space = network.space(3, reads)
    kinds = [int(space.count(z)["attention"]) > 0 for z in widths]
    assert set(kinds) == {True, False}, "or this shows nothing"

    def trained(chosen: list[Widths], seeds: list[int]) -> Children:
        children = network.grow(chosen, 3, seeds=seeds, reads=reads, dtype=torch.float64)
        train(children, [task], recipe, seed=7)
        return children

    together = trained(widths, [0, 1, 2])
    for at, z in enumerate(widths):
        alone, found = trained([z], [at]).growth(0).tensors, together.growth(at).tensors
        assert alone.keys() == found.keys()
        for key, tensor in alone.items():
            torch.testing.assert_close(found[key], tensor, rtol=1e-9, atol=1e-9, msg=f"{key} of {z}")
        if not kinds[at]:
            assert all(tensor.shape == (0,) for key, tensor in found.items() if key.endswith(f"/{UNIT}"))
        compact = network.candidate(together.growth(at))
        x = task.validation.inputs
        torch.testing.assert_close(together(x)[at], compact(x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("wiring", ["full", "lean", "forward"])
def test_gates_per_unit_fit_a_stack_padded_to_where_no_child_could_afford_them(wiring):
    """Of one input and few units, new units cost so little that their gates are a large share."""
    graph = trace(mlp(1, [1, 1], 2))
    network = ExpandableNetwork(graph, GrowthSettings(wiring=wiring), "cpu")
    network.commit(network.grow([graph.widths], 2, seeds=[0], dtype=torch.float64).growth(0))
    space, widths, pad_to = network.space(20), [(0, 0), (2, 0), (60, 0)], (64, 2)
    afford = [int(space.count(z)["attention"]) > 0 for z in (*widths, pad_to)]
    assert (afford[1], afford[-1]) == (True, False), "or this shows nothing"
    children = network.grow(widths, 20, seeds=[1, 2, 3], pad_to=pad_to, dtype=torch.float64)
    x = torch.linspace(-1, 1, 5, dtype=torch.float64)[:, None]
    for at, logits in enumerate(children(x)):
        torch.testing.assert_close(logits, network.candidate(children.growth(at))(x), rtol=1e-9, atol=1e-9)


# -- the frozen network of several blocks ------------------------------------------------------------


@pytest.mark.parametrize("how", WAYS, ids=lambda how: f"{how.wiring}-{how.gates}-{how.gate_share}")
@pytest.mark.parametrize("name", NETWORKS)
def test_the_frozen_network_of_a_chain_is_the_last_tasks_own(name, how):
    network = several_lineages(trace(NETWORKS[name]()), how)
    for task, growth in enumerate(network.growths):
        chain, own = frozen_network(network.graph, network.growths, (*growth.reads, task)), network.tasks[task]
        assert (chain.blocks, chain.roots) == (own.blocks, own.roots)
        layers = {key: tensor for key, tensor in own.weights.items() if key.startswith("layer/")}
        assert {key: hash_of(tensor) for key, tensor in chain.weights.items()} == {
            key: hash_of(tensor) for key, tensor in layers.items()
        }


def unit_pair(growths: list[Growth], layer: Layer, reader: tuple[int, int], read: tuple[int, int]) -> Tensor | float:
    """Return the weight between two units, each a task and a number there, by the words of ``blocks.py``."""
    assert layer.group is not None
    assert layer.source.group is not None
    (task, unit), (other, column) = reader, read
    spread, group, source = layer.source.spread, layer.group, layer.source.group
    if other == task or other in growths[task].reads:
        before = sum(growths[entry].widths[source] for entry in growths[task].reads if entry < other)
        return growths[task].tensors[f"layer/{layer.name}/rows"][unit, before * spread + column]
    columns = growths[other].tensors.get(f"layer/{layer.name}/columns")
    if task in growths[other].reads and columns is not None:
        before = sum(growths[entry].widths[group] for entry in growths[other].reads if entry < task)
        return columns[before + unit, column]
    return 0.0


@pytest.mark.parametrize("wiring", ["full", "lean", "forward"])
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("tasks", [(0, 2), (0, 1, 2, 3), (0, 1, 2, 4), (0, 1, 2, 3, 4, 5)])
def test_the_frozen_network_of_several_lineages_has_every_weight_in_its_place(name, wiring, tasks):
    network = several_lineages(trace(NETWORKS[name]()), GrowthSettings(wiring=wiring))
    growths, graph = network.growths, network.graph
    joined = network.frozen(tasks)
    assert joined is not None
    assert joined.blocks == tuple(growths[task].widths for task in tasks)
    assert joined.roots == {place for place, task in enumerate(tasks) if task in (0, 2)}
    for layer in graph.layers:
        if layer.separate:
            rows = [growths[task].tensors[f"layer/{layer.name}/rows"] for task in tasks]
            assert all(map(torch.equal, joined.separate_weights(layer), rows))
            continue
        weight, bias = joined.weight_and_bias(layer)
        source, assert_group = layer.source, layer.group
        assert assert_group is not None
        units = [(task, unit) for task in tasks for unit in range(growths[task].widths[assert_group])]
        if source.group is None:
            assert torch.equal(weight, torch.cat([growths[task].tensors[f"layer/{layer.name}/rows"] for task in tasks]))
        else:
            columns = [
                (task, column) for task in tasks for column in range(growths[task].widths[source.group] * source.spread)
            ]
            assert weight.shape[:2] == (len(units), len(columns))
            for row, reader in enumerate(units):
                for place, read in enumerate(columns):
                    wanted = unit_pair(growths, layer, reader, read)
                    found = weight[row, place]
                    assert torch.equal(found, torch.zeros_like(found) + wanted), (layer.name, reader, read)
        if bias is not None:
            assert torch.equal(bias, torch.cat([growths[task].tensors[f"layer/{layer.name}/bias"] for task in tasks]))


@pytest.mark.parametrize("name", ["cnn, batch norm", "residual, group norm"])
@pytest.mark.parametrize("tasks", [(0, 2), (0, 1, 2, 3), (0, 1, 2, 4), (0, 1, 2, 3, 4, 5)])
def test_norms_go_on_from_the_latest_reader_of_each_unit(name, tasks):
    network = several_lineages(trace(NETWORKS[name]()))
    growths = network.growths
    found = latest_norms(network.graph, growths, tasks)
    assert found
    for norm in network.graph.norms:
        assert norm.source.group is not None
        for key in [key for key in found if key.rpartition("/")[0] == f"norm/{norm.name}"]:
            wanted = []
            for task in tasks:
                latest = max(other for other in tasks if task in (*growths[other].reads, other))
                own = growths[latest]
                before = sum(growths[entry].widths[norm.source.group] for entry in own.reads if entry < task)
                wanted.append(own.tensors[key][before : before + growths[task].widths[norm.source.group]])
            assert torch.equal(found[key], torch.cat(wanted)), key


# -- counts ------------------------------------------------------------------------------------------


@FEW
@given(st.data())
def test_counts_are_those_of_the_tensors_whatever_is_read(data):
    how = data.draw(SETTINGS)
    network = several_lineages(data.draw(graphs()), how)
    classes, groups = data.draw(st.integers(2, 5), label="classes"), len(network.graph.groups)
    for reads in CHOICES:
        space = network.space(classes, reads)
        z = np.array(data.draw(st.lists(st.tuples(*[st.integers(0, 5)] * groups), min_size=1, max_size=4)))
        counted, by_group = space.count(z), space.count_by_group(z)
        for row, widths in enumerate(z.tolist()):
            growth = initialise(space, tuple(widths), reads=reads, seed=1)
            made = count_tensors(growth.tensors)
            assert made == {part: int(counted[part][row]) for part in PARTS}
            assert made == {part: int(count) for part, count in space.count(widths).items()}, "one by one"
            assert by_group[row].tolist() == space.count_by_group(widths).tolist()
            assert space.count_all(z)[row] == sum(made.values())
            if how.gates == "unit":
                assert made["attention"] <= how.gate_share * sum(made.values())
            if not reads:
                assert made["attention"] == 0


@FEW
@given(st.data())
def test_gates_per_unit_are_there_exactly_where_they_are_affordable(data):
    hidden = data.draw(st.lists(st.integers(1, 6), min_size=2, max_size=3), label="hidden")
    share = data.draw(st.sampled_from([0.0, 0.02, 0.05, 0.1, 0.2, 1.0]), label="share")
    graph = trace(mlp(data.draw(st.integers(1, 9), label="inputs"), hidden, 2))
    without, with_gates = (
        GrowthSpace(graph, graph.widths, 3, GrowthSettings(wiring="full", attention=gated, gate_share=share))
        for gated in (False, True)
    )
    z = data.draw(st.tuples(*[st.integers(0, 9)] * len(hidden)), label="z")
    rest = int(without.count_all(z))
    gates = sum(old + new for old, new in list(zip(hidden, z, strict=True))[:-1])  # what hidden layers read of units
    fits = gates <= share * (gates + rest)
    assert int(with_gates.count(z)["attention"]) == (gates if fits else 0)


def test_to_read_less_never_costs_more():
    network = several_lineages(trace(NETWORKS["cnn"]()))
    z = np.random.default_rng(0).integers(1, 6, (20, 3))
    for less, more in combinations(CHOICES, 2):
        if set(less) < set(more):
            space, larger = network.space(3, less), network.space(3, more)
            assert (space.count(z)["shared"] <= larger.count(z)["shared"]).all()
            assert (space.count(z)["heads"] <= larger.count(z)["heads"]).all()


# -- files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "reads", "message"),
    [
        (1, [1], r"facts\.growths\[1\]\.reads is \(1,\); it must be numbers of earlier tasks in order$"),
        (1, [5], r"facts\.growths\[1\]\.reads is \(5,\); it must be numbers of earlier tasks in order$"),
        (2, [-1], r"facts\.growths\[2\]\.reads is \(-1,\); it must be numbers of earlier tasks in order$"),
        (4, [1, 0], r"facts\.growths\[4\]\.reads is \(1, 0\); it must be numbers of earlier tasks in order$"),
        (4, [0, 0], r"facts\.growths\[4\]\.reads is \(0, 0\); it must be numbers of earlier tasks in order$"),
        (4, [1], r"facts\.growths\[4\]\.reads has 1, but not all that it reads$"),
        (5, [0, 1, 3], r"facts\.growths\[5\]\.reads has 3, but not all that it reads$"),
        (0, [0], r"facts\.growths\[0\]\.reads is \(0,\); it must be numbers of earlier tasks in order$"),
    ],
)
def test_reads_that_no_network_can_have_are_refused(task, reads, message):
    network = several_lineages(trace(NETWORKS["mlp"]()))
    facts, _ = network.stored()
    facts["growths"][task]["reads"] = reads
    with pytest.raises(NetworkError, match=message) as told:
        network.stored_shapes(facts, [growth.classes for growth in network.growths])
    assert "\n" not in str(told.value)


def test_a_saved_growth_without_reads_reads_all():
    network = ExpandableNetwork(trace(NETWORKS["mlp"]()))
    for z in (network.graph.widths, (1, 2), (2, 0)):
        learn(network, z, 3)
    facts, _ = network.stored()
    assert all("reads" not in entry for entry in facts["growths"]), "as early files have them"
    assert [growth.reads for growth in restored(network).growths] == [(), (0,), (0, 1)]

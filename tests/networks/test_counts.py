"""Parameters are counted in closed form, and the count is what is stored."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from network_examples import NETWORKS, grown, random_stack
from torch import nn

from bocl.errors import ConfigError
from bocl.methods.reward import unit_costs
from bocl.networks.architectures import lenet, mlp, resnet
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.growth import PARTS, GrowthSettings, GrowthSpace, count_tensors, initialise
from bocl.networks.trace import trace
from paper_settings import PAPER_GROWTH

PLAIN = GrowthSettings(wiring="full", attention=False)


@pytest.mark.parametrize(
    ("module", "parameters"),
    [
        (lenet(), 62_006),
        (lenet(1, 3, [2, 3, 5, 4]), 624),
        (mlp(784, [312, 128]), 286_274),
        (resnet(), None),
        (resnet(1, (4, 8), 2, 5), None),
    ],
    ids=["lenet", "small lenet", "mlp", "resnet", "small resnet"],
)
def test_a_first_task_has_the_parameters_of_the_module(module, parameters):
    graph = trace(module)
    classes = [layer for layer in module.modules() if isinstance(layer, nn.Linear)][-1].out_features
    counted = int(GrowthSpace.first(graph, classes).count_all(graph.widths))
    assert counted == sum(tensor.numel() for tensor in module.parameters())
    assert parameters in (None, counted)


@pytest.mark.parametrize(
    ("module", "costs"),
    [(lenet(), (476, 3151, 485, 131)), (mlp(784, [312, 128]), (913, 323))],
    ids=["lenet", "mlp"],
)
def test_one_more_unit_costs_its_in_and_out_edges(module, costs):
    graph = trace(module)
    found = unit_costs(GrowthSpace(graph, graph.widths, 10, PLAIN).count_all, len(costs))
    assert tuple(found) == costs


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.data())
def test_closed_form_counts_are_those_of_real_growths(data):
    kinds = data.draw(st.lists(st.sampled_from(["plain", "residual"]), min_size=1, max_size=3))
    widths = [data.draw(st.integers(1, 5)) for _ in kinds]
    module = random_stack(kinds, widths, data.draw(st.sampled_from(["none", "batch", "group"])), "max")
    how = GrowthSettings(
        "all",
        data.draw(st.sampled_from(["full", "lean", "forward"])),
        data.draw(st.booleans()),
        data.draw(st.sampled_from(["unit", "sample"])),
        reduction_nodes=3,
        reduction_channels=2,
    )
    network = ExpandableNetwork(trace(module), how)
    groups = len(network.graph.groups)
    network.commit(initialise(network.space(3), network.graph.widths, seed=0))
    for _ in range(2):
        z = np.array(data.draw(st.lists(st.tuples(*[st.integers(0, 4)] * groups), min_size=1, max_size=4)))
        counted = network.space(4).count(z)
        for row, widths in enumerate(z.tolist()):
            growth = initialise(network.space(4), tuple(widths), seed=1)
            assert count_tensors(growth.tensors) == {part: int(counted[part][row]) for part in PARTS}
            assert network.space(4).count_all(z)[row] == sum(count_tensors(growth.tensors).values())
        network.commit(growth)
    assert network.parameters_by_task()[-1] == count_tensors(growth.tensors)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("wiring", ["full", "lean", "forward"])
def test_counts_by_group_add_up_to_the_shared_part(name, wiring):
    how = GrowthSettings(wiring=wiring)
    graph = trace(NETWORKS[name]())
    z = np.random.default_rng(0).integers(0, 5, (6, len(graph.groups)))
    space = GrowthSpace(graph, graph.widths, 3, how)
    by_group = space.count_by_group(z)
    assert by_group.shape == z.shape
    assert (by_group.sum(-1) == space.count(z)["shared"]).all()
    plain = not any(layer.separate for layer in graph.layers)  # old units read no new ones through those
    if plain and wiring != "lean":  # there it depends on which layers read a flattened map
        assert (by_group[z == 0] == 0).all() == (wiring == "forward")


def test_counts_of_lenet_by_group_are_those_inside_each_layer():
    graph = trace(lenet())
    (row,) = GrowthSpace(graph, graph.widths, 10, PLAIN).count_by_group([(1, 2, 3, 4)])
    # rows: new units x all inputs and a bias; columns: old units x new inputs
    assert row.tolist() == [
        1 * (75 + 1),
        2 * (7 * 25 + 1) + 16 * 25,
        3 * (18 * 25 + 1) + 120 * 2 * 25,
        4 * (123 + 1) + 84 * 3,
    ]


def test_running_statistics_are_not_counted_as_parameters():
    network = grown(NETWORKS["residual, batch norm"]())
    stored = network.growths[0].tensors
    norms = sum(t.numel() for name, t in stored.items() if name.startswith("norm/"))
    assert network.parameters_by_task()[0]["norms"] == norms // 2


def test_parts_are_counted_apart():
    network = grown(NETWORKS["mlp"](), [(1, 2)], PAPER_GROWTH)
    assert network.parameters_by_task() == [
        {"shared": 72 * 6 + 6 + 6 * 5 + 5, "heads": 5 * 3 + 3, "attention": 0, "norms": 0},
        {
            "shared": 1 * 73 + 2 * (7 + 1) + 5 * 1,
            "heads": 7 * 4 + 4,
            "attention": 2 * (2 * 7 + 2 + 2 * 7 + 7),  # two gates over 7 nodes, 2 hidden units each
            "norms": 0,
        },
    ]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"wiring": "backward"}, "wiring"),
        ({"reduction_nodes": 0}, "reduction_nodes"),
        ({"reduction_channels": -1}, "channels"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options, word):
    with pytest.raises(ConfigError, match=word):
        GrowthSettings(**options)

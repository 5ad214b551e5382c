"""What a task may read: the choices, the probe that finds the nearest task, and what every choice costs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from method_examples import small_cnn, small_mlp

from bocl.methods import reading
from bocl.methods.reading import Choice, ReadingSpace, nearest, reading_choices, reads_of
from bocl.networks.architectures import mlp
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.growth import GrowthSettings, GrowthSpace
from bocl.networks.trace import trace
from bocl.training.batches import DeviceSplit, DeviceTask
from bocl.training.recipe import Recipe
from bocl.training.trainer import train

SHAPE = (2, 6, 6)


def a_task(kind: int, index: int = 0, classes: int = 3, samples: int = 300) -> DeviceTask:
    """Return samples around centres of their own for every kind of task."""
    generator = torch.Generator().manual_seed(kind)
    centres = torch.randn(classes, *SHAPE, generator=generator)
    noise = torch.Generator().manual_seed(100 + index)

    def split(size: int) -> DeviceSplit:
        labels = torch.arange(size) % classes
        return DeviceSplit(centres[labels] + 2.0 * torch.randn(size, *SHAPE, generator=noise), labels)

    return DeviceTask(f"task {index}", index, classes, split(samples), split(90))


def a_network(*reads: tuple[int, ...], module=None, **settings) -> ExpandableNetwork:
    """Return a network whose tasks read these; none is trained."""
    network = ExpandableNetwork(trace(module or small_mlp()), GrowthSettings(**settings))
    for number, read in enumerate(((), *reads)):
        z = (2,) * len(network.graph.groups) if number else network.graph.widths
        network.commit(network.grow([z], 3, seeds=[number], reads=read).growth(0))
    return network


@pytest.mark.parametrize(
    ("reads", "wanted"), [("all", ((0, 1, 2))), ("first", (0,)), ("own", ()), ("choose", (0, 1, 2))]
)
def test_methods_without_a_search_read_what_the_settings_name_or_all(reads, wanted):
    network = a_network((0,), (0, 1), reads=reads)
    assert reads_of(network) == wanted
    if reads != "choose":
        assert reading_choices(network, a_task(0, 3)) == (Choice(reads, wanted),)


@pytest.mark.parametrize("lineages", [(), ((0,),), ((),), ((), (1,)), ((0,), (), (0, 1, 2)), ((), (0, 1), (), (3,))])
@pytest.mark.parametrize("module", [small_mlp, small_cnn])
def test_choices_are_different_whole_and_affordable(lineages, module):
    network = a_network(*lineages, module=module())
    choices = reading_choices(network, a_task(0, len(network.growths)))
    assert choices[0] == Choice("first", (0,))
    assert choices[-1] == Choice("own", ())
    kinds = [choice.kind for choice in choices]
    assert kinds == [kind for kind in ("first", "near", "all", "own") if kind in kinds]
    assert len({choice.reads for choice in choices}) == len(choices)
    for choice in choices[1:-1]:
        assert all(set(network.growths[task].reads) <= set(choice.reads) for task in choice.reads)
        least = int(network.space(3, choice.reads).count_all(network.graph.no_units))
        assert least <= network.own_parameters(3), "or nothing could be added"


def test_what_leaves_no_room_to_grow_is_no_choice(monkeypatch):
    network = a_network((0,), (0, 1))
    monkeypatch.setattr(reading, "MOST_TO_READ", 0.0)
    assert [choice.kind for choice in reading_choices(network, a_task(0, 3))] == ["first", "own"]


def test_a_task_that_was_learnt_before_is_the_nearest():
    network = ExpandableNetwork(trace(mlp(72, [8], 3)))
    for kind in range(4):
        children = network.grow([(8,)], 3, seeds=[kind], reads=())
        train(children, [a_task(kind)], Recipe("adam", learning_rate=0.02, batch_size=32, epochs=10), seed=0)
        network.commit(children.growth(0))
    for kind in range(4):
        assert nearest(network, a_task(kind, 9), [0, 1, 2, 3]) == kind
    (choice,) = [choice for choice in reading_choices(network, a_task(2, 9)) if choice.kind == "near"]
    assert choice.reads == (2,)
    assert all(choice.kind != "near" for choice in reading_choices(network, a_task(0, 9))), "the first is one already"


def test_the_probe_repeats_itself_and_changes_nothing():
    network, data = a_network((0,), ()), a_task(5, 3, samples=1200)
    before = {name: tensor.clone() for name, tensor in network.tasks[1].weights.items()}
    assert nearest(network, data, [0, 1, 2]) == nearest(network, data, [0, 1, 2])
    assert nearest(network, data, [2, 1, 0]) == nearest(network, data, [0, 1, 2]), "whatever their order"
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.tasks[1].weights.items())


@pytest.mark.parametrize("module", [small_mlp, small_cnn])
@pytest.mark.parametrize("gates", ["unit", "sample"])
def test_points_cost_what_their_choice_does(module, gates):
    network = a_network((0,), (), module=module(), gates=gates)
    choices = (Choice("first", (0,)), Choice("near", (0, 1)), Choice("all", (0, 1, 2)), Choice("own", ()))
    space = ReadingSpace(network, 3, choices)
    points = np.random.default_rng(0).integers(0, 4, (40, 3))
    wanted = [int(network.space(3, choices[point[2]].reads).count_all(point[:2])) for point in points]
    assert space.parameters(points).tolist() == wanted
    assert space.bounds((7, 9)) == (7, 9, 3)
    for point in points.tolist():
        widths, choice = space.parted(tuple(point))
        assert space.point(widths, choice.kind) == tuple(point)
    own = int(GrowthSpace.first(network.graph, 3).count_all((2, 3)))
    assert space.parameters(np.array([[2, 3, 3]]))[0] == own, "a network of its own is one that was never grown"


def test_to_read_all_alone_is_no_choice():
    network = a_network((0,))
    space = ReadingSpace(network, 3, (Choice("all", (0, 1)),))
    assert (space.kinds, space.bounds((7, 9)), space.point((1, 2), "all")) == ((), (7, 9), (1, 2))
    assert space.parted((1, 2)) == ((1, 2), Choice("all", (0, 1)))
    assert space.parameters(np.array([[1, 2]]))[0] == network.space(3).count_all((1, 2))

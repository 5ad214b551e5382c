"""Children that are behind are stopped: which, when, and what becomes of the others."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch
from method_examples import hard_stream, small_cnn

from bocl.methods.failures import NOT_FINITE
from bocl.methods.halving import Halving, going_on, halving_for, ranked
from bocl.methods.round_trainer import LocalTrainer
from bocl.methods.rounds import Round
from bocl.networks.architectures import mlp
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.trace import trace
from bocl.records.events import EpochDone, OutOfMemory
from bocl.records.record import RoundFit
from bocl.settings import parse_value, to_plain
from bocl.training.batches import task_to_device
from bocl.training.recipe import Recipe
from bocl.training.trainer import Training

# -- who goes on -----------------------------------------------------------------------------------


def test_the_most_accurate_go_on_whatever_their_size():
    #              0     1     2     3     4
    accuracies = [0.90, 0.80, 0.85, 0.70, 0.60]
    assert ranked(dict(enumerate(accuracies)), (100, 50, 120, 60, 10)) == [0, 2, 1, 3, 4]


@pytest.mark.parametrize(
    ("accuracies", "sizes", "order"),
    [
        ([0.5, 0.5, 0.5], (3, 1, 2), [1, 2, 0]),  # as accurate, but smaller
        ([0.5, 0.6, 0.4], (7, 7, 7), [1, 0, 2]),
        ([0.5, 0.5, 0.7], (1, 1, 2), [2, 0, 1]),
        ([0.1, 0.2, 0.3], (1, 2, 3), [2, 1, 0]),
    ],
)
def test_ties_go_to_fewer_parameters_then_to_the_lower_place(accuracies, sizes, order):
    assert ranked(dict(enumerate(accuracies)), sizes) == order


def test_spared_children_go_on_and_count():
    accuracies = {0: 0.1, 1: 0.9, 2: 0.8, 4: 0.7}
    sizes = (9, 5, 4, 1, 3)
    assert going_on(accuracies, Halving((1,), (2,), sizes), 2) == [1, 2]
    assert going_on(accuracies, Halving((1,), (2,), sizes, spared=(0,)), 2) == [0, 1]
    assert going_on(accuracies, Halving((1,), (2,), sizes, spared=(0, 3)), 2) == [0, 1], "3 has failed before"
    assert going_on(accuracies, Halving((1,), (1,), sizes, spared=(0, 4)), 1) == [0, 4]
    assert going_on(accuracies, Halving((1,), (9,), sizes), 9) == [0, 1, 2, 4]


@pytest.mark.parametrize(
    ("epochs", "count", "spared", "rungs", "keep"),
    [
        (4, 3, 0, (1,), (2,)),
        (4, 8, 0, (1, 2), (3, 2)),
        (15, 8, 1, (4, 8), (3, 2)),
        (20, 5, 0, (5,), (2,)),
        (20, 8, 3, (5,), (4,)),
        (20, 8, 6, (5,), (7,)),
        (100, 16, 0, (25, 50), (6, 4)),
    ],
)
def test_a_quarter_of_the_epochs_for_all_half_of_them_for_a_third(epochs, count, spared, rungs, keep):
    sizes = tuple(range(count))
    assert halving_for(epochs, count, sizes, range(spared)) == Halving(rungs, keep, sizes, tuple(range(spared)))


@pytest.mark.parametrize(("epochs", "count", "spared"), [(3, 8, 0), (20, 2, 0), (20, 3, 2), (20, 8, 7), (20, 8, 8)])
def test_nobody_is_stopped_where_little_is_known_or_nobody_may_be(epochs, count, spared):
    assert halving_for(epochs, count, range(count), range(spared)) is None


# -- rounds ----------------------------------------------------------------------------------------

WIDTHS = ((1, 0), (4, 2), (0, 0), (2, 4), (3, 1), (4, 4))
RECIPE = Recipe(learning_rate=0.02, batch_size=16, epochs=8, schedule="cosine")
READS = ((0,),) * 6
SIZES = (10, 60, 1, 50, 40, 90)
HALVING = Halving((2, 4), (4, 2), SIZES)


def a_network(module):
    made = ExpandableNetwork(trace(module))
    made.commit(made.grow([made.graph.widths], 3, seeds=[0]).growth(0))
    return made


@pytest.fixture(params=["mlp", "batch norm"])
def network(request):
    """A network with one task."""
    return a_network(mlp(72, [6, 5]) if request.param == "mlp" else small_cnn())


@pytest.fixture(scope="module")
def data():
    return task_to_device(hard_stream(3.0)[1], 1, "cpu")


def a_round(**changes):
    plain = Round("search", 1, 2, WIDTHS, tuple(range(6)), 0, (4, 4), RECIPE, READS, halving=HALVING)
    return replace(plain, **changes)


def facts(children):
    return [(child.fit, child.failure, child.rungs, child.stopped) for child in children]


def assert_same(one, other):
    assert repr(facts(one)) == repr(facts(other))  # NaN is not itself
    for left, right in zip(one, other, strict=True):
        assert left.growth.tensors.keys() == right.growth.tensors.keys()
        assert all(torch.equal(tensor, right.growth.tensors[name]) for name, tensor in left.growth.tensors.items())


def assert_alike(child, whole):
    assert child.growth.tensors.keys() == whole.growth.tensors.keys() != set()
    for name, tensor in whole.growth.tensors.items():
        torch.testing.assert_close(child.growth.tensors[name], tensor, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("patience", [0, 3])
def test_rungs_that_stop_nobody_change_no_bit(network, data, patience):
    recipe = replace(RECIPE, patience=patience)
    plain = LocalTrainer()(a_round(halving=None, recipe=recipe), network, data)
    rungs = LocalTrainer()(a_round(halving=Halving((2, 4), (6, 6), SIZES), recipe=recipe), network, data)
    assert [len(child.rungs) for child in plain + rungs] == [0] * 6 + [2] * 6
    assert_same(plain, [replace(child, rungs=()) for child in rungs])


@pytest.mark.parametrize("at_once", [None, 4, 2, 1])
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_the_best_of_the_whole_round_go_on_whatever_its_parts(network, data, at_once, optimiser):
    recipe = replace(RECIPE, optimiser=optimiser)
    whole = LocalTrainer()(a_round(halving=None, recipe=recipe), network, data)
    children = LocalTrainer()(a_round(recipe=recipe, children_at_once=at_once), network, data)
    left = list(range(6))
    for rung, keep in enumerate(HALVING.keep):
        assert [place for place, child in enumerate(children) if len(child.rungs) > rung] == left
        left = going_on({place: children[place].rungs[rung] for place in left}, HALVING, keep)
    assert [place for place, child in enumerate(children) if not child.stopped] == left
    for place, child in enumerate(children):
        assert child.failure == ""
        assert child.growth.widths == WIDTHS[place]
        epochs = 8 if place in left else HALVING.rungs[len(child.rungs) - 1]
        assert child.fit.epochs == epochs
        assert child.fit.effort.samples == whole[place].fit.effort.samples * epochs // 8
        if place in left:
            assert_alike(child, whole[place])
            assert child.fit.accuracy == pytest.approx(whole[place].fit.accuracy, abs=0.06)
        else:
            assert child.growth.tensors == {}
            assert math.isnan(child.fit.accuracy)
            assert math.isfinite(child.fit.loss)


def test_parts_take_turns(network, data):
    told = []
    LocalTrainer()(a_round(children_at_once=3), network, data, told.append)
    done = [(event.done, len(event.losses)) for event in told if isinstance(event, EpochDone)]
    assert done[:4] == [(1, 3), (2, 3), (1, 3), (2, 3)]
    assert sum(count for epoch, count in done if epoch in (3, 4)) == 2 * 4
    assert sum(count for epoch, count in done if epoch > 4) == 4 * 2
    assert {event.total for event in told if isinstance(event, EpochDone)} == {8}


def test_a_spared_child_is_trained_to_the_end(network, data):
    worst = LocalTrainer()(a_round(), network, data)
    stopped = next(place for place, child in enumerate(worst) if child.stopped)
    children = LocalTrainer()(a_round(halving=replace(HALVING, spared=(stopped,))), network, data)
    assert not children[stopped].stopped
    assert sum(not child.stopped for child in children) == 2


def test_with_patience_children_are_compared_by_their_best_epochs(network, data):
    recipe = replace(RECIPE, patience=1, learning_rate=0.05)
    whole = LocalTrainer()(a_round(halving=None, recipe=recipe), network, data)
    children = LocalTrainer()(a_round(recipe=recipe), network, data)
    for child, full in zip(children, whole, strict=True):
        assert list(child.rungs) == sorted(child.rungs)
        if not child.stopped:
            assert child.rungs[-1] <= child.fit.accuracy
            assert_alike(child, full)


def test_a_child_that_diverges_fails_and_another_takes_its_place(network, data, monkeypatch):
    grow = ExpandableNetwork.grow

    def poisoned(self, widths, *arguments, **options):
        children = grow(self, widths, *arguments, **options)
        with torch.no_grad():
            for at, z in enumerate(widths):
                if z == WIDTHS[1]:
                    children.parameters["head/weight"][at] = torch.nan
        return children

    monkeypatch.setattr(ExpandableNetwork, "grow", poisoned)
    children = LocalTrainer()(a_round(), network, data)
    assert [child.failure for child in children] == ["", NOT_FINITE, "", "", "", ""]
    assert (children[1].rungs, children[1].stopped, children[1].fit.epochs) == ((), False, 2)
    assert sorted(len(child.rungs) for child in children) == [0, 1, 2, 2, 2, 2]
    assert sum(math.isfinite(child.fit.accuracy) for child in children) == 2


@pytest.mark.parametrize("first_bad", [1, 3, 5])
def test_a_child_that_raises_fails_alone_and_the_others_end_where_they_would(network, data, monkeypatch, first_bad):
    """It raises before the first rung, between the rungs, or after them."""
    calm = LocalTrainer()(a_round(halving=None), network, data)
    best = next(place for place, child in enumerate(LocalTrainer()(a_round(), network, data)) if not child.stopped)
    make_epoch = Training._make_epoch

    def raising(self, step):
        if WIDTHS[best] in self.network.widths and self.epoch + 1 >= first_bad:
            raise ValueError("a bad day")
        make_epoch(self, step)

    monkeypatch.setattr(Training, "_make_epoch", raising)
    children = LocalTrainer()(a_round(), network, data)
    assert [child.failure for child in children if child.failure] == ["ValueError: a bad day"]
    assert children[best].failure
    assert len(children[best].rungs) == {1: 0, 3: 1, 5: 2}[first_bad]
    going = [place for place, child in enumerate(children) if math.isfinite(child.fit.accuracy)]
    assert len(going) == (1 if first_bad == 5 else 2)
    for place in going:
        assert_alike(children[place], calm[place])
        assert children[place].fit.effort.samples == calm[place].fit.effort.samples


def test_memory_that_runs_out_starts_the_round_again_in_smaller_parts(network, data, monkeypatch):
    calm, told, halved = LocalTrainer()(a_round(), network, data), [], []
    make_epoch = Training._make_epoch

    def short_of_memory(self, step):
        if self.network.count > 3:
            raise torch.OutOfMemoryError("no more")
        make_epoch(self, step)

    monkeypatch.setattr(Training, "_make_epoch", short_of_memory)
    children = LocalTrainer()(a_round(), network, data, told.append, halved.append)
    assert halved == [event.children_at_once for event in told if isinstance(event, OutOfMemory)] == [3]
    assert [child.stopped for child in children] == [child.stopped for child in calm]
    for child, other in zip(children, calm, strict=True):
        assert child.rungs == pytest.approx(other.rungs, abs=0.06)


def test_a_round_with_rungs_is_plain_data(data):
    network = a_network(mlp(72, [6, 5]))
    asked = a_round()
    sent = parse_value(Round, json.loads(json.dumps(to_plain(asked))), "round")
    assert sent == asked
    assert_same(LocalTrainer()(asked, network, data), LocalTrainer()(sent, network, data))


def test_rounds_of_one_trainer_do_not_disturb_each_other(network, data):
    trainer = LocalTrainer()
    first = trainer(a_round(), network, data)
    trainer(a_round(seeds=(9,) * 6), network, data)
    assert_same(trainer(a_round(), network, data), first)


def test_a_fit_knows_whether_its_child_was_stopped():
    assert RoundFit(math.nan, 1.0, 2, 10, 0.1, "", (0.5,)).stopped
    assert not RoundFit(0.5, 1.0, 2, 10, 0.1, "", (0.5,)).stopped
    assert not RoundFit(math.nan, 1.0, 2, 10, 0.1, "bad", (0.5,)).stopped
    assert not RoundFit(math.nan, 1.0, 2, 10, 0.1).stopped

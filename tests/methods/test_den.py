"""DEN: its five steps, one by one and together."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from method_examples import RECIPE, hard_stream, small_cnn, small_mlp
from torch import nn

from bocl.errors import ConfigError, NetworkError
from bocl.experiment.build import build_method, build_network, build_stream
from bocl.experiment.config import load_config
from bocl.methods import den
from bocl.methods.den import DEN, DENSettings, drift_of_units, furthest, pruned
from bocl.methods.saving import load
from bocl.methods.sparse_training import Penalties, train_part
from bocl.networks.architectures import resnet
from bocl.networks.compact import assemble
from bocl.networks.growth import Growth
from bocl.networks.sparse import Masks, masks_of_new, masks_within, reached_units, shrink_units, soft_threshold
from bocl.networks.stamped import duplicated, trainable
from bocl.networks.trace import trace
from bocl.records.events import RoundStarted, ignore_events
from bocl.training.batches import Batch, task_to_device
from bocl.training.recipe import Recipe
from bocl.training.steps import batch_losses

OPTIONS = {"recipe": RECIPE, "seed": 0, "device": "cpu"}
INPUTS = [torch.randn(size, 2, 6, 6, generator=torch.Generator().manual_seed(size)) for size in (1, 7, 128)]
FAR = 1e6  # no unit drifts so far, no loss is so large


def make(network: Callable[[], nn.Module] = small_mlp, **settings: object) -> DEN:
    return DEN(network(), settings=DENSettings(**settings), **OPTIONS)


def learn(learner: DEN, tasks: int, first: int = 0) -> list[den.Learned]:
    return [learner.learn(hard_stream()[index]) for index in range(first, tasks)]


def grown(network: Callable[[], nn.Module]) -> tuple[DEN, dict[str, torch.Tensor], tuple[int, ...]]:
    """Return a learner of one task, and the tensors of a second task that has begun with two more units a group."""
    learner = make(network)
    learn(learner, 1)
    before = learner.network.widths(0)
    tensors = den.widened(
        learner.graph, learner.network.start(3, seed=5), before, (2,) * len(before), 3, seed=6, device="cpu"
    )
    return learner, tensors, before


def logits(learner: DEN, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    widths = tuple(len(tensors[f"layer/{group.name}/rows"]) for group in learner.graph.groups)
    return assemble(learner.graph, None, Growth(widths, 3, tensors))(INPUTS[2])


# -- sparse first task ------------------------------------------------------------------------------


OPTIMISERS = {
    "sgd": Recipe("sgd", 0.3, momentum=0.9, weight_decay=0.0, batch_size=26, epochs=300),
    "adam": Recipe("adam", 0.1, weight_decay=0.0, batch_size=26, epochs=400, schedule="cosine"),
}


def train_some(learner: DEN, tensors: dict[str, torch.Tensor], recipe: Recipe, masks: Masks, penalties: Penalties):
    """Train what is masked on all samples of the first task at once; return the tensors after it."""
    data, widths = task_to_device(hard_stream()[0], 0, "cpu"), learner.graph.widths
    assert len(data.train) == 26
    options = {"step": "", "seed": 0, "callback": ignore_events}
    return train_part(learner.graph, tensors, widths, data, recipe, masks, penalties, **options)[0]


@pytest.mark.parametrize("recipe", OPTIMISERS.values(), ids=OPTIMISERS)
def test_l1_is_a_coefficient_of_the_loss_whatever_the_optimiser(recipe):
    """At the end of training no weight has a way down: 0 is a subgradient of L + μ‖W‖₁."""
    learner, l1 = make(), 0.02
    tensors = learner.network.start(3, seed=1)
    head = den._all_of(tensors, "head/")
    trained = train_some(learner, tensors, recipe, head, Penalties(l1=l1))
    network = trainable(learner.graph, trained, learner.graph.widths, "cpu")
    batch_losses(
        network, task_to_device(hard_stream()[0], 0, "cpu"), Batch(torch.arange(26)), "float32"
    ).sum().backward()
    weight, slope = trained["head/weight"], network.parameters["head/weight"].grad[0]
    assert (weight == 0).sum() > 5
    torch.testing.assert_close(slope[weight != 0], -l1 * weight[weight != 0].sign(), rtol=0, atol=0.05 * l1)
    assert slope[weight == 0].abs().max() <= l1
    assert network.parameters["head/bias"].grad.abs().max() < 0.05 * l1  # it has no penalty


@pytest.mark.parametrize("network", [small_mlp, small_cnn])
def test_a_step_solves_for_all_penalties_of_what_is_new(network):
    learner = make(network)
    graph, start, first = learner.graph, learner.network.start(3, seed=1), (2, 3)
    masks = masks_of_new(graph, start, first)
    recipe = Recipe("sgd", 0.05, momentum=0.0, weight_decay=0.0, batch_size=26, epochs=1)
    stepped = train_some(learner, start, recipe, masks, Penalties())
    expected = {name: tensor.clone() for name, tensor in stepped.items()}
    for name, mask in masks.items():
        if name.endswith("/rows") or name == "head/weight":
            expected[name] = torch.where(mask, soft_threshold(expected[name], 0.05 * 0.3), expected[name])
    steps = {name: torch.full_like(tensor, 0.05) for name, tensor in expected.items()}
    shrink_units(graph, expected, steps, first, 0.7)
    found = train_some(learner, start, recipe, masks, Penalties(l1=0.3, group_lasso=0.7, grouped_after=first))
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor)
    assert not torch.equal(found[f"layer/{graph.layers[0].name}/rows"], stepped[f"layer/{graph.layers[0].name}/rows"])


def test_l1_makes_zeros():
    zeros = []
    for l1 in (0.0, 0.01):
        learner = make(l1=l1)
        learn(learner, 1)
        zeros.append(sum(int((tensor == 0).sum()) for tensor in learner.network.layers.values()))
    assert zeros[0] == 0
    assert zeros[1] > 50


# -- selection and retraining -----------------------------------------------------------------------


@pytest.mark.parametrize("network", [small_mlp, small_cnn])
def test_only_the_reached_sub_network_moves(network):
    learner = make(network)
    learn(learner, 1)
    graph, tensors = learner.graph, learner.network.start(2, seed=1)
    last = graph.layers[-1].name
    tensors["head/weight"][:, 2:] = 0
    tensors[f"layer/{last}/rows"][:, ::2] = 0
    masks = masks_within(graph, tensors, reached_units(graph, tensors))
    data = task_to_device(hard_stream()[1], 1, "cpu")
    recipe = replace(RECIPE, weight_decay=0.0)
    widths = learner.network.widths(0)
    for penalties in (Penalties(l2=1e-4, anchor=0.5, anchored=tensors), Penalties(l1=1e-4)):
        trained, _ = train_part(
            graph, tensors, widths, data, recipe, masks, penalties, step="x", seed=0, callback=ignore_events
        )
        for name, mask in masks.items():
            moved = trained[name] != tensors[name]
            outside = ~mask.expand(moved.shape)
            assert not (moved & outside).any(), name
            assert moved.any() or not mask.any(), name
        assert (trained[f"layer/{last}/rows"] != tensors[f"layer/{last}/rows"]).any(1).sum() <= 2


def test_an_anchor_holds():
    moved = []
    for anchor in (0.0, 100.0):
        learner = make(anchor=anchor, drift=FAR, loss=FAR)
        learn(learner, 1)
        before = {name: tensor.clone() for name, tensor in learner.network.layers.items()}
        learn(learner, 2, first=1)
        moved.append(sum((tensor - before[name]).norm() for name, tensor in learner.network.layers.items()))
    assert moved[1] < moved[0] / 3


def test_what_is_retrained_decays():
    learner = make()
    learn(learner, 1)
    graph, tensors, widths = learner.graph, learner.network.start(2, seed=1), learner.network.widths(0)
    data = task_to_device(hard_stream()[1], 1, "cpu")
    recipe = replace(RECIPE, optimiser="sgd", momentum=0.0, learning_rate=1e-4, batch_size=26, epochs=1, weight_decay=0)
    masks = masks_within(graph, tensors, [torch.ones(width) > 0 for width in widths])
    plain, decayed = (
        train_part(
            graph,
            tensors,
            widths,
            data,
            recipe,
            masks,
            Penalties(l2=l2),
            step="x",
            seed=0,
            callback=ignore_events,
        )[0]
        for l2 in (0.0, 50.0)
    )
    for name in tensors:
        expected = plain[name] / (1 + 1e-4 * 50.0) if not name.endswith(("/mean", "/var")) else plain[name]
        torch.testing.assert_close(decayed[name], expected)


def test_the_selection_trains_the_head_alone(monkeypatch):
    steps = []
    original = DEN._train

    def watch(self, draft, data, masks, penalties, step, callback):
        before = dict(draft.tensors)
        loss = original(self, draft, data, masks, penalties, step, callback)
        moved = {key for key in before if not torch.equal(before[key], draft.tensors[key]) and "norm/" not in key}
        steps.append((step, moved))
        return loss

    monkeypatch.setattr(DEN, "_train", watch)
    names = ("conv", "norm", "relu", "pool", "flatten", "overhead", "act", "out")  # one ends in "head", and is none
    learn(make(lambda: nn.Sequential(OrderedDict(zip(names, small_cnn(), strict=True)))), 2)
    assert [step for step, _ in steps] == ["base", "selection", "retraining", "expansion", "duplication"]
    assert steps[1][1] == {"head/weight", "head/bias"}
    assert {"layer/conv/rows", "layer/overhead/rows"} <= steps[2][1]


def test_sparse_weights_leave_a_part_of_the_network_unselected():
    config = load_config("digits", ["method=den", "den.l1=1e-3", "den.loss=1e6", "den.drift=1e6", "recipe.epochs=8"])
    learner, stream = build_method(config, build_network(config.network), "cpu"), build_stream(config)
    first, second = (learner.learn(stream[index]) for index in range(2))
    assert first.units == {}
    assert first.validation_accuracy > 0.9
    assert all(0 < units < width for units, width in zip(second.units["selected"], first.widths, strict=True))


def test_every_step_is_told_by_its_name():
    told = []
    learner = make()
    for index in range(2):
        learner.learn(hard_stream()[index], lambda event: told.append(event))
    purposes = [event.purpose for event in told if isinstance(event, RoundStarted)]
    assert purposes == ["base", "selection", "retraining", "expansion", "duplication"]


# -- expansion and pruning --------------------------------------------------------------------------


def test_a_small_loss_needs_no_expansion():
    assert learn(make(loss=FAR, drift=FAR), 2)[1].widths == (0, 0)
    assert learn(make(loss=0.0, drift=FAR, expansion=3, l1=0.0, group_lasso=0.0), 2)[1].widths == (3, 3)
    assert learn(make(loss=0.0, drift=FAR, expansion=(2, 0), l1=0.0, group_lasso=0.0), 2)[1].widths == (2, 0)


@pytest.mark.parametrize("network", [small_mlp, small_cnn])
def test_new_units_stand_beside_what_is_known(network):
    learner, tensors, before = grown(network)
    start = learner.network.start(3, seed=5)
    wider = tuple(width + 2 for width in before)
    again = den.widened(learner.graph, tensors, wider, (1,) * len(before), 3, seed=7, device="cpu")
    for known, now in ((start, tensors), (tensors, again)):
        for name, tensor in known.items():
            assert torch.equal(now[name][tuple(map(slice, tensor.shape))], tensor), name
            assert now[name].shape != tensor.shape or name == "head/bias"


def test_a_strong_group_lasso_leaves_no_new_unit():
    learner = make(small_cnn, group_lasso=10.0, drift=FAR)
    learned = learn(learner, 3)
    assert [entry.widths for entry in learned] == [(4, 5), (0, 0), (0, 0)]
    assert learner.network.layers["layer/5/rows"].shape == (5, 36)
    assert learner.network.own[2]["norm/1/weight"].shape == (4,)


@pytest.mark.parametrize("network", [small_mlp, small_cnn])
def test_units_that_are_all_zero_are_really_removed(network):
    learner, tensors, before = grown(network)
    first = learner.graph.layers[0].name
    dead = before[0] + 1  # the second of the new units
    for name in (f"layer/{first}/rows", f"layer/{first}/bias", *(f"norm/1/{part}" for part in ("weight", "bias"))):
        if name in tensors:
            tensors[name][dead] = 0
            tensors[name][1] = 0  # an old unit, which stays
    kept = pruned(learner.graph, tensors, before)
    assert len(kept[f"layer/{first}/rows"]) == before[0] + 1
    second = learner.graph.layers[1]
    assert kept[f"layer/{second.name}/rows"].shape == (before[1] + 2, (before[0] + 1) * second.source.spread)
    torch.testing.assert_close(logits(learner, kept), logits(learner, tensors), rtol=1e-5, atol=1e-6)
    again = pruned(learner.graph, kept, before)
    assert all(torch.equal(again[name], kept[name]) for name in kept)


@pytest.mark.parametrize("network", [small_mlp, small_cnn])
def test_new_units_that_the_head_does_not_reach_are_removed(network):
    learner, tensors, before = grown(network)
    second = learner.graph.layers[1]
    unread = before[0] * second.source.spread  # where the columns of the new units begin
    tensors[f"layer/{second.name}/rows"][:, unread:] = 0
    tensors[f"layer/{second.name}/rows"][:, :4] = 0  # old units, which stay
    kept = pruned(learner.graph, tensors, before)
    assert len(kept[f"layer/{learner.graph.layers[0].name}/rows"]) == before[0]
    assert len(kept[f"layer/{second.name}/rows"]) == before[1] + 2
    torch.testing.assert_close(logits(learner, kept), logits(learner, tensors), rtol=1e-5, atol=1e-6)


# -- duplication ------------------------------------------------------------------------------------


def drift(tensors: dict[str, torch.Tensor], name: str, unit: int, by: float) -> None:
    """Move the incoming weights of a unit by a vector of this length."""
    row = tensors[f"layer/{name}/rows"][unit]
    row += by / row.numel() ** 0.5


def drifted_units(graph, tensors, old, most) -> list[torch.Tensor]:
    return [(moved > most).nonzero().squeeze(1) for moved in drift_of_units(graph, tensors, old)]


@pytest.mark.parametrize("network", [small_mlp, small_cnn])
def test_a_unit_that_drifted_is_copied_and_the_original_restored(network):
    learner, tensors, before = grown(network)
    graph, old = learner.graph, learner.network.layers
    names = [layer.name for layer in graph.layers]
    drift(tensors, names[0], 2, 0.06)
    drift(tensors, names[0], 3, 0.04)
    drift(tensors, names[1], 1, 0.2)
    # The columns that the new units bring are no drift.
    assert [units.tolist() for units in drifted_units(graph, tensors, old, 0.05)] == [[2], [1]]
    split = duplicated(graph, tensors, old, before, drifted_units(graph, tensors, old, 0.05))
    for layer in graph.layers:
        corner = tuple(map(slice, old[f"layer/{layer.name}/rows"].shape))
        now, was = split[f"layer/{layer.name}/rows"][corner], old[f"layer/{layer.name}/rows"]
        for unit in range(len(was)):
            restored = torch.equal(now[unit], was[unit])
            assert restored == ((layer.name, unit) != (names[0], 3)), (layer.name, unit)
        assert len(split[f"layer/{layer.name}/rows"]) == len(tensors[f"layer/{layer.name}/rows"]) + 1
    reader, spread = split[f"layer/{names[1]}/rows"][0], graph.layers[1].source.spread  # old, and not copied itself
    assert not reader[-spread:].any()  # it does not read the copy yet
    assert torch.equal(reader[:-spread], tensors[f"layer/{names[1]}/rows"][0])
    assert torch.equal(split[f"layer/{names[0]}/rows"][-1], tensors[f"layer/{names[0]}/rows"][2])
    assert torch.equal(split[f"layer/{names[0]}/bias"][-1], tensors[f"layer/{names[0]}/bias"][2])


def test_of_the_units_that_drifted_those_that_drifted_furthest_are_copied_as_long_as_they_fit():
    drift = [torch.tensor([0.3, 0.9, 0.1]), torch.tensor([0.5, 0.7])]
    among = [torch.tensor([True, True, True]), torch.tensor([True, False])]

    def chosen(most: int) -> list[list[bool]]:
        return [units.tolist() for units in furthest(drift, among, lambda more: sum(more) <= most)]

    assert chosen(9) == [unit.tolist() for unit in among]
    assert chosen(3) == [[True, True, False], [True, False]]
    assert chosen(1) == [[False, True, False], [False, False]]
    assert chosen(0) == chosen(-1) == [[False] * 3, [False] * 2]
    assert furthest([torch.zeros(0)], [torch.zeros(0, dtype=torch.bool)], lambda _: True)[0].tolist() == []


@pytest.mark.parametrize("network", [small_mlp, small_cnn])
def test_a_budget_is_kept_and_what_fits_in_it_is_as_without(network):
    options = {"drift": 0.01, "anchor": 0.0, "loss": 0.0, "expansion": 2, "group_lasso": 0.0, "l1": 0.0}
    free = make(network, **options)
    grew, sizes = [], []
    for index in range(3):
        grew += learn(free, index + 1, first=index)
        sizes.append(sum(free.parameters().values()))
    budget = (sizes[0] + sizes[1]) // 2
    bound, loose = make(network, **options, budget=budget), make(network, **options, budget=sizes[2])
    learned = learn(bound, 3)
    later_heads = sum(tensor.numel() for own in bound.network.own[1:] for tensor in own.values())
    assert sizes[0] < sum(bound.parameters().values()) <= budget + later_heads
    assert 0 < sum(learned[1].widths) < sum(grew[1].widths)
    learn(loose, 3)
    for name, tensor in free.state().tensors.items():
        assert torch.equal(loose.state().tensors[name], tensor), name


@pytest.mark.parametrize("network", [small_mlp, small_cnn])
def test_copies_do_for_the_new_task_what_the_originals_did(network):
    learner, tensors, before = grown(network)
    everything = [torch.arange(width) for width in before]
    for layer in learner.graph.layers:
        for name in (f"layer/{layer.name}/rows", f"layer/{layer.name}/bias"):
            tensors[name] += 0.1
    split = duplicated(learner.graph, tensors, learner.network.layers, before, everything)
    torch.testing.assert_close(logits(learner, split), logits(learner, tensors), rtol=1e-5, atol=1e-5)


def test_copies_whose_originals_are_read_by_old_units_alone_are_kept_and_come_to_be_read():
    learner = make(anchor=5.0, drift=0.05, expansion=0)
    learned = learn(learner, 2)[1]
    assert learned.widths == learned.units["copied"]
    assert learned.widths[0] > 0 == learned.widths[1]
    assert learner.network.layers["layer/fc2/rows"][:, 6:].any(0).all()


def test_units_that_drifted_out_of_use_are_restored_and_not_copied():
    learner = make(drift=0.0, l1=0.05)
    learn(learner, 1)
    before = {name: tensor.clone() for name, tensor in learner.network.layers.items()}
    units = learn(learner, 2, first=1)[0].units
    assert not any(len(drifted) for drifted in drifted_units(learner.graph, learner.network.layers, before, 0.0))
    kept = list(zip(units["copied"], units["selected"], strict=True))  # all that is selected drifts further than 0
    assert all(copied <= selected for copied, selected in kept)
    assert any(0 < copied < selected for copied, selected in kept)


@pytest.mark.parametrize("network", [small_mlp, small_cnn])
def test_without_leave_to_drift_old_tasks_keep_their_bits(network):
    learner = make(network, drift=0.0)
    said = []
    for index in range(4):
        learner.learn(hard_stream()[index])
        said.append([learner.predict(x, index) for x in INPUTS])
        for task in range(index + 1):
            for x, before in zip(INPUTS, said[task], strict=True):
                assert torch.equal(learner.predict(x, task), before), (index, task)


def test_with_leave_to_drift_old_tasks_change_and_nothing_is_copied():
    learner = make(drift=FAR, expansion=1, group_lasso=0.0)
    learn(learner, 1)
    before = learner.predict(INPUTS[1], 0)
    assert learn(learner, 2, first=1)[0].widths == (1, 1)
    assert not torch.equal(learner.predict(INPUTS[1], 0), before)
    assert DEN.forgets


def test_no_old_unit_drifts_further_than_it_may():
    learner = make(small_cnn, drift=0.05)
    learn(learner, 1)
    for index in (1, 2):
        before = {name: tensor.clone() for name, tensor in learner.network.layers.items()}
        learner.learn(hard_stream()[index])
        assert not any(len(units) for units in drifted_units(learner.graph, learner.network.layers, before, 0.05))


# -- stamps -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", [small_mlp, small_cnn])
def test_old_tasks_ignore_later_units(network):
    learner = make(network)
    learn(learner, 3)
    graph, stamped = learner.graph, learner.network
    assert all(all(units) for units in stamped.added)
    for task in range(3):
        said = [learner.predict(x, task) for x in INPUTS]
        widths, changed = stamped.widths(task), {}
        for layer in graph.layers:
            name, bias = f"layer/{layer.name}/rows", f"layer/{layer.name}/bias"
            seen = (slice(widths[layer.group]), slice(layer.source.size(widths)))
            changed[name] = torch.full_like(stamped.layers[name], 1e3)
            changed[name][seen] = stamped.layers[name][seen]
            changed[bias] = torch.full_like(stamped.layers[bias], 1e3)
            changed[bias][seen[0]] = stamped.layers[bias][seen[0]]
        other = make(network)
        other.restore(learner.state())
        other.network.restore(stamped.stored()[0], {**learner.state().tensors, **changed}, [3, 2, 4])
        for x, before in zip(INPUTS, said, strict=True):
            assert torch.equal(other.predict(x, task), before)
        if task < 2:
            assert not torch.equal(other.predict(INPUTS[1], 2), learner.predict(INPUTS[1], 2))


# -- as a method ------------------------------------------------------------------------------------


def test_saved_stamps_that_make_no_sense_are_refused(tmp_path):
    learner = make(small_cnn)
    learn(learner, 2)
    learner.save(tmp_path / "model")
    assert load(tmp_path / "model", device="cpu").network.added == learner.network.added
    for wrong, message in (
        ([], "not one for each of the 2 tasks"),
        ([[4, 5]], "not one for each of the 2 tasks"),
        ([[4, 4], [1, 1]], r"facts.units\[0\] is \(4, 4\)"),
        ([[4, 5], [1]], "one number of 0 or more"),
        ([[4, 5], [-1, 2]], "one number of 0 or more"),
    ):
        with pytest.raises(NetworkError, match=message):
            learner.network.stored_shapes({"units": wrong}, [3, 2])


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (resnet(2, (3,), 1, 3), r"'add' computes with two values"),
        (nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(64, 3)), "'1' is a GroupNorm"),
        (nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), nn.Linear(4, 3)), "'1' is a sigmoid"),
        (
            nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False), nn.ReLU(), nn.Linear(4, 3)),
            "'1' is a norm without scale",
        ),
    ],
    ids=["residual", "group norm", "sigmoid", "no scale"],
)
def test_networks_whose_units_do_not_stand_alone_are_refused(module, message):
    with pytest.raises(NetworkError, match=message):
        DEN(module, **OPTIONS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"l1": -1}, r"den\.l1 is -1; it must be at least 0"),
        ({"group_lasso": "a"}, r"den\.group_lasso is 'a'"),
        ({"expansion": -1}, r"den\.expansion is -1"),
        ({"expansion": 1.5}, r"den\.expansion is 1\.5"),
        ({"drift": float("inf"), "loss": None}, r"den\.loss is None.*den\.drift is inf"),
    ],
)
def test_settings_that_cannot_be_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        DENSettings(**options)


def test_a_config_names_it():
    config = load_config("digits", ["method=den", "den.drift=0.5", "den.expansion=[4, 2]"])
    learner = build_method(config, build_network(config.network), "cpu")
    assert isinstance(learner, DEN)
    assert learner.settings == DENSettings(drift=0.5, expansion=(4, 2))
    with pytest.raises(ConfigError, match=r"den\.expansion has 3 entries"):
        DEN(small_mlp(), settings=DENSettings(expansion=(1, 2, 3)), **OPTIONS)


def test_deep_networks_without_biases_work():
    layers = [nn.Flatten(), nn.Linear(72, 5, bias=False), nn.Tanh(), nn.Linear(5, 4), nn.Dropout(0.1)]
    layers += [nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3, bias=False)]
    learner = make(lambda: nn.Sequential(*layers))
    learned = learn(learner, 3)
    assert all(entry.validation_accuracy > 0.3 for entry in learned)
    assert trace(nn.Sequential(*layers)) == learner.graph

"""RCL: BOCL's growth without attention, at one price for all layers, proposed by a controller; it forgets nothing."""

from __future__ import annotations

import math

import pytest
import torch
from method_examples import RECIPE, hard_stream, small_cnn, small_mlp

from bocl.errors import ConfigError
from bocl.methods.rcl import RCL, RCLSettings
from bocl.methods.reward import RewardSettings
from bocl.methods.saving import load
from bocl.networks.growth import GrowthSettings
from bocl.records.events import RoundStarted
from bocl.search.settings import SearchSettings

SEARCH = SearchSettings(bounds=3)
OPTIONS = {"settings": RCLSettings(trials=6), "search": SEARCH, "recipe": RECIPE, "device": "cpu"}
INPUTS = [torch.randn(size, 2, 6, 6, generator=torch.Generator().manual_seed(size)) for size in (1, 7, 128)]


@pytest.mark.parametrize("wiring", ["full", "lean", "forward"])
@pytest.mark.parametrize("network", [small_mlp, small_cnn])
def test_logits_of_old_tasks_keep_their_bits(network, wiring, tmp_path):
    learner, stream = RCL(network(), growth=GrowthSettings(wiring=wiring), **OPTIONS), hard_stream()
    said = []
    for index in range(4):
        if index == 3:
            learner.save(tmp_path / "model")
            learner = load(tmp_path / "model", device="cpu")
            assert isinstance(learner, RCL)
        learned = learner.learn(stream[index])
        assert index == 0 or len(learned.trials) == 1 + 6
        for task, logits in enumerate(said):
            assert all(torch.equal(learner.predict(x, task), y) for x, y in zip(INPUTS, logits, strict=True))
        said.append([learner.predict(x, index) for x in INPUTS])
    assert any(sum(growth.widths) for growth in learner.network.growths[1:])


def test_it_has_no_attention_and_one_price_for_all_layers():
    learner, stream = RCL(small_mlp(), reward=RewardSettings(0.02), **OPTIONS), hard_stream(2.0)
    learned = [learner.learn(stream[index]) for index in range(2)]
    assert learner.parameters()["attention"] == 0
    for trial in learned[1].trials:
        assert trial.reward == pytest.approx(trial.accuracy - 0.02 * sum(trial.widths) / 2, abs=1e-12)


def test_no_network_is_trained_for_a_difficulty():
    learner, stream, rounds = RCL(small_mlp(), **OPTIONS), hard_stream(), []
    one = learner.learn(stream[0]).effort.samples  # tasks are alike in size
    learned = learner.learn(stream[1], lambda event: rounds.append(event) if isinstance(event, RoundStarted) else None)
    assert math.isnan(learned.difficulty)
    assert learner.history == []
    assert all(learner.graph.widths not in event.widths for event in rounds)
    assert learned.effort.samples == one * len(learned.trials)


@pytest.mark.parametrize(("controller", "sizes"), [("as-released", {1}), ("tuned", {5, 2})])
def test_a_round_is_one_child_as_released_and_four_tuned_with_z_0_among_the_first(controller, sizes):
    settings = RCLSettings(controller, trials=6)
    learner, stream, found = RCL(small_mlp(), **OPTIONS | {"settings": settings}), hard_stream(), set()

    def callback(event):
        if isinstance(event, RoundStarted) and event.purpose == "search":
            found.add(len(event.widths))

    for index in range(2):
        learner.learn(stream[index], callback)
    assert found == sizes


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: RCLSettings("tund"), r"rcl\.controller is 'tund'; it must be 'tuned' or 'as-released'"),
        (lambda: RCLSettings(trials=0), r"rcl\.trials is 0; it must be at least 1"),
        (lambda: RCL(small_mlp(), search=SearchSettings(bounds=(1, 2, 3))), r"search\.bounds has 3 entries"),
        (lambda: RCL(small_mlp(), settings=SEARCH), r"settings is SearchSettings\(.*; it must be a RCLSettings"),
        (lambda: RCL(small_mlp(), growth=None), r"growth is None; it must be a GrowthSettings"),
    ],
)
def test_wrong_settings_are_refused(wrong, message):
    with pytest.raises(ConfigError, match=message):
        wrong()


def test_its_settings_are_saved(tmp_path):
    learner = RCL(
        small_mlp(),
        settings=RCLSettings("as-released", 6),
        growth=GrowthSettings(wiring="forward"),
        reward=RewardSettings(0.01),
        search=SearchSettings(bounds=3, memory_gb=2, children_at_once=3),
        recipe=RECIPE,
        device="cpu",
    )
    learner.learn(hard_stream()[0])
    learner.save(tmp_path / "model")
    loaded = load(tmp_path / "model", device="cpu")
    assert (loaded.search, loaded.growth, loaded.reward) == (learner.search, learner.growth, learner.reward)
    assert loaded.settings == learner.settings

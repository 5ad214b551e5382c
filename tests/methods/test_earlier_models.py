"""Models of format 1, kept for ever: later versions go on reading them, and they go on learning."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from method_examples import hard_stream

from bocl.methods.fixed import FixedSettings
from bocl.methods.rcl import RCLSettings
from bocl.methods.saving import load
from bocl.methods.sn import SNSettings
from paper_settings import PAPER_GROWTH

OLD = Path(__file__).parents[1] / "fixtures" / "models-format-1"
INPUTS = torch.linspace(-1, 1, 72).view(1, 2, 6, 6)
LOGITS = {  # of the first task, as the version that saved them printed them
    "sn": [0.083031, 0.281955, -0.368073],
    "fixed": [0.050805, 0.291647, -0.373764],
    "rcl": [0.050805, 0.291647, -0.373764],
    "bocl": [0.050805, 0.291647, -0.373764],
}


@pytest.mark.parametrize("method", LOGITS)
def test_it_predicts_as_it_did_and_goes_on_learning(method, tmp_path):
    learner = load(OLD / method, device="cpu")
    assert learner.predict(INPUTS, 0)[0].tolist() == pytest.approx(LOGITS[method], abs=1e-5)
    learner.save(tmp_path / "model")
    again = load(tmp_path / "model", device="cpu")
    third = hard_stream()[2]
    assert repr(again.learn(third)) == repr(learner.learn(third))


@pytest.mark.parametrize("method", ["fixed", "bocl"])
def test_it_grew_as_was_done_before_there_was_a_choice(method):
    learner = load(OLD / method, device="cpu")
    assert learner.growth == PAPER_GROWTH
    assert [growth.reads for growth in learner.network.growths] == [(), (0,)]
    if method == "bocl":
        assert not learner.search.halving
        assert learner.reward.alpha == 0.005
        assert {trial.reads for task in learner.history for trial in task.trials} == {"all"}
        learned = learner.learn(hard_stream()[2])
        assert (learned.reads, learned.limit) != (None, "")
        assert learned.reads == (0, 1)


def test_its_settings_are_in_the_places_of_today():
    assert load(OLD / "sn", device="cpu").settings == SNSettings(shared_head=False)
    assert load(OLD / "fixed", device="cpu").settings == FixedSettings((1, 2), children=2)
    rcl = load(OLD / "rcl", device="cpu")
    assert rcl.settings == RCLSettings("as-released", 2)
    assert (rcl.search.bounds, rcl.search.memory_gb) == (2, 2.0)
    assert (rcl.growth.wiring, rcl.reward.alpha) == ("forward", 0.02)
    bocl = load(OLD / "bocl", device="cpu")
    assert [task.best for task in bocl.prior_trials] == [(1, 0)]

"""SupSup: random signed constants that no task changes, and a mask for each."""

from __future__ import annotations

import torch
from method_examples import RECIPE, hard_stream, small_cnn

from bocl.methods.saving import load
from bocl.methods.supsup import SupSup


def test_weights_are_constants_with_a_sign_each():
    learner = SupSup(small_cnn(), recipe=RECIPE, seed=0, device="cpu")
    fans = {"0": 18, "5": 36}
    for index in range(3):
        learner.learn(hard_stream()[index])
        for name, weight in learner.network.weights.items():
            assert torch.equal(weight.abs(), torch.full_like(weight, (2 / fans[name]) ** 0.5))
            assert 0.2 < (weight > 0).float().mean() < 0.8
    assert not any("values" in name for name in learner.state().tensors), "no weight is kept as a number"
    assert [name for name in learner.state().tensors if name.endswith("/signs")] == ["0/bits/0/signs", "0/bits/5/signs"]


def test_a_saved_model_has_its_constants_to_the_bit_whatever_a_seed_draws(tmp_path, monkeypatch):
    learner = SupSup(small_cnn(), recipe=RECIPE, seed=0, device="cpu")
    learner.learn(hard_stream()[0])
    learner.save(tmp_path / "model")
    monkeypatch.setattr(torch, "rand", None)  # another version of PyTorch may draw other signs
    loaded = load(tmp_path / "model", device="cpu")
    for name, weight in learner.network.weights.items():
        assert torch.equal(loaded.network.weights[name], weight)
    loaded.learn(hard_stream()[1])
    assert torch.equal(loaded.network.weights["0"], learner.network.weights["0"])


def test_another_seed_draws_other_signs():
    one, other = (
        SupSup(small_cnn(), recipe=RECIPE, seed=seed, device="cpu").network.constants(seed=seed) for seed in (0, 1)
    )
    assert not torch.equal(one["5"], other["5"])

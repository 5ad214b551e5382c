"""PGN: a column per task, at the width that was set."""

from __future__ import annotations

import pytest
import torch
from method_examples import RECIPE, hard_stream, small_cnn, small_mlp

from bocl.errors import ConfigError
from bocl.experiment.build import build_method, build_network
from bocl.experiment.config import load_config
from bocl.methods.pgn import PGN, PGNSettings
from bocl.methods.saving import load

OPTIONS = {"recipe": RECIPE, "seed": 0, "device": "cpu"}
INPUTS = [torch.randn(size, 2, 6, 6, generator=torch.Generator().manual_seed(size)) for size in (1, 7, 128)]


@pytest.mark.parametrize("network", [small_mlp, small_cnn])
def test_old_tasks_say_the_same_bits_for_ever(network):
    learner = PGN(network(), settings=PGNSettings(width=0.5, adapter=0.5), **OPTIONS)
    said = []
    for index in range(4):
        learner.learn(hard_stream()[index])
        said.append([learner.predict(x, index) for x in INPUTS])
        for task in range(index + 1):
            for x, before in zip(INPUTS, said[task], strict=True):
                assert torch.equal(learner.predict(x, task), before)
    assert not PGN.forgets


def test_every_column_has_the_width_that_was_set():
    learner = PGN(small_cnn(), settings=PGNSettings(width=(0.5, 2.0)), **OPTIONS)
    learned = [learner.learn(hard_stream()[index]) for index in range(3)]
    assert [entry.widths for entry in learned] == [(2, 10)] * 3
    full = PGN(small_cnn(), **OPTIONS)
    narrow = PGN(small_cnn(), settings=PGNSettings(width=0.5, adapter=0.5), **OPTIONS)
    for index in range(2):
        assert narrow.learn(hard_stream()[index]).added_parameters < full.learn(hard_stream()[index]).added_parameters


def test_a_narrow_network_is_saved_and_loaded(tmp_path):
    learner = PGN(small_cnn(), settings=PGNSettings(width=0.5, adapter=0.25), **OPTIONS)
    for index in range(2):
        learner.learn(hard_stream()[index])
    learner.save(tmp_path / "model")
    loaded = load(tmp_path / "model", device="cpu")
    assert loaded.settings == learner.settings
    for task in range(2):
        for x in INPUTS:
            assert torch.equal(loaded.predict(x, task), learner.predict(x, task))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, r"pgn\.width is 0; it must be above 0"),
        ({"width": (0.5, -1)}, r"pgn\.width\[1\] is -1"),
        ({"width": ()}, r"pgn\.width is .*; it must be a finite number or a list with 1 or more entries"),
        ({"width": "half"}, r"pgn\.width is 'half'"),
        ({"adapter": 0}, r"pgn\.adapter is 0"),
        ({"adapter": None}, r"pgn\.adapter is None"),
        ({"width": 101, "adapter": 1e9}, r"pgn\.width is 101.*pgn\.adapter is 1000000000"),
    ],
)
def test_settings_that_cannot_be_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        PGNSettings(**options)


def test_a_width_for_another_number_of_groups_is_refused():
    with pytest.raises(ConfigError, match=r"pgn\.width has 1 entry \(0\.5,\), but the network has 2 hidden groups"):
        PGN(small_cnn(), settings=PGNSettings(width=(0.5,)), **OPTIONS)
    with pytest.raises(ConfigError, match="settings is None; it must be a PGNSettings"):
        PGN(small_cnn(), settings=None, **OPTIONS)


def test_a_config_names_it():
    config = load_config("digits", ["method=pgn", "pgn.width=[0.5, 0.25]", "pgn.adapter=0.5"])
    learner = build_method(config, build_network(config.network), "cpu")
    assert isinstance(learner, PGN)
    assert learner.network.graph.widths == (24, 6)

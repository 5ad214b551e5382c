"""Configs: presets, files, overrides, and every mistake told at once."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from bocl.errors import ConfigError, NetworkError
from bocl.experiment.build import build_base, build_method, build_network
from bocl.experiment.config import Config, NetworkSettings, load_config, presets
from bocl.experiment.grid import plan
from bocl.method_table import METHODS
from bocl.tasks.streams import STREAMS


@pytest.mark.parametrize("name", presets())
def test_every_preset_is_valid_and_says_what_it_is_for(name):
    config = load_config(name)
    if config.network.weights is not None:  # which are in a package of their own
        config = replace(config, network=replace(config.network, weights=None, pretrained=True))
    build_method(config, build_base(config), "cpu")
    assert presets()[name].endswith(".")


def test_a_stream_that_nobody_knows_is_refused_with_the_names_that_exist():
    with pytest.raises(ConfigError, match=r"stream.name is 'permuted-digit' \(did you mean 'permuted-digits'\?\)"):
        load_config("digits", ["stream.name=permuted-digit"])
    for name in STREAMS:
        assert load_config("digits", [f"stream.name={name}"]).stream.tasks == 5


def test_no_source_is_the_default_preset():
    assert load_config() == load_config("digits")


def test_a_file_needs_only_what_differs(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('method = "sn"\n[recipe]\nepochs = 2\n')
    config = load_config(str(file), ["recipe.batch_size=16"])
    assert (config.method, config.recipe.epochs, config.recipe.batch_size) == ("sn", 2, 16)
    assert config.stream == Config().stream


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("method=boccl", r"method: unknown value 'boccl' \(did you mean 'bocl'\?\)"),
        ("search.kind=papr", r"search.kind: unknown value 'papr' \(did you mean 'paper'\?\)"),
        ("stream.name=permuted-digit", "did you mean 'permuted-digits'"),
        ("recipes.epochs=3", r"recipes: unknown key \(did you mean 'recipe'\?\)"),
        ("recipe.epochs=0", "recipe.epochs is 0; it must be at least 1"),
        ("recipe.learning_rate=-1", "recipe.learning_rate is -1"),
        ("reward.alpha=-1", "reward.alpha is -1"),
        ("growth.reduction_nodes=0", "growth.reduction_nodes is 0"),
        ("stream.tasks=0", "stream.tasks is 0"),
        ("seed=-1", "seed is -1"),
        ("seed=true", "seed: expected an integer"),
        ("search.bounds=[1, -2]", r"search.bounds\[1\] is -2"),
        ("recipe", "expected the form a.b=value"),
        ("", "expected the form a.b=value"),
    ],
)
def test_a_wrong_value_is_named_with_the_way_out(override, message):
    with pytest.raises(ConfigError, match=message):
        load_config("digits", [override])


def test_all_mistakes_are_told_at_once():
    with pytest.raises(ConfigError) as caught:
        load_config("digits", ["recipe.epoch=3", "recipe.batch_size=0.5", "search.kind=bayes", "sede=1"])
    lines = str(caught.value).splitlines()
    assert lines[0] == "4 problems in digits:"
    assert len(lines) == 5


@pytest.mark.parametrize("source", ["digit", "nothing.toml", "folder/nothing"])
def test_an_unknown_preset_or_file_is_refused(source):
    with pytest.raises(ConfigError, match=r"digit|no such file"):
        load_config(source)


@pytest.fixture
def own_network(tmp_path, monkeypatch):
    """A module of the user's, importable as ``my_networks``."""
    (tmp_path / "my_networks.py").write_text(
        "from torch import nn\n"
        "def good(width=7): return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))\n"
        "def odd(): return nn.Sequential(nn.LSTM(3, 4), nn.Linear(4, 2))\n"
        "def not_a_module(): return 3\n"
        "def fails(): raise ValueError('out of luck')\n"
        "number = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("my_networks", None)  # a guide has one too
    yield
    sys.modules.pop("my_networks", None)


def test_a_users_own_network_is_one_override(own_network):
    config = load_config("digits", ["network=my_networks:good"])
    assert config.network == NetworkSettings("my_networks:good")
    assert build_network(config.network).widths == (7,)
    wider = load_config("digits", ["network={build='my_networks:good', arguments={width=9}}"])
    assert build_network(wider.network).widths == (9,)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        ("my_networks:odd", NetworkError, "'0' is a LSTM"),
        ("my_networks:not_a_module", NetworkError, "must be an nn.Module, not int"),
        ("my_networks:fails", ConfigError, "failed: out of luck"),
        ("my_networks:goood", ConfigError, r"no function 'goood' \(did you mean 'good'\?\)"),
        ("my_networks:number", ConfigError, "no function 'number'"),
        ("my_network:good", ConfigError, "cannot import 'my_network'"),
        ("lenett", ConfigError, r"unknown network 'lenett' \(did you mean 'lenet'\?\)"),
        ("mlp", ConfigError, "missing 2 required positional arguments.*set network.arguments"),
    ],
)
def test_a_network_that_cannot_be_built_is_refused(own_network, build, error, message):
    with pytest.raises(error, match=message):
        build_network(NetworkSettings(build))


def test_a_network_named_by_one_override_takes_arguments_from_the_next():
    config = load_config("digits", ["network=resnet", "network.arguments.channels=1"])
    assert config.network == NetworkSettings("resnet", {"channels": 1})


def test_a_grid_is_methods_times_seeds(tmp_path):
    grid = plan("digits", methods=["bocl", "sn"], seeds=[0, 3], out=str(tmp_path))
    assert [(config.method, config.seed) for config, _ in grid] == [
        ("bocl", 0),
        ("bocl", 3),
        ("sn", 0),
        ("sn", 3),
    ]
    assert [folder.name for _, folder in grid] == ["bocl-seed0", "bocl-seed3", "sn-seed0", "sn-seed3"]
    assert len(plan("digits", methods="all")) == len(METHODS)
    assert not list(tmp_path.iterdir()), "planning writes nothing"


def test_of_all_methods_one_that_does_not_take_the_network_is_left_out():
    residual, told = ["network.build=resnet", "network.arguments={}"], []
    methods = [config.method for config, _ in plan("digits", residual, methods="all", tell=told.append)]
    assert "den" not in methods
    assert len(methods) == len(METHODS) - 1
    assert len(told) == 1
    assert told[0].startswith("den is left out: 'add' computes with two values")
    with pytest.raises(NetworkError, match="computes with two values"):
        plan("digits", residual, methods=["bocl", "den"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": [-1]}, "seed is -1"),
        ({"overrides": ["fixed.widths=[1]"], "methods": ["bocl", "fixed"]}, "fixed.widths has .* 2 hidden groups"),
        ({"overrides": ["search.bounds=[1, 2, 3]"]}, "search.bounds has 3 entries"),
    ],
)
def test_a_grid_with_a_mistake_is_refused_before_it_starts(options, message):
    with pytest.raises(ConfigError, match=message):
        plan("digits", **options)

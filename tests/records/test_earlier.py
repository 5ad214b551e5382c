"""Records of earlier versions are read as those of today."""

from __future__ import annotations

import pytest

from bocl.errors import ConfigError
from bocl.experiment.config import StreamSettings
from bocl.networks.growth import UNREAD, GrowthSettings
from bocl.records.earlier import trained_one_by_one, upgrade, upgrade_config
from bocl.settings import to_plain

OLD = {
    "method": "bocl",
    "memory": "memory.json",
    "fixed": {"widths": 4},
    "search": {"kind": "paper", "memory_gb": 1e-6},
}


def test_settings_have_the_names_of_today():
    config = upgrade_config(OLD)
    assert config["prior_trials"] == "memory.json"
    assert "memory" not in config
    assert config["fixed"] == {"widths": 4, "children": 1}, "one child, as was done before there was a choice"
    assert config["search"] == {**OLD["search"], "halving": False}, "what is not renamed stays, or no run could resume"


@pytest.mark.parametrize(
    ("search", "alone"),
    [({"memory_gb": 1e-6}, True), ({"children_at_once": 1}, True), ({"memory_gb": 16.0}, False), ({}, False)],
)
def test_children_one_by_one_are_known_by_the_setting_of_their_day(search, alone):
    assert trained_one_by_one({"search": search}) is alone


def test_what_is_of_today_stays_as_it_is():
    today = upgrade_config(OLD)
    assert upgrade_config(today) == today
    record = {"kind": "round", "memory": 3}
    assert upgrade(record) == record, "only what was renamed"


def test_a_session_and_a_task_have_the_names_of_today():
    start = upgrade({"kind": "start", "memory": "ab", "at_once": 2, "config": OLD})
    assert (start["prior_trials"], start["shares_device"]) == ("ab", 2)
    assert start["config"] == upgrade_config(OLD)
    assert upgrade({"kind": "task", "memory": 7}) == {"kind": "task", "extra_numbers": 7}


@pytest.mark.parametrize(("form", "other"), [("units", "low-rank"), ("low-rank", "units")])
def test_what_a_form_of_growth_never_read_is_as_if_it_was_not_given(form, other):
    usual = to_plain(GrowthSettings(form=form))
    given = {"groups": {"all": "."}, "depth": 0.5, "scale": 2.0, "head": "none"}
    if form == "low-rank":
        given = {"wiring": "full", "gates": "sample", "gate_share": 0.0, "reduction_nodes": 2, "reduction_channels": 3}
    assert set(given) == set(UNREAD[form])
    for name, value in given.items():
        with pytest.raises(
            ConfigError, match=rf"growth\.{name} is .*, which growth\.form = '{form}' does not read; leave"
        ):
            GrowthSettings(form=form, **{name: value})
        GrowthSettings(form=other, **{name: value})
        assert upgrade_config({"growth": {**usual, name: value}})["growth"] == usual
        assert upgrade_config({"growth": {**usual, "form": other, name: value}})["growth"][name] == value


def test_a_config_that_is_none_is_left_to_the_checks():
    assert upgrade({"kind": "start", "config": 5}) == {"kind": "start", "config": 5}
    assert upgrade_config({"fixed": 3, "search": None}) == {"fixed": 3, "search": None}


def test_a_stream_of_before_people_had_their_own_is_the_same_stream():
    then = upgrade_config({"stream": {"name": "permuted-digits", "tasks": 5}})
    assert then["stream"] == to_plain(StreamSettings())

"""Records of earlier versions are read as those of today."""

from __future__ import annotations

from bocl.records.earlier import upgrade, upgrade_config

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
    assert config["search"] == {"kind": "paper", "memory_gb": 16.0, "children_at_once": 1}


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


def test_a_config_that_is_none_is_left_to_the_checks():
    assert upgrade({"kind": "start", "config": 5}) == {"kind": "start", "config": 5}
    assert upgrade_config({"fixed": 3, "search": None}) == {"fixed": 3, "search": None}

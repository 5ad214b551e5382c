"""Records of earlier versions, read as records of this version.

A setting or field that was renamed is renamed here. A setting that is newer than a record gets the value that its run
had without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_STREAM: dict[str, Any] = {  # of a stream of ours, before people had their own
    "arguments": {},
    "label": None,
    "standardise": None,
    "validation": 0.1,
    "test": 0.2,
    "class_weight": None,
    "text": None,
    "tokenizer": None,
    "length": 128,
    "truncate": False,
    "mean": None,
    "std": None,
}
_OTHERS: dict[str, dict[str, Any]] = {  # the paper's ways, before there were others
    "growth": {"reads": "all", "wiring": "full", "gates": "sample", "gate_share": 0.1},
    "search": {"halving": False},
    "goal": {"tolerance": 0.005, "price": None},  # which no run had as its goal
    "den": {"budget": None},
}
#: What growth of each form does not read, and where it is refused today; once it had no effect.
_UNREAD: dict[str, dict[str, Any]] = {
    "units": {"groups": {}, "depth": 1.0, "scale": 4.0, "head": None},
    "low-rank": {
        "wiring": "lean",
        "gates": "unit",
        "gate_share": 0.1,
        "reduction_nodes": 64,
        "reduction_channels": 16,
    },
}
ONE_CHILD_GB = 1e-6  # as `search.memory_gb`, before there was `search.children_at_once`


def upgrade(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a journal's record as this version would write it."""
    kind = record.get("kind")
    if kind == "start":
        renamed = _renamed(_renamed(record, "memory", "prior_trials"), "at_once", "shares_device")
        config = renamed.get("config")
        return {**renamed, "config": upgrade_config(config)} if isinstance(config, Mapping) else renamed
    return _renamed(record, "memory", "extra_numbers") if kind == "task" else dict(record)


def upgrade_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's settings by their present names."""
    config = _renamed(config, "memory", "prior_trials")
    if isinstance(fixed := config.get("fixed"), Mapping):
        config["fixed"] = {"children": 1, **fixed}
    config = with_only_ways(config)
    if isinstance(stream := config.get("stream"), Mapping):
        config["stream"] = {**_STREAM, **stream}
    return config


def with_only_ways(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by section, of a run or a model, with what there was no choice of when they were written."""
    found = dict(settings)
    for section, older in _OTHERS.items():
        if isinstance(given := found.get(section), Mapping):
            found[section] = {**older, **given}
    if isinstance(growth := found.get("growth"), Mapping):
        unread = _UNREAD.get(str(growth.get("form", "units")), {})
        found["growth"] = {name: unread.get(name, value) for name, value in growth.items()}
    return found


def trained_one_by_one(config: Mapping[str, Any]) -> bool:
    """Whether the settings of a run train the children of a search one at a time, in the way of its day."""
    search = config.get("search", {})
    return bool(search.get("children_at_once") == 1 or search.get("memory_gb", 1.0) <= ONE_CHILD_GB)


def _renamed(table: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    return {new if name == old else name: value for name, value in table.items()}

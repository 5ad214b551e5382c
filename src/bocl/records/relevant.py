"""Which settings of a run its results depend on: two runs are alike when these, and their seed, are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

METHODS = ("bocl", "rcl", "den", "pgn", "gem", "ewc", "sn", "fixed", "frozen", "independent", "joint")
SEARCHING = ("bocl", "rcl")  # those that search for widths: many children for every task but the first

_HOW = ("search.memory_gb", "search.children_at_once")  # only how a run is computed depends on these
_ALL_HAVE = ("stream.", "network.", "recipe.")
_HAS = {
    "bocl": ("growth.", "search.", "reward.", "goal.", "memory"),
    "rcl": ("growth.wiring", "search.bounds", *_HOW, "reward.alpha", "goal.", "rcl."),
    "fixed": ("growth.", "fixed."),
    "frozen": ("growth.",),
}
_NEVER_MATTERS = ("seed", *_HOW)
_BEFORE_THERE_WAS = {"fixed.children": 1}  # settings newer than some records: what those runs did
_OF_ONE_SEARCH = {"search.least_gain": "bayesian", "search.transfer": "bayesian", "search.controller": "reinforce"}


def relevant_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return {dotted name: value} of the settings that a method's results depend on, the seed apart."""
    own = _own_settings(config)
    kind = own.get("search.kind")
    return {
        name: value
        for name, value in own.items()
        if name not in _NEVER_MATTERS and _OF_ONE_SEARCH.get(name, kind) == kind
    }


def lasting_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return those that must stay the same when a run goes on: all but the settings of other methods."""
    said = {name: config[name] for name in ("method", "seed", "test_curve") if name in config}
    return {**_own_settings(config), **said}


def _own_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that the method has at all."""
    method = str(config["method"])
    has = (*_ALL_HAVE, *_HAS.get(method, (f"{method}.",)))
    said = {**_BEFORE_THERE_WAS, **dict(_flatten(config, ""))}
    return {name: value for name, value in said.items() if method not in METHODS or name.startswith(has)}


def _flatten(value: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        if isinstance(inner, Mapping) and inner:
            yield from _flatten(inner, f"{path}{key}.")
        else:
            yield f"{path}{key}", inner

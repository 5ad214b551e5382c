"""The settings that a run's results depend on: two runs are alike if these, and their seeds, are the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bocl.method_table import METHODS

_ALL_READ = ("stream.", "network.", "recipe.", "guess.")
_OFF = "none"  # guess.map, where tasks are not guessed: the rest of guess is not read, and early records have none
# The seed is compared separately. The others change how a run is computed, not its results.
_NEVER_MATTERS = ("seed", "search.memory_gb", "search.children_at_once", "search.parts")
_OF_ONE_SEARCH = {"search.least_gain": "bayesian", "search.transfer": "bayesian", "search.controller": "reinforce"}


def relevant_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return {dotted name: value} of the settings that a method's results depend on, without the seed."""
    own = _own_settings(config)
    kind = own.get("search.kind")
    return {
        name: value
        for name, value in own.items()
        if name not in _NEVER_MATTERS and _OF_ONE_SEARCH.get(name, kind) == kind
    }


def lasting_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return those that must stay the same when a run is resumed: all but the settings of other methods."""
    general = {name: config[name] for name in ("method", "seed", "test_curve") if name in config}
    return {**_own_settings(config), **general}


def _own_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that the method reads; all settings if the method is not in the table."""
    settings, entry = dict(_flatten(config, "")), METHODS.get(str(config["method"]))
    if settings.get("guess.map", _OFF) == _OFF:
        settings = {name: value for name, value in settings.items() if not name.startswith("guess.")}
    if entry is None:
        return settings
    reads = (*_ALL_READ, *entry.reads, f"{entry.name}.")
    return {name: value for name, value in settings.items() if name.startswith(reads)}


def _flatten(value: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        if isinstance(inner, Mapping) and inner:
            yield from _flatten(inner, f"{path}{key}.")
        else:
            yield f"{path}{key}", inner

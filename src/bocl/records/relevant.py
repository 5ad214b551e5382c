"""Which settings of a run its results depend on: two runs are alike when these, and their seed, are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

METHODS = ("bocl", "rcl", "den", "pgn", "gem", "ewc", "sn", "fixed", "frozen", "independent", "joint")

_ALL_HAVE = ("stream.", "network.", "recipe.")
_MATTERS = {
    "bocl": ("growth.", "search.", "reward.", "goal.", "memory"),
    "rcl": ("growth.wiring", "search.bounds", "reward.alpha", "goal.", "rcl."),
    "fixed": ("growth.", "fixed."),
    "frozen": ("growth.",),
}
_NEVER_MATTERS = ("seed", "search.memory_gb")  # of these, only how a run is computed depends
_OF_ONE_SEARCH = {"search.least_gain": "bayesian", "search.transfer": "bayesian", "search.controller": "reinforce"}


def relevant_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return {dotted name: value} of the settings that a method's results depend on, the seed apart."""
    method, flat = str(config["method"]), dict(_flatten(config, ""))
    matters = (*_ALL_HAVE, *_MATTERS.get(method, (f"{method}.",)))
    kind = flat.get("search.kind")
    return {
        name: value
        for name, value in flat.items()
        if name not in _NEVER_MATTERS
        and _OF_ONE_SEARCH.get(name, kind) == kind
        and (method not in METHODS or name.startswith(matters))
    }


def _flatten(value: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        if isinstance(inner, Mapping) and inner:
            yield from _flatten(inner, f"{path}{key}.")
        else:
            yield f"{path}{key}", inner

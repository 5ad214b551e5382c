"""Models saved by earlier versions, read as those of today.

Format 1 kept the settings of `sn`, `fixed` and `rcl` one by one, and called the trials of other runs `memory`. Settings
that a model is without did not exist when it was saved (``records/earlier.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bocl.records.earlier import with_only_ways

_OWN = {"sn": ("shared_head",), "fixed": ("widths", "budget", "children"), "rcl": ("controller", "trials")}
_SHARED = {"rcl": {"growth": ("wiring",), "search": ("bounds", "memory_gb"), "reward": ("alpha",)}}


def upgrade(model: dict[str, Any]) -> dict[str, Any]:
    """Return what model.json holds, in the form of today; its seal and the kinds of its entries are checked before."""
    model = {**model, "settings": with_only_ways(model["settings"])}
    if model["format"] != 1:
        return model
    method, settings, facts = model["method"], dict(model["settings"]), dict(model["facts"])
    if method in _OWN:
        settings["settings"] = _take(settings, _OWN[method])
    for section, names in _SHARED.get(method, {}).items():
        settings[section] = _take(settings, names)
    if "history" in facts:  # of bocl and rcl; the earliest models are without a memory
        facts["prior_trials"] = facts.pop("memory", [])
    return {**model, "settings": settings, "facts": facts}


def _take(settings: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: settings.pop(name) for name in names if name in settings}

"""The settings that every system may try: as many for each, drawn from its lists (``spaces.toml``) by a named seed.

The first try takes the first value of every list. Over the others the rest of a list is shared out as evenly as their
number allows, in an order of its own, so that a list of as many values as there are tries has each of them once.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bocl.experiment.config import Config, load_config
from bocl.seeding import seed_for
from replication.evaluation.sizes import Overrides, sized

HERE = Path(__file__).parent
PRESETS = "replication/evaluation/presets"
PAPERS = ("permuted-mnist", "mixed-mnist", "split-cifar100")
_NO_LISTS = ("part", "like", "method", "tried_as", "streams", "always", "shorter", "size", "own")


@dataclass(frozen=True, eq=False)
class System:
    """One system on one stream.

    tried_as  the method of its tries, where it is another
    always    overrides of all its runs, and ``shorter`` of its tries alone
    size      what brings it to a number of parameters
    own       what it stores at its own size, where that is a setting
    lists     values by name; a try takes one of each
    """

    name: str
    method: str
    tried_as: str
    stream: str
    always: Overrides
    shorter: Overrides
    size: str
    own: int | None
    lists: Mapping[str, Overrides]

    def config(self, overrides: Sequence[str]) -> Config:
        """Return the config of a run with these settings."""
        return load_config(preset(self.stream), [f"method={self.method}", *self.always, *overrides])


def preset(stream: str) -> str:
    """Return the preset of a stream, from the root of a checkout."""
    return f"{PRESETS}/{stream}.toml"


@cache
def _spaces() -> dict[str, Any]:
    return tomllib.loads((HERE / "spaces.toml").read_text(encoding="utf-8"))


def numbers(stream: str) -> Mapping[str, Any]:
    """Return what ``spaces.toml`` says of a stream: its seeds, and numbers that overrides name."""
    found: Mapping[str, Any] = _spaces()["streams"][stream]
    return found


def tuning_seed() -> int:
    """Return the seed of the tries, which no published run has."""
    return int(_spaces()["seed"])


@cache
def systems(stream: str, part: int = 1) -> tuple[System, ...]:
    """Return the systems of a part of the evaluation on a stream, those with the longest runs first."""
    common, entries = _of_stream(_spaces()["recipe"], stream), _spaces()["systems"]
    found = []
    for name, entry in entries.items():
        like = entry.get("like", name)
        said = {**common, **_of_stream(entries[like], stream), **_of_stream(entry, stream)}
        if said.get("part", 1) != part or stream not in said.get("streams", [stream]):
            continue
        filled = {key: _filled(value, numbers(stream)) for key, value in said.items()}
        method = filled.get("method", like)
        found.append(
            System(
                name,
                method,
                filled.get("tried_as", method),
                stream,
                filled.get("always", ()),
                filled.get("shorter", ()),
                filled.get("size", ""),
                int(filled["own"]) if "own" in filled else None,
                {key: value for key, value in filled.items() if key not in _NO_LISTS},
            )
        )
    return tuple(found)


def _of_stream(entry: Mapping[str, Any], stream: str) -> dict[str, Any]:
    own = {key: value for key, value in entry.items() if not isinstance(value, Mapping)}
    return {**own, **entry.get(stream, {})}


def _filled(value: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(value, str):
        return value.format(**known)
    return tuple(_filled(each, known) for each in value) if isinstance(value, list) else value


def tries(system: System, count: int | None = None) -> list[Overrides]:
    """Return the settings that a system may try.

    count  how many; None: as many as ``spaces.toml`` gives every system
    """
    count = _spaces()["tries"] if count is None else count
    columns = [
        shared_out(values, count, seed_for(tuning_seed(), "tries", system.stream, system.name, name))
        for name, values in system.lists.items()
    ]
    return [_at_own_size(system, tuple(" ".join(row).split())) for row in zip(*columns, strict=True)]


def shared_out(values: Sequence[str], count: int, seed: int) -> list[str]:
    """Return the first value, and then the others in a drawn order, each as often as the number allows."""
    rest = [values[number % len(values)] for number in range(1, count)]
    np.random.default_rng(seed).shuffle(rest)
    return [values[0], *rest]


def _at_own_size(system: System, overrides: Overrides) -> Overrides:
    if system.own is None:
        return overrides
    shape = tuple(override for override in overrides if not override.startswith("recipe."))
    return (*overrides, *_own_size(system, shape))


@cache
def _own_size(system: System, shape: Overrides) -> Overrides:
    assert system.own is not None
    return sized(system.config(shape), system.size, system.own)

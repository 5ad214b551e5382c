"""Settings are checked when they are made, and every message names the value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bocl.errors import ConfigError
from bocl.search.settings import SearchSettings


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"kind": "papr"}, r"search\.kind is 'papr'; it must be 'bayesian', 'paper', 'random' or 'reinforce'"),
        ({"kind": None}, r"search\.kind is None; it must be 'bayesian', 'paper', 'random' or 'reinforce'"),
        ({"trials": 0}, r"search\.trials is 0; it must be at least 1"),
        ({"trials": "a"}, r"search\.trials is 'a'; it must be an integer"),
        ({"trials": 2.5}, r"search\.trials is 2\.5"),
        ({"patience": 0}, r"search\.patience is 0"),
        ({"patience": True}, r"search\.patience is True"),
        ({"warm_points": -1}, r"search\.warm_points is -1.*at least 0"),
        ({"round_size": 0}, r"search\.round_size is 0"),
        ({"bounds": -3}, r"search\.bounds is -3"),
        ({"bounds": ()}, r"search\.bounds is \(\); it must be an integer or a list with 1 or more entries"),
        ({"bounds": 100_001}, r"search\.bounds is 100001; it must be at most 100000"),
        ({"bounds": [3, 10**30]}, r"search\.bounds\[1\] is 1000.*at most 100000"),
        ({"bounds": (4, -1)}, r"search\.bounds\[1\] is -1"),
        ({"bounds": (4, 1.5)}, r"search\.bounds\[1\] is 1\.5"),
    ],
)
def test_wrong_values_are_refused(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        SearchSettings(**wrong)


def test_the_least_values_are_accepted() -> None:
    settings = SearchSettings(kind="random", trials=1, patience=1, warm_points=0, bounds=0, round_size=1)
    assert settings.bounds_for((4, 4)) == (0, 0)


def test_bounds_per_group() -> None:
    assert SearchSettings().bounds_for((4, 5, 6)) == (4, 5, 6), "as many as the base network has"
    assert SearchSettings(bounds=7).bounds_for((4, 5, 6)) == (7, 7, 7)
    assert SearchSettings(bounds=(1, 0, 5)).bounds_for((4, 5, 6)) == (1, 0, 5)
    with pytest.raises(ConfigError, match=r"2 entries \(1, 2\).*3 hidden groups"):
        SearchSettings(bounds=(1, 2)).bounds_for((4, 5, 6))
    with pytest.raises(ConfigError, match=r"1 entry \(1,\), but the network has 2 hidden groups"):
        SearchSettings(bounds=(1,)).bounds_for((4, 5))
    with pytest.raises(ConfigError, match=r"2 entries \(1, 2\), but the network has 1 hidden group; "):
        SearchSettings(bounds=(1, 2)).bounds_for((4,))


def test_lists_and_numpy_integers_are_taken_as_python_holds_them() -> None:
    settings = SearchSettings(bounds=[np.int64(3), 4], trials=np.int32(7))  # type: ignore[arg-type]
    assert settings == SearchSettings(bounds=(3, 4), trials=7)
    assert type(settings.bounds) is tuple
    assert {type(value) for value in (*settings.bounds, settings.trials)} == {int}

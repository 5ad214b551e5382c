"""Which settings runs are told apart by."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bocl.experiment.build import build_method, build_network
from bocl.experiment.config import load_config
from bocl.method_table import METHODS
from bocl.methods.saving import _settings_of
from bocl.records.identity import lasting_settings, relevant_settings
from bocl.settings import to_plain


def settings(*overrides: str, method: str = "bocl", seed: int = 0) -> dict[str, object]:
    config = replace(load_config("digits", overrides), method=method, seed=seed)  # type: ignore[arg-type]
    return relevant_settings(to_plain(config))


@pytest.mark.parametrize("method", METHODS)
def test_what_all_depend_on_and_the_seed_apart(method: str) -> None:
    assert settings(method=method) == settings(method=method, seed=7)
    assert settings(method=method) != settings("recipe.epochs=3", method=method)


@pytest.mark.parametrize(
    ("method", "override", "matters"),
    [
        ("bocl", "reward.alpha=0.5", True),
        ("bocl", "goal.budget=5000", True),
        ("bocl", "search.least_gain=0.5", True),
        ("bocl", "search.controller=as-released", False),
        ("bocl", "search.memory_gb=1", False),
        ("bocl", "search.children_at_once=1", False),
        ("rcl", "search.children_at_once=1", False),
        ("rcl", "reward.alpha=0.5", True),
        ("rcl", "search.round_size=1", False),
        ("sn", "reward.alpha=0.5", False),
        ("ewc", "ewc.strength=5", True),
        ("fixed", "fixed.widths=2", True),
        ("fixed", "search.trials=2", False),
    ],
)
def test_what_a_method_depends_on(method: str, override: str, matters: bool) -> None:
    assert (settings(method=method) != settings(override, method=method)) == matters


CHANGES = [
    *(
        "recipe.epochs=3",
        "growth.wiring=forward",
        "growth.attention=false",
        "reward.alpha=0.5",
        "reward.weighting=uniform",
    ),
    *("search.kind=random", "search.trials=2", "search.bounds=3", "search.memory_gb=1", "search.children_at_once=1"),
    *(
        "search.least_gain=0.5",
        "goal.budget=5000",
        "rcl.trials=7",
        "rcl.controller=as-released",
        "den.l1=0.5",
        "pgn.width=0.5",
        "ewc.strength=5",
    ),
    *("gem.margin=0.25", "sn.shared_head=true", "fixed.widths=2"),
    *("pc.strength=5", "cab.aperture=3"),
]


@pytest.mark.parametrize("method", METHODS)
def test_a_run_goes_on_under_no_other_settings_of_its_method(method: str) -> None:
    def made(*overrides: str) -> tuple[object, object]:
        config = replace(load_config("digits", overrides), method=method)  # type: ignore[arg-type]
        return lasting_settings(to_plain(config)), _settings_of(
            build_method(config, build_network(config.network), "cpu")
        )

    lasting, own = made()
    for change in CHANGES:
        lasting_then, own_then = made(change)
        assert (lasting_then == lasting) == (own_then == own), change


def test_settings_of_one_search_matter_to_no_other() -> None:
    for kind, changed in (("paper", "search.least_gain=0.5"), ("random", "search.transfer=false")):
        assert settings(f"search.kind={kind}") == settings(f"search.kind={kind}", changed)
    learnt = "search.kind=reinforce"
    assert settings(learnt) != settings(learnt, "search.controller=as-released")

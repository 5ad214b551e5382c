"""Test accuracy against trials: the children that were best so far, from their kept weights."""

from __future__ import annotations

import math

import pytest

from bocl.experiment.run import run
from bocl.records.summary import summarise


@pytest.mark.parametrize("method", ["bocl", "rcl"])
def test_every_best_so_far_is_scored_and_the_kept_one_as_it_was(tmp_path, small, method):
    asked = small(f"method={method}", "search.kind=random", "rcl.trials=4", "test_curve=true")
    records = run(asked, tmp_path / "run", device="cpu")
    assert records[0].bests == ()
    for record in records[1:]:
        numbers = [number for number, _ in record.bests]
        rewards = [trial.reward for trial in record.trials]
        assert numbers == [n for n, reward in enumerate(rewards) if reward > max(rewards[:n], default=-math.inf)]
        assert record.trials[numbers[-1]].widths == record.widths
        assert record.bests[-1][1] == record.row[-1], "the kept child is the network that was scored"
    assert summarise(tmp_path / "run").tasks[1].bests == records[1].bests


def test_they_change_nothing_and_are_left_out_unless_asked_for(tmp_path, small):
    without = run(small("search.kind=random"), tmp_path / "without", device="cpu")
    asked = run(small("search.kind=random", "test_curve=true"), tmp_path / "asked", device="cpu")
    assert [record.bests for record in without] == [()] * len(without)
    assert [record.row for record in without] == [record.row for record in asked]


def test_a_search_that_can_be_explained_is(tmp_path, small):
    records = run(small("search.kind=bayesian"), tmp_path / "run", device="cpu")
    assert records[0].diagnostics is None
    found = records[1].diagnostics
    assert found is not None
    assert len(found.gains) == len(records[1].trials)
    assert len(found.posterior) == len(records[1].widths)
    assert summarise(tmp_path / "run").tasks[1].diagnostics.errors == found.errors

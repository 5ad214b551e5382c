"""What a run measures of a task that is learnt: its open gates, and the children that were best so far."""

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


def test_every_task_but_the_first_tells_how_far_its_gates_are_open(tmp_path, small):
    run(small("stream.tasks=3"), tmp_path, device="cpu")
    tasks = summarise(tmp_path).tasks
    assert tasks[0].attention == {}
    for task in tasks[1:]:
        assert list(task.attention) == ["fc2", "head"]
        for group, gates in enumerate(task.attention.values()):
            added = [earlier.widths[group] for earlier in tasks[: task.index + 1]]
            assert [math.isnan(gate) for gate in gates] == [units == 0 for units in added]
            assert all(0 < gate < 1 for gate in gates if not math.isnan(gate))


@pytest.mark.parametrize("overrides", [["method=sn"], ["method=rcl", "rcl.trials=2"], ["growth.attention=false"]])
def test_what_has_no_gates_tells_of_none(tmp_path, small, overrides):
    run(small(*overrides), tmp_path, device="cpu")
    assert all(task.attention == {} for task in summarise(tmp_path).tasks)

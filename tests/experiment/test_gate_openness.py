"""What a run records of its gates."""

from __future__ import annotations

import math

import pytest

from bocl.experiment.run import run
from bocl.records.summary import summarise


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

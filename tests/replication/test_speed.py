"""What only our records measure: a long stream's cost, and where the time of a run goes. How fast is never asserted."""

from __future__ import annotations

import pytest
import torch

from replication.speed.growth_cost import WIRINGS, measure_growth
from replication.speed.long_stream import describe, measure_stream
from replication.speed.whole_run import measure_run


def test_growth_of_cost_follows_both_wirings():
    costs = measure_growth(torch.device("cpu"), tasks=3, growth=2, samples=64, tell=lambda _cost: None)
    assert [(cost.mode, cost.task) for cost in costs] == [(mode, task) for mode in WIRINGS for task in (1, 2, 3)]
    ours, columns = costs[:3], costs[3:]
    assert ours[0].parameters == columns[0].parameters == 286_274
    assert ours[2].parameters > columns[2].parameters > columns[1].parameters > columns[0].parameters


def test_the_time_of_a_run_is_split_up():
    cost = measure_run("digits", ["stream.tasks=1", "recipe.epochs=1"], device="cpu")
    assert 0 < cost.safety_seconds + cost.training_seconds < cost.seconds
    assert cost.outside_training == pytest.approx(1 - cost.training_seconds / cost.seconds)
    assert cost.safety == pytest.approx(cost.safety_seconds / cost.seconds)
    assert cost.describe().startswith("digits: ")


def test_the_cost_of_each_task_of_a_stream_is_told(tmp_path):
    points = measure_stream("fixed", 3, ("fixed.widths=1", "recipe.epochs=1"), tmp_path / "run")
    assert all(0 < point.safety < point.whole and point.written > 0 for point in points)
    assert [point.stored for point in points] == sorted({point.stored for point in points})
    assert describe(points, 3).split()[:2] == ["3", f"{points[2].stored:,}"]

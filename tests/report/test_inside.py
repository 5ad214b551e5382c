"""One run from inside: growth, reuse, searches, the accuracy matrix."""

from __future__ import annotations

import math
from dataclasses import replace

from bocl.report.charts import numbers
from bocl.report.inside import accuracy_matrix, growth, reuse, searches, task_rows
from bocl.report.sections import portraits
from bocl.report.systems import arrange
from report_examples import a_run, a_trial


def test_growth_is_units_by_task_and_layer():
    chart = growth(a_run(tasks=3), "x")
    assert (chart.layers, chart.added) == (("fc1", "fc2"), ((6, 6), (2, 2), (2, 2)))
    assert chart.style.colour == "bocl"
    assert numbers(chart).rows[2:4] == (("task 2", "fc1", 2), ("task 2", "fc2", 2))
    assert growth(a_run("mine"), "x").style.colour == "ink"


def test_the_matrix_is_a_triangle():
    chart = accuracy_matrix(a_run("sn", loss=0.5, accuracy=0.75, tasks=2), "x")
    assert chart.cells == ((0.75,), (0.25, 0.75))
    assert numbers(chart).rows == (("1", "1", 0.75), ("2", "1", 0.25), ("2", "2", 0.75))


def test_reuse_has_a_map_for_each_gated_layer_and_leaves_out_what_nobody_measured():
    run = a_run(tasks=3, attention=0.5)
    run.tasks[2].attention["fc2"] = (0.25, math.nan, 1.0)
    head, fc2 = reuse(run, "x")
    assert (head.title, head.rows, head.columns) == ("Gates before head", ("2", "3"), ("1", "2", "3"))
    assert head.cells == ((0.5, 0.5), (0.5, 0.5, 0.5))
    assert numbers(fc2).rows == (("3", "1", 0.25), ("3", "3", 1.0))
    assert reuse(a_run(), "x") == [], "a record of before, or a method without gates, has none"


def test_searches_show_every_child_that_was_trained_and_ring_the_kept_one():
    trials = [a_trial((0, 0), 0.5, 10), a_trial((2, 2), 0.75, 20), a_trial((9, 9), math.nan, 30)]
    plots = searches(a_run(tasks=3, trials=trials), "x")
    assert [plot.name for plot in plots] == ["x-search-02", "x-search-03"]
    assert plots[0].title == "task 2: 2 trials, kept 2, 2"
    assert plots[0].y_range == (0.5, 0.75)
    line, tried = plots[0].series
    assert [(point.x, point.y, point.ringed) for point in tried.points] == [(10, 0.5, False), (20, 0.75, True)]
    assert tried.points[1].note == "trial 1: 2, 2 → 75.00 %, +20"
    assert [point.x for point in line.points] == [10, 20]
    failed = [a_trial((1, 1), math.nan, 30)]
    assert searches(a_run(trials=failed), "x") == searches(a_run("sn"), "x") == []


def test_task_rows_tell_then_and_now():
    rows = task_rows(a_run("sn", loss=0.5, accuracy=0.75, tasks=2))
    assert rows[0] == ("1", "task 1", "6, 6", "75.00 %", "25.00 %", "+500", "", "")
    assert rows[1][3:5] == ("75.00 %", "75.00 %")
    assert rows[1][7] == "10.0"


def test_what_a_child_reads_and_what_stopped_it_is_said_where_it_is_a_choice():
    trials = [
        replace(a_trial((0, 0), 0.5, 10), reads="first"),
        replace(a_trial((2, 2), 0.75, 20), reads="own"),
        replace(a_trial((2, 2), 0.625, 30), reads="first"),
        replace(a_trial((9, 9), math.nan, 30), reads="first", rungs=(0.5,)),
    ]
    run = a_run(tasks=3, trials=trials)
    run = replace(run, tasks=tuple(replace(task, reads=(), limit="budget") for task in run.tasks))
    plot = searches(run, "x")[0]
    assert plot.title == "task 2: 3 trials, kept 2, 2, own network"
    tried = plot.series[1].points
    assert [point.ringed for point in tried] == [False, True, False], "of the same widths, the one that was kept"
    assert tried[2].note == "trial 2: 2, 2, reads first → 62.50 %, +30"
    assert [row[-1] for row in task_rows(run)][1:] == ["own network, growth stopped by the budget"] * 2
    (group,) = [group for group in portraits(arrange([run])[0])[0].groups if group.heading == "The search of each task"]
    assert "stopped early" in group.caption
    plain = a_run(tasks=3, trials=trials[:1])
    assert not any("stopped" in group.caption for group in portraits(arrange([plain])[0])[0].groups)

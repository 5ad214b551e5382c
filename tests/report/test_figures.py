"""The numbers of every figure, from runs whose figures are known."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from bocl.report.charts import numbers
from bocl.report.figures import (
    accuracy_against_parameters,
    accuracy_bars,
    comparison,
    cost_bars,
    first_task,
    parameter_bars,
    time_bars,
)
from bocl.report.systems import arrange
from bocl.report.trial_curves import accuracy_against_trials, best_so_far
from report_examples import a_run, a_trial


def one(*runs):
    (stream,) = arrange(runs)
    return stream


def test_accuracy_and_parameters_by_method():
    stream = one(
        a_run(seed=0, accuracy=0.90, parameters=1000),
        a_run(seed=1, accuracy=0.92, parameters=2000),
        a_run("sn", accuracy=0.8, loss=0.01, parameters=500),
        a_run(growth__attention=False, parameters=800),
    )
    bars = accuracy_bars(stream)
    assert [(row.label, row.value, row.text) for row in bars.rows] == [
        ("bocl", pytest.approx(0.91), "91.00 ± 1.41"),
        ("bocl, no attention", pytest.approx(0.9), "90.00"),
        ("sn", pytest.approx(0.755), "75.50"),  # 0.8 less 0.01 for each of 0 … 9 later tasks
    ]
    assert not bars.from_zero
    sizes = parameter_bars(stream)
    assert [(row.value, row.sd, row.text) for row in sizes.rows] == [
        (1500, pytest.approx(707.1068), "1.5k ± 707"),
        (800, None, "800"),
        (500, None, "500"),
    ]


def test_time_is_that_of_runs_alone_in_a_unit_that_fits():
    stream = one(a_run(seconds=600.0), a_run("rcl", seconds=300.0), a_run("sn", seconds=1e6, shares_device=4))
    bars = time_bars(stream)
    assert [(row.label, row.value) for row in bars.rows] == [("bocl", 10.0), ("rcl", 5.0)]
    assert bars.axis.label == "training time (min)"
    assert time_bars(one(a_run(seconds=299.0))).axis.label == "training time (s)"
    assert time_bars(one(a_run(seconds=7200.0))).axis.label == "training time (h)"


def test_times_of_different_machines_are_not_compared():
    def elsewhere(run):
        return replace(run, sessions=tuple(replace(start, machine={"name": "another"}) for start in run.sessions))

    stream = one(a_run(seconds=20.0), a_run("sn", seconds=5.0), elsewhere(a_run("ewc", seconds=1.0)))
    assert [row.label for row in time_bars(stream).rows] == ["bocl", "sn"]


def test_accuracy_against_parameters_has_a_mark_for_each_setting():
    stream = one(
        a_run(reward__alpha=0.1, accuracy=0.8, parameters=1000),
        a_run(reward__alpha=0.01, accuracy=0.9, parameters=3000),
        a_run("pgn", accuracy=0.9, parameters=9000),
    )
    plot = accuracy_against_parameters(stream)
    assert [(s.name, [(p.x, p.y) for p in s.points]) for s in plot.series] == [
        ("bocl", [(1000, pytest.approx(0.8)), (3000, pytest.approx(0.9))]),
        ("pgn", [(9000, pytest.approx(0.9))]),
    ]
    assert plot.x.spacing == "factors"  # 9 times from least to most
    assert accuracy_against_parameters(one(a_run())).x.spacing == "even"


def test_the_first_task_is_followed_through_all_others():
    plot = first_task(one(a_run("sn", seed=0, loss=0.1, tasks=3), a_run("sn", seed=1, loss=0.2, tasks=3)))
    (series,) = plot.series
    assert [(p.x, p.y, p.y_sd) for p in series.points] == [
        (1, pytest.approx(0.9), pytest.approx(0.0)),
        (2, pytest.approx(0.75), pytest.approx(0.0707107)),
        (3, pytest.approx(0.6), pytest.approx(0.1414214)),
    ]


def test_the_best_so_far_is_chosen_by_reward_and_passes_over_failures():
    trials = [
        a_trial((0, 0), 0.5, 1),
        a_trial((9, 9), 0.9, 9, reward=0.4),
        a_trial((1, 1), math.nan, 2, reward=math.nan),
        a_trial((2, 1), 0.7, 3),
        a_trial((3, 1), 0.6, 4),
    ]
    assert best_so_far(a_run(trials=trials, tasks=2).tasks[1]) == [0.5, 0.5, 0.5, 0.7, 0.7]


def test_every_system_that_searched_has_a_curve_of_its_best_so_far_over_the_seeds_that_all_have():
    short = [a_trial((0, 0), 0.1, 1), a_trial((1, 0), 0.5, 2)]
    long = [a_trial((0, 0), 0.1, 1), a_trial((1, 0), 0.3, 2), a_trial((1, 1), 0.9, 3)]
    stream = one(
        a_run(seed=0, trials=long, tasks=3),
        a_run(seed=1, trials=short, tasks=3),
        a_run(growth__attention=False, trials=short, tasks=3),
        a_run("rcl", trials=short, tasks=3),
        a_run("sn", tasks=3),
    )
    plot = accuracy_against_trials(stream)
    assert {series.name: [(point.x, point.y) for point in series.points] for series in plot.series} == {
        "bocl": [(1, pytest.approx(0.3)), (2, pytest.approx(0.9))],  # seed 1 is not among the others
        "bocl, no attention": [(1, 0.5)],
        "rcl": [(1, 0.5)],
    }
    assert plot.y.label == "validation accuracy, best so far (%)"
    assert accuracy_against_trials(one(a_run("sn"))).series == ()


def test_counts_that_span_decades_are_marks_on_an_axis_of_factors():
    near, far = (parameter_bars(one(a_run(parameters=1000), a_run("sn", parameters=size))) for size in (8000, 9000))
    assert (near.from_zero, near.axis.spacing) == (True, "even")
    assert (far.from_zero, far.axis.spacing) == (False, "factors")


def test_where_no_time_is_told_samples_stand_in_its_place():
    shared = cost_bars(one(a_run(shares_device=2), a_run("sn", shares_device=2)))
    assert (shared.title, [row.value for row in shared.rows]) == ("samples trained, not time", [1000, 1000])
    some = cost_bars(one(a_run(shares_device=2), a_run("sn")))
    assert (some.title, [row.label for row in some.rows]) == ("time", ["sn"])


def test_one_system_far_below_does_not_press_the_others_together():
    runs = [a_run(method, accuracy=0.96 + 0.005 * place) for place, method in enumerate(("bocl", "rcl", "den", "pgn"))]
    low = one(*runs, a_run("sn", accuracy=0.3))
    assert accuracy_against_parameters(low).y_range == (pytest.approx(0.96), pytest.approx(0.975))
    assert accuracy_against_parameters(one(*runs)).y_range is None
    halves = [*runs[:2], *(a_run(method, accuracy=0.3) for method in ("sn", "ewc"))]
    assert accuracy_against_parameters(one(*halves)).y_range is None, "half of them are not the exception"
    alike = [a_run(method, accuracy=0.9) for method in ("bocl", "rcl", "den", "pgn")]
    assert accuracy_against_parameters(one(*alike, a_run("sn", accuracy=0.889))).y_range is None, "a point is not far"


def test_a_line_joins_the_settings_that_no_smaller_one_equals_on_validation_samples():
    def setting(alpha, parameters, validation, accuracy):
        return a_run(reward__alpha=alpha, parameters=parameters, validation=validation, accuracy=accuracy)

    stream = one(
        setting(0.4, 100, 0.6, 0.1),
        setting(0.3, 200, 0.5, 0.9),  # best on test samples, which have no say
        setting(0.2, 300, 0.7, 0.2),
        setting(0.1, 300, 0.8, 0.3),
    )
    (series,) = accuracy_against_parameters(stream).series
    assert [(point.x, point.y) for point in series.points if not point.aside] == [(100, 0.1), (300, 0.3)]
    assert len(series.points) == 4


def test_the_comparison_shows_each_system_and_then_its_other_settings():
    stream = one(
        a_run(reward__alpha=0.1, accuracy=0.8, seconds=9.0),
        a_run(reward__alpha=0.2, accuracy=0.9, seed=0, shares_device=2),
        a_run(reward__alpha=0.2, accuracy=0.92, seed=1, shares_device=2),
        a_run("sn", loss=0.01),
    )
    table = comparison(stream)
    assert [row[:5] for row in table.rows] == [
        ("bocl (alpha 0.2)", "2", "91.00 ± 1.41", "0", "0"),
        ("sn", "1", "85.50", "-5.00", "+9.00"),
    ]
    assert [row[:5] for row in table.others] == [("bocl (alpha 0.1)", "1", "80.00", "0", "0")]
    assert [row[-1] for row in (*table.rows, *table.others)] == ["10.0 s (shared)", "10.0 s", "9.0 s"]


def test_the_comparison_says_what_is_kept_besides_the_parameters():
    run = a_run("gem")
    kept = replace(run, tasks=tuple(replace(task, extra_numbers=2000 * task.index) for task in run.tasks))
    table = comparison(one(a_run(), kept))
    assert [row[table.header.index("extra numbers")] for row in table.rows] == ["0", "18.0k"]


def test_every_number_of_a_figure_is_in_its_table():
    plot = numbers(first_task(one(a_run(tasks=2))))
    assert plot.header == ("series", "tasks learnt", "test accuracy on task 1 (%)", "note")
    assert [row[:3] for row in plot.rows] == [("bocl", 1, 0.9), ("bocl", 2, 0.9)]
    bars = numbers(parameter_bars(one(a_run())))
    assert bars.rows[0][:2] == ("bocl", 1000)

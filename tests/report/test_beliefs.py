"""What a search says of itself: posterior, calibration, expected gains."""

from __future__ import annotations

import math
from dataclasses import replace

from bocl.report.beliefs import calibration, gains, posteriors
from bocl.report.charts import numbers
from bocl.report.layout import draw
from bocl.report.sections import portraits
from bocl.report.systems import arrange
from report_examples import a_run, a_search, some_diagnostics
from svg_reader import painted, places, read_svg


def told(**changes):
    """Return a run of three tasks whose two searches tell what they believe; each keeps 2 units in each group."""
    return a_run(tasks=3, trials=a_search(), diagnostics=replace(some_diagnostics(), **changes))


def test_posteriors_have_a_strip_for_each_task_and_mark_what_was_kept():
    fc1, fc2 = posteriors(told(), "x")
    assert (fc1.name, fc1.rows, fc1.kept) == ("x-posterior-fc1", ("2", "3"), (2, 2))
    assert fc2.shares == ((0.5, 0.0, 0.5) + (0.0,) * 7,) * 2
    assert numbers(fc2).rows[:3] == (("2", 0, 0.5, 0), ("2", 1, 0.0, 0), ("2", 2, 0.5, 1))
    root = read_svg(draw(fc2))
    bars, dot = painted(root, "path", "bocl")[0], painted(root, "circle", "ink")[0]
    assert bars.findtext("title") == dot.findtext("title") == "task 2: likeliest 0 (50 %), kept 2 (50 %)"
    foot, (left, first), (right, _), (_, second), _, (_, third), *_ = places(bars)
    assert float(dot.get("cx")) == foot[0] + 2.5 * (right - left)
    assert first == third < second, "as high as it is likely"


def test_a_posterior_that_does_not_reach_what_was_kept_is_left_out():
    assert posteriors(told(posterior=((0.5, 0.5), (0.2, 0.3, 0.5))), "x")[0].title == "Best width of fc2, as believed"
    assert posteriors(told(posterior=()), "x") == []


def test_calibration_shows_every_error_and_the_shares_inside():
    errors, inside = calibration(told(), "x")
    trials = errors.series[-1]
    assert [(point.x, point.y) for point in trials.points[:2]] == [(2, -0.8999999999999999), (2, -0.6)]
    assert len(trials.points) == 40
    levels = [series.points[0].y for series in errors.series[:-1]]
    assert levels == [0.674, -0.674, 1.645, -1.645]
    assert inside.title == "inside 50 %: 50 %, inside 90 %: 88 %"
    assert [(series.name, series.points[0].y) for series in inside.series] == [
        ("50 % wanted", 0.5),
        ("90 % wanted", 0.9),
        ("inside 50 %", 0.5),
        ("inside 90 %", 0.875),
    ]
    assert calibration(told(errors=()), "x") == []


def test_gains_leave_out_what_was_asked_for_another_reason():
    run = told(gains=(math.nan, 0.05, math.nan, 0.0005))
    run.config["search"]["least_gain"] = 0.001
    plots = gains(run, "x")
    assert [plot.name for plot in plots] == ["x-gains-02", "x-gains-03"]
    least, hoped = plots[0].series
    assert [(point.x, point.y) for point in hoped.points] == [(1, 5.0), (3, 0.05)]
    assert least.points[0].y == 0.1
    assert plots[0].y_range == (0.05, 5.0)
    assert gains(told(gains=(math.nan, 0.0)), "x") == []
    run.config["reward"]["alpha"] = None
    run.config["goal"] = {"tolerance": 0.005}
    assert len(gains(run, "x")[0].series) == 1, "with a tolerance there is no one level for all tasks"
    run.config["reward"]["alpha"] = 0.01
    run.config["search"]["least_gain"] = 0.0
    assert len(gains(run, "x")[0].series) == 1


def test_they_are_part_of_the_portrait_of_a_run_that_has_them():
    (shown,) = portraits(arrange([told()])[0])
    assert [(group.heading, len(group.charts)) for group in shown.groups] == [
        ("", 2),
        ("The search of each task", 2),
        ("Expected gain in reward, when a trial was asked for", 2),
        ("What the search believed in the end", 4),
    ]
    (plain,) = portraits(arrange([a_run(tasks=3, trials=a_search())])[0])
    assert [group.heading for group in plain.groups] == ["", "The search of each task"]

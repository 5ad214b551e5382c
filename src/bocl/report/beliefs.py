"""What a search believed: the widths it held for best, how far to trust it, what it hoped to gain by each trial."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from bocl.records.record import Diagnostics, TaskRecord
from bocl.records.summary import RunSummary
from bocl.report.charts import Axis, Plot, Point, Series, Strips
from bocl.report.style import DASHES, Style, plain_style

_INTERVALS = ((0.5, 0.674), (0.9, 1.645))  # share of a normal distribution, and how many sd around its mean hold it


def posteriors(run: RunSummary, name: str) -> list[Strips]:
    """For each layer, how likely it is, task by task, that the best widths have 0, 1, … units there."""
    charts = []
    for group, layer in enumerate(run.groups):
        told = [
            (str(task.index + 1), found.posterior[group], task.widths[group])
            for task, found in _diagnosed(run)
            if group < len(found.posterior) and task.widths[group] < len(found.posterior[group])
        ]
        if told:
            tasks, shares, kept = zip(*told, strict=True)
            title = f"Best width of {layer}, as believed"
            style = plain_style(run.method)
            charts.append(Strips(f"{name}-posterior-{layer}", title, "task", "units added", style, tasks, shares, kept))
    return charts


def calibration(run: RunSummary, name: str) -> list[Plot]:
    """How far each trial was from what the process says of it without it, and how many lay inside its intervals."""
    told = [(task.index + 1, found) for task, found in _diagnosed(run) if found.errors]
    if not told:
        return []
    style, tasks = plain_style(run.method), [number for number, _ in told]
    errors = [Point(number, error, f"task {number}: {error:+.2f}") for number, found in told for error in found.errors]
    edges = [
        _level(f"{100 * share:.0f} % interval", side * sd, place, tasks)
        for place, (share, sd) in enumerate(_INTERVALS)
        for side in (1, -1)
    ]
    inside = [[found.within_50 for _, found in told], [found.within_90 for _, found in told]]
    shares = [
        Series(
            f"inside {100 * share:.0f} %",
            Style(style.colour, hollow=place == 0),
            tuple(
                Point(number, value, f"task {number}: {100 * value:.0f} % inside the {100 * share:.0f} % interval")
                for number, value in zip(tasks, inside[place], strict=True)
            ),
        )
        for place, (share, _) in enumerate(_INTERVALS)
    ]
    wanted = [_level(f"{100 * share:.0f} % wanted", share, place, tasks) for place, (share, _) in enumerate(_INTERVALS)]
    across, apart, percentage = Axis("task", "count"), Axis("standard deviations"), Axis("trials inside (%)", "percent")
    dots = Series("trials", style, tuple(errors), joined="no")
    title = f"inside 50 %: {100 * fmean(inside[0]):.0f} %, inside 90 %: {100 * fmean(inside[1]):.0f} %"
    return [
        Plot(f"{name}-errors", "measured less predicted", across, apart, (*edges, dots), small=True),
        Plot(f"{name}-calibration", title, across, percentage, (*wanted, *shares), small=True, y_range=(0.0, 1.0)),
    ]


def gains(run: RunSummary, name: str) -> list[Plot]:
    """What each trial was expected to gain when it was asked for; those asked for another reason are left out."""
    told = [(task, _hopes(found)) for task, found in _diagnosed(run)]
    least = 100 * float(run.config["search"].get("least_gain", 0.0))
    values = [point.y for _, hopes in told for point in hopes] + ([least] if least > 0 else [])
    y_range = (min(values), max(values)) if values else None
    gain, plots = Axis("gain (points)", spacing="factors"), []
    for task, hopes in told:
        if not hopes:
            continue
        trials = (0, len(task.trials) - 1)
        enough = [_level("least gain", least, 0, trials)] if least > 0 else []
        series = (*enough, Series("expected gain", plain_style(run.method), tuple(hopes), joined="no"))
        title, axes = f"task {task.index + 1}: {len(hopes)} asked for gain", (Axis("trial", "count"), gain)
        plots.append(Plot(f"{name}-gains-{task.index + 1:02d}", title, *axes, series, small=True, y_range=y_range))
    return plots


def _diagnosed(run: RunSummary) -> list[tuple[TaskRecord, Diagnostics]]:
    return [(task, task.diagnostics) for task in run.tasks if task.diagnostics is not None]


def _hopes(found: Diagnostics) -> list[Point]:
    return [
        Point(number, 100 * gain, f"trial {number}: {100 * gain:.2f} points expected")
        for number, gain in enumerate(found.gains)
        if math.isfinite(gain) and gain > 0
    ]


def _level(name: str, value: float, place: int, ends: Sequence[int]) -> Series:
    """Return a level line to compare with."""
    points = (Point(ends[0], value), Point(ends[-1], value))
    return Series(name, Style("muted", dash=DASHES[2 - place]), points, marked=False)

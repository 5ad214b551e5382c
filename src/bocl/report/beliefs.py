"""What a search believed: which widths are best, how far to trust it, and what it expected to gain by each trial."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from bocl.records.record import Diagnostics, TaskRecord
from bocl.records.summary import RunSummary
from bocl.report.charts import Axis, Plot, Point, Series, Strips
from bocl.report.style import DASHES, Style, plain_style
from bocl.report.systems import by_tolerance


def posteriors(run: RunSummary, name: str) -> list[Strips]:
    """For each layer and task, how likely it is that the best widths have 0, 1, … units there."""
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
    """How far each trial was from what the process predicts without it, and how many were inside its intervals."""
    told = [(task.index + 1, found) for task, found in _diagnosed(run) if found.errors]
    if not told:
        return []
    style, tasks = plain_style(run.method), [number for number, _ in told]
    errors = [Point(number, error, f"task {number}: {error:+.2f}") for number, found in told for error in found.errors]
    intervals = (  # a share of a normal distribution, how many sd around its mean hold it, the share of trials inside
        (0.5, 0.674, [found.within_50 for _, found in told]),
        (0.9, 1.645, [found.within_90 for _, found in told]),
    )
    bounds, wanted, shares, title = [], [], [], []
    for place, (share, sd, inside) in enumerate(intervals):
        interval = f"{100 * share:.0f} %"
        bounds += [_level(f"{interval} interval", side * sd, place, tasks) for side in (1, -1)]
        wanted.append(_level(f"{interval} wanted", share, place, tasks))
        points = tuple(
            Point(number, value, f"task {number}: {100 * value:.0f} % inside the {interval} interval")
            for number, value in zip(tasks, inside, strict=True)
        )
        shares.append(Series(f"inside {interval}", Style(style.colour, hollow=place == 0), points))
        title.append(f"inside {interval}: {100 * fmean(inside):.0f} %")
    across, apart, percentage = Axis("task", "count"), Axis("standard deviations"), Axis("trials inside (%)", "percent")
    off = (*bounds, Series("trials", style, tuple(errors), joined="no"))
    counts = (*wanted, *shares)
    return [
        Plot(f"{name}-errors", "measured less predicted", across, apart, off, small=True),
        Plot(f"{name}-calibration", ", ".join(title), across, percentage, counts, small=True, y_range=(0.0, 1.0)),
    ]


def gains(run: RunSummary, name: str) -> list[Plot]:
    """What each trial was expected to gain when it was chosen; trials chosen for another reason are left out."""
    expected = [
        (
            task,
            tuple(
                Point(number, 100 * gain, f"trial {number}: {100 * gain:.2f} points expected")
                for number, gain in enumerate(found.gains)
                if math.isfinite(gain) and gain > 0
            ),
        )
        for task, found in _diagnosed(run)
    ]
    # With a tolerance, what is enough to go on differs from task to task.
    least = 0.0 if by_tolerance(run.config) else 100 * float(run.config["search"].get("least_gain", 0.0))
    values = [point.y for _, points in expected for point in points] + ([least] if least > 0 else [])
    y_range = (min(values), max(values)) if values else None
    axes, plots = (Axis("trial", "count"), Axis("gain (points)", spacing="factors")), []
    for task, points in expected:
        if points:
            enough = [_level("least gain", least, 0, (0, len(task.trials) - 1))] if least > 0 else []
            series = (*enough, Series("expected gain", plain_style(run.method), points, joined="no"))
            title, place = f"task {task.index + 1}: {len(points)} asked for gain", f"{name}-gains-{task.index + 1:02d}"
            plots.append(Plot(place, title, *axes, series, small=True, y_range=y_range))
    return plots


def _diagnosed(run: RunSummary) -> list[tuple[TaskRecord, Diagnostics]]:
    return [(task, task.diagnostics) for task in run.tasks if task.diagnostics is not None]


def _level(name: str, value: float, place: int, ends: Sequence[int]) -> Series:
    """Return a level line for comparison."""
    points = (Point(ends[0], value), Point(ends[-1], value))
    return Series(name, Style("muted", dash=DASHES[2 - place]), points, marked=False)

"""Charts → drawings: where axes, marks and words go."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from bocl.report.charts import Axis, Bars, Chart, GrowthChart, HeatMap, Plot, Series, Strips, edges
from bocl.report.drawing import Drawing, Place, text_width
from bocl.report.label_placement import Area, Name, free_places
from bocl.report.scale import Scale, fit, say, ticks, whole_ticks
from bocl.report.tiles import draw_growth, draw_heat_map, draw_strips

_ROW = 19.0
_LEAST_BARS = 140.0  # the room of the bars themselves, however long the names next to them


def draw(chart: Chart, *, legend: bool = False) -> Drawing:
    """Draw a chart; with a legend of its series if nothing around it says which is which."""
    match chart:
        case Plot():
            drawing = _plot(chart)
            if legend and not chart.small:
                _add_legend(drawing, chart.series)
            return drawing
        case Bars():
            return _bars(chart)
        case HeatMap():
            return draw_heat_map(chart)
        case GrowthChart():
            return draw_growth(chart)
        case Strips():
            return draw_strips(chart)


def draw_sample(drawing: Drawing, series: Series, place: Place) -> None:
    """Draw a short piece of a series, as a legend shows it."""
    x, y = place
    if series.joined != "no":
        drawing.line(((x, y), (x + 18, y)), series.style.colour, 1.8, series.style.dash)
    if series.marked:
        drawing.mark((x + 9, y), series.style, 3.4)


def _add_legend(drawing: Drawing, series: Sequence[Series]) -> None:
    """Add rows of marks and names below a drawing."""
    x, y = 10.0, drawing.height + 12
    for each in series:
        needed = 34 + text_width(each.name, 10)
        if x > 10 and x + needed > drawing.width:
            x, y = 10.0, y + 16
        draw_sample(drawing, each, (x, y))
        drawing.words((x + 24, y + 3.5), each.name, 10)
        x += needed
    drawing.height = y + 10


def _plot(chart: Plot) -> Drawing:
    small = chart.small
    width, height, size, few = (210.0, 160.0, 9.0, 3) if small else (360.0, 270.0, 11.0, 5)
    left, right, top, bottom = (34.0, 202.0, 20.0, 32.0) if small else (46.0, 348.0, 26.0, 42.0)
    below = [] if small else _values_below(chart, right - left, size - 2)
    top, height = top + 12 * len(below), height + 12 * len(below)
    foot = height - bottom
    drawing = Drawing(width, height, f"{chart.title}: {chart.y.label} against {chart.x.label}")
    points = [point for series in chart.series for point in series.points]
    x = fit(chart.x, [edge for point in points for edge in edges(point.x, point.x_sd)], left, right)
    y = fit(chart.y, chart.y_range or [edge for point in points for edge in edges(point.y, point.y_sd)], foot, top)
    whole = chart.x.kind == "count" and x.spacing == "even"
    across = _apart(whole_ticks(x, 3 if small else 8) if whole else ticks(x, few), x, chart.x, size - 1)
    upward = ticks(y, few)
    drawing.title((4 if small else left, size + 3), chart.title, size if small else size + 1)
    for line, values in enumerate(below):
        drawing.words((left, 28 + 12 * line), values, size - 2, colour="muted")
    for value in upward:
        drawing.line(((left, y(value)), (right, y(value))), "grid", 0.8)
        drawing.words((left - 5, y(value) + 0.35 * size), say(value, chart.y, upward), size - 1, "end", "muted")
    for value in across:
        drawing.line(((x(value), foot), (x(value), foot + 3)), "muted", 0.8)
        drawing.words((x(value), foot + size + 4), say(value, chart.x, across), size - 1, "middle", "muted")
    drawing.line(((left, foot), (right, foot)), "muted", 0.8)
    drawing.words(((left + right) / 2, height - 6), chart.x.label, size, "middle", "muted")
    drawing.upward((size, (top + foot) / 2), chart.y.label, size)
    marked = [series for series in chart.series if series.marked]
    for series in (*(series for series in chart.series if not series.marked), *reversed(marked)):  # the first on top
        _draw_series(drawing, series, x, y, 2.6 if small else 3.6)
    if chart.named:
        _name_series(drawing, chart.series, x, y, (left, top - 2.0, width - 2.0, foot - 2.0), size - 1)
    return drawing


def _values_below(chart: Plot, width: float, size: float) -> list[str]:
    """Return every value below the axis, as ``sn 36.4, ewc 45.0 to 87.6``, in lines no wider than the plot."""
    lines: list[str] = []
    for series, values in chart.below:
        ends = [f"{100 * value:.1f}" if chart.y.kind == "percent" else f"{value:.3g}" for value in values]
        entry = f"{series.name} {' to '.join(dict.fromkeys((ends[0], ends[-1])))}"
        longer = f"{lines[-1]}, {entry}" if lines else f"↓ {entry}"
        if lines and text_width(longer, size) > width:
            lines.append(entry)
        else:
            lines[-1:] = [longer]
    return lines


def _name_series(drawing: Drawing, every: Sequence[Series], x: Scale, y: Scale, sheet: Area, size: float) -> None:
    """Write the name of each series next to the last mark of its line that has room for it."""
    marks = [[(x(point.x), y(point.y)) for point in series.points] for series in every]
    names, taken = [], []
    for series, places in zip(every, marks, strict=True):
        rivals = [place for other in marks if other is not places for place in other]
        on_line = [place for point, place in zip(series.points, places, strict=True) if not point.aside]
        names.append(Name(series.name, on_line[::-1], rivals))
        for point, (across, down) in zip(series.points, places, strict=True):
            left, right = map(x, edges(point.x, point.x_sd))
            foot, head = map(y, edges(point.y, point.y_sd))
            taken.append((across - 4, down - 4, across + 4, down + 4))
            taken += [(left, down - 2, right, down + 2), (across - 2, head, across + 2, foot)]
        taken += _along(_path(series, x, y))
    for series, place in zip(every, free_places(names, taken, sheet, size), strict=True):
        if place is not None:
            drawing.words(place, series.name, size, colour=series.style.colour)


def _along(path: Sequence[Place]) -> list[Area]:
    """Return small areas that cover the lines through some places."""
    found = []
    for (left, top), (right, bottom) in pairwise(path):
        steps = max(1, math.ceil(math.hypot(right - left, bottom - top) / 3))
        for step in range(steps + 1):
            across, down = left + (right - left) * step / steps, top + (bottom - top) * step / steps
            found.append((across - 2, down - 2, across + 2, down + 2))
    return found


def _path(series: Series, x: Scale, y: Scale) -> list[Place]:
    """Return the places that the line of a series passes through, if it has one."""
    if series.joined == "no":
        return []
    places = [(x(point.x), y(point.y)) for point in series.points if not point.aside]
    return _steps(places) if series.joined == "steps" else places


def _draw_series(drawing: Drawing, series: Series, x: Scale, y: Scale, size: float) -> None:
    style, points, stepped = series.style, series.points, series.joined == "steps"
    if stepped and any(point.y_sd for point in points):
        below, above = (
            _steps([(x(point.x), y(edges(point.y, point.y_sd)[side])) for point in points]) for side in (0, 1)
        )
        drawing.shape((*above, *reversed(below)), style.colour, opacity="0.15")
    path = _path(series, x, y)
    if len(path) > 1:
        drawing.line(path, style.colour, 1.8 if series.marked else 1, style.dash, series.name)
    if not series.marked:
        return
    size = 0.6 * size if stepped else size
    for point in points:
        across, down = place = x(point.x), y(point.y)
        if point.x_sd and not stepped:
            drawing.line([(x(edge), down) for edge in edges(point.x, point.x_sd)], style.colour, 1)
        if point.y_sd and not stepped:
            drawing.line([(across, y(edge)) for edge in edges(point.y, point.y_sd)], style.colour, 1)
        drawing.mark(place, style, 0.7 * size if point.aside else size, point.note)
        if point.ringed:
            drawing.circle(place, 2 * size, "ink", inside="none")


def _bars(chart: Bars) -> Drawing:
    size = 11.0
    left = 8 + max(text_width(label, size) for label in ("name", *(row.label for row in chart.rows)))
    room = 10 + max((text_width(row.text, size) for row in chart.rows), default=0)
    width = max(400.0, left + _LEAST_BARS + room)
    right, top = width - room, 28.0
    foot = top + _ROW * max(len(chart.rows), 1)
    drawing = Drawing(width, foot + 40, f"{chart.title}: {chart.axis.label}")
    x = fit(
        chart.axis, [edge for row in chart.rows for edge in edges(row.value, row.sd)], left, right, zero=chart.from_zero
    )
    drawing.title((0, 14), chart.title, 12)
    marked = _apart(ticks(x, 4), x, chart.axis, size - 1)
    for value in marked:
        drawing.line(((x(value), top - 4), (x(value), foot)), "grid", 0.8)
        drawing.words((x(value), foot + 13), say(value, chart.axis, marked), size - 1, "middle", "muted")
    drawing.words(((left + right) / 2, foot + 32), chart.axis.label, size, "middle", "muted")
    zero = x(0.0) if chart.from_zero else x.start
    for index, row in enumerate(chart.rows):
        middle, place = top + _ROW * (index + 0.5), x(row.value)
        drawing.words((left - 8, middle + 4), row.label, size, "end")
        drawing.words((right + 8, middle + 4), row.text, size)
        if chart.from_zero:
            corner, length = (min(zero, place), middle - 6), max(abs(place - zero), 0.6)
            drawing.box(corner, length, 12, row.style.colour, row.note)
        else:
            drawing.line(((left, middle), (right, middle)), "grid", 0.8, (1, 3))
        if row.sd:
            whisker = [(x(edge), middle) for edge in edges(row.value, row.sd)]
            drawing.line(whisker, "ink" if chart.from_zero else row.style.colour, 1.4)
        if not chart.from_zero:
            drawing.mark((place, middle), row.style, 4, row.note)
    if chart.from_zero:
        drawing.line(((zero, top - 4), (zero, foot)), "muted", 1)
    return drawing


def _apart(values: Sequence[float], scale: Scale, axis: Axis, size: float) -> list[float]:
    """Leave out ticks whose numbers would run into the one before."""
    kept: list[float] = []
    free = -math.inf
    for value in values:
        half = text_width(say(value, axis, values), size) / 2
        if scale(value) - half >= free:
            kept.append(value)
            free = scale(value) + half + 4
    return kept


def _steps(places: Sequence[Place]) -> list[Place]:
    """Return the corners of a line that stays level until the next place."""
    found = list(places[:1])
    for (_, before), (x, y) in pairwise(places):
        found += [(x, before), (x, y)]
    return found

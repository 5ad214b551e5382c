"""Charts → drawings: where axes, marks and words go."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from bocl.report.charts import Axis, Bars, Chart, GrowthChart, HeatMap, Plot, Series, Strips
from bocl.report.drawing import Box, Circle, Drawing, Line, Place, Shape, Words, mark, text_width
from bocl.report.label_placement import Area, Name, stand_beside
from bocl.report.scale import Scale, fit, say, ticks, whole_ticks
from bocl.report.tiles import draw_growth, draw_heat_map, draw_strips

WIDTH, BARS_WIDTH = 360.0, 400.0
_ROW = 19.0
_LEAST_BARS = 140.0  # the room of the bars themselves, however long the names next to them


def draw(chart: Chart, *, legend: bool = False) -> Drawing:
    """Draw a chart; with a legend of its series where nothing around it says who is who."""
    match chart:
        case Plot():
            drawing = _plot(chart)
            return _with_legend(drawing, chart.series) if legend and not chart.small else drawing
        case Bars():
            return _bars(chart)
        case HeatMap():
            return draw_heat_map(chart)
        case GrowthChart():
            return draw_growth(chart)
        case Strips():
            return draw_strips(chart)


def _plot(chart: Plot) -> Drawing:
    width, height, size = (210.0, 160.0, 9.0) if chart.small else (WIDTH, 270.0, 11.0)
    left, right, top, bottom = (34.0, 8.0, 20.0, 32.0) if chart.small else (46.0, 12.0, 26.0, 42.0)
    below = [] if chart.small else _told_below(chart, width - left - right, size - 2)
    top, height = top + 12 * len(below), height + 12 * len(below)
    drawing = Drawing(width, height, f"{chart.title}: {chart.y.label} against {chart.x.label}")
    points = [point for series in chart.series for point in series.points]
    x = fit(chart.x, [edge for p in points for edge in _edges(p.x, p.x_sd)], left, width - right)
    seen = chart.y_range or [edge for p in points for edge in _edges(p.y, p.y_sd)]
    y = fit(chart.y, seen, height - bottom, top)
    across = (
        ticks(x, 3 if chart.small else 5)
        if chart.x.kind != "count" or x.spacing != "even"
        else whole_ticks(x, 3 if chart.small else 8)
    )
    across = _apart(across, x, chart.x, size - 1)
    upward = ticks(y, 3 if chart.small else 5)
    items = drawing.items
    items.append(
        Words((left if not chart.small else 4, size + 3), chart.title, size + (0 if chart.small else 1), bold=True)
    )
    for line, told in enumerate(below):
        items.append(Words((left, 28 + 12 * line), told, size - 2, colour="muted"))
    for value in upward:
        items.append(Line(((left, y(value)), (width - right, y(value))), "grid", 0.8))
        items.append(Words((left - 5, y(value) + 0.35 * size), _said(value, chart.y, upward), size - 1, "end", "muted"))
    for value in across:
        items.append(Line(((x(value), height - bottom), (x(value), height - bottom + 3)), "muted", 0.8))
        place = (x(value), height - bottom + size + 4)
        items.append(Words(place, _said(value, chart.x, across), size - 1, "middle", "muted"))
    items.append(Line(((left, height - bottom), (width - right, height - bottom)), "muted", 0.8))
    items.append(Words(((left + width - right) / 2, height - 6), chart.x.label, size, "middle", "muted"))
    items.append(Words((size, (top + height - bottom) / 2), chart.y.label, size, "middle", "muted", upward=True))
    marked = [series for series in chart.series if series.marked]
    for series in (*(series for series in chart.series if not series.marked), *reversed(marked)):  # the first on top
        _draw_series(drawing, series, x, y, 2.6 if chart.small else 3.6)
    sheet = (left, top - 2.0, width - 2.0, height - bottom - 2.0)
    if chart.named:
        items.extend(_told_beside(chart, x, y, sheet, size - 1))
    return drawing


def _told_below(chart: Plot, width: float, size: float) -> list[str]:
    """Return lines that tell every value under the axis, as ``sn 36.4, ewc 45.0 to 87.6``, none wider than the plot."""
    lines: list[str] = []
    for series, values in chart.below:
        told = [f"{100 * value:.1f}" if chart.y.kind == "percent" else f"{value:.3g}" for value in values]
        said = f"{series.name} {' to '.join(dict.fromkeys((told[0], told[-1])))}"
        longer = f"{lines[-1]}, {said}" if lines else f"↓ {said}"
        if lines and text_width(longer, size) > width:
            lines.append(said)
        else:
            lines[-1:] = [longer]
    return lines


def _told_beside(chart: Plot, x: Scale, y: Scale, sheet: Area, size: float) -> list[Words]:
    """Return the names of series, each at the last mark of its line that has room for it."""
    marks = [[(x(point.x), y(point.y)) for point in series.points] for series in chart.series]
    beside, taken = [], []
    for series, places in zip(chart.series, marks, strict=True):
        rivals = tuple(place for other in marks if other is not places for place in other)
        on_line = [place for point, place in zip(series.points, places, strict=True) if not point.aside]
        beside.append(Name(series.name, tuple(reversed(on_line)), series.style.colour, rivals))
        for point, (across, down) in zip(series.points, places, strict=True):
            left, right = map(x, _edges(point.x, point.x_sd))
            foot, head = map(y, _edges(point.y, point.y_sd))
            taken.append((across - 4, down - 4, across + 4, down + 4))
            taken += [(left, down - 2, right, down + 2), (across - 2, head, across + 2, foot)]
        taken += _along(_path(series, x, y))
    return stand_beside(beside, taken, sheet, size)


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
    items = drawing.items
    style = series.style
    places = [(x(point.x), y(point.y)) for point in series.points]
    across = [tuple(map(x, _edges(point.x, point.x_sd))) for point in series.points]
    upward = [tuple(map(y, _edges(point.y, point.y_sd))) for point in series.points]
    stepped = series.joined == "steps"
    if stepped and any(point.y_sd for point in series.points):
        below, above = (
            [(place[0], end) for place, end in zip(places, side, strict=True)] for side in zip(*upward, strict=True)
        )
        items.append(Shape((*_steps(above), *reversed(_steps(below))), style.colour, opacity=0.15))
    path = _path(series, x, y)
    if len(path) > 1:
        items.append(Line(tuple(path), style.colour, 1.8 if series.marked else 1, style.dash, series.name))
    if not series.marked:
        return
    size = 0.6 * size if stepped else size
    for point, place, (left, right), (foot, head) in zip(series.points, places, across, upward, strict=True):
        if point.x_sd and not stepped:
            items.append(Line(((left, place[1]), (right, place[1])), style.colour, 1))
        if point.y_sd and not stepped:
            items.append(Line(((place[0], foot), (place[0], head)), style.colour, 1))
        items.append(mark(place, style, 0.7 * size if point.aside else size, point.note))
        if point.ringed:
            items.append(Circle(place, 2 * size, "ink", outline=True, empty=True))


def _bars(chart: Bars) -> Drawing:
    size = 11.0
    left = 8 + max(text_width(label, size) for label in ("name", *(row.label for row in chart.rows)))
    right = 10 + max((text_width(row.text, size) for row in chart.rows), default=0)
    width = max(BARS_WIDTH, left + _LEAST_BARS + right)
    top, bottom = 28.0, 40.0
    height = top + _ROW * max(len(chart.rows), 1) + bottom
    drawing = Drawing(width, height, f"{chart.title}: {chart.axis.label}")
    x = fit(
        chart.axis,
        [edge for row in chart.rows for edge in _edges(row.value, row.sd)],
        left,
        width - right,
        zero=chart.from_zero,
    )
    items = drawing.items
    items.append(Words((0, 14), chart.title, 12, bold=True))
    foot = height - bottom
    marked = _apart(ticks(x, 4), x, chart.axis, size - 1)
    for value in marked:
        items.append(Line(((x(value), top - 4), (x(value), foot)), "grid", 0.8))
        items.append(Words((x(value), foot + 13), _said(value, chart.axis, marked), size - 1, "middle", "muted"))
    items.append(Words(((left + width - right) / 2, height - 8), chart.axis.label, size, "middle", "muted"))
    zero = x(0.0) if chart.from_zero else x.start
    for index, row in enumerate(chart.rows):
        middle = top + _ROW * (index + 0.5)
        items.append(Words((left - 8, middle + 4), row.label, size, "end"))
        items.append(Words((width - right + 8, middle + 4), row.text, size))
        place = x(row.value)
        if chart.from_zero:
            items.append(Box(min(zero, place), middle - 6, max(abs(place - zero), 0.6), 12, row.style.colour, row.note))
        else:
            items.append(Line(((left, middle), (width - right, middle)), "grid", 0.8, (1, 3)))
        if row.sd:
            ends = ((x(row.value - row.sd), middle), (x(row.value + row.sd), middle))
            items.append(Line(ends, "ink" if chart.from_zero else row.style.colour, 1.4))
        if not chart.from_zero:
            items.append(mark((place, middle), row.style, 4, row.note))
    if chart.from_zero:
        items.append(Line(((zero, top - 4), (zero, foot)), "muted", 1))
    return drawing


def _with_legend(drawing: Drawing, series: Sequence[Series]) -> Drawing:
    """Add rows of marks and names below a drawing."""
    x, y = 10.0, drawing.height + 12
    items = [*drawing.items]
    for each in series:
        needed = 34 + text_width(each.name, 10)
        if x > 10 and x + needed > drawing.width:
            x, y = 10.0, y + 16
        items += sample(each, (x, y))
        items.append(Words((x + 24, y + 3.5), each.name, 10))
        x += needed
    return Drawing(drawing.width, y + 10, drawing.label, items)


def sample(series: Series, place: Place) -> list[Line | Shape | Circle]:
    """Return a short piece of a series, as a legend shows it."""
    x, y = place
    line = Line(((x, y), (x + 18, y)), series.style.colour, 1.8, series.style.dash)
    own = [line] if series.joined != "no" else []
    return [*own, mark((x + 9, y), series.style, 3.4)] if series.marked else [*own]


def _apart(values: Sequence[float], scale: Scale, axis: Axis, size: float) -> list[float]:
    """Leave out ticks whose numbers would run into the one before."""
    kept: list[float] = []
    free = -math.inf
    for value in values:
        half = text_width(_said(value, axis, values), size) / 2
        if scale(value) - half >= free:
            kept.append(value)
            free = scale(value) + half + 4
    return kept


def _said(value: float, axis: Axis, among: Sequence[float]) -> str:
    """Return a tick's number, as precise as its neighbours where they are evenly spaced."""
    return say(value, axis.kind, among if axis.spacing == "even" else ())


def _steps(places: Sequence[Place]) -> list[Place]:
    """Return the corners of a line that stays level until the next place."""
    found = list(places[:1])
    for (_, before), (x, y) in pairwise(places):
        found += [(x, before), (x, y)]
    return found


def _edges(value: float, sd: float | None) -> tuple[float, float]:
    return (value - (sd or 0), value + (sd or 0))

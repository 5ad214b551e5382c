"""Charts → drawings: where axes, marks and words go."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from bocl.records.wording import percent
from bocl.report.charts import Bars, Chart, Growth, HeatMap, Plot, Series
from bocl.report.drawing import Box, Circle, Drawing, Line, Place, Shape, Words, mark, text_width
from bocl.report.scale import Scale, fit, say, ticks, whole_ticks
from bocl.report.style import heat

WIDTH = 360.0
LEAST_HEAT = 0.1  # the least range of a heat map: what is nearly the same looks nearly the same
_ROW = 19.0


def draw(chart: Chart, *, legend: bool = False) -> Drawing:
    """Draw a chart; with a legend of its series where nothing around it says who is who."""
    match chart:
        case Plot():
            drawing = _plot(chart)
            return _with_legend(drawing, chart.series) if legend and not chart.small else drawing
        case Bars():
            return _bars(chart)
        case HeatMap():
            return _heat_map(chart)
        case Growth():
            return _growth(chart)


def _plot(chart: Plot) -> Drawing:
    width, height, size = (210.0, 160.0, 9.0) if chart.small else (WIDTH, 270.0, 11.0)
    left, right, top, bottom = (34.0, 8.0, 20.0, 32.0) if chart.small else (46.0, 12.0, 26.0, 42.0)
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
    upward = ticks(y, 3 if chart.small else 5)
    items = drawing.items
    items.append(
        Words((left if not chart.small else 4, size + 3), chart.title, size + (0 if chart.small else 1), bold=True)
    )
    for value in upward:
        items.append(Line(((left, y(value)), (width - right, y(value))), "grid", 0.8))
        items.append(
            Words((left - 5, y(value) + 0.35 * size), say(value, chart.y.kind, upward), size - 1, "end", "muted")
        )
    for value in across:
        items.append(Line(((x(value), height - bottom), (x(value), height - bottom + 3)), "muted", 0.8))
        place = (x(value), height - bottom + size + 4)
        items.append(Words(place, say(value, chart.x.kind, across), size - 1, "middle", "muted"))
    items.append(Line(((left, height - bottom), (width - right, height - bottom)), "muted", 0.8))
    items.append(Words(((left + width - right) / 2, height - 6), chart.x.label, size, "middle", "muted"))
    items.append(Words((size, (top + height - bottom) / 2), chart.y.label, size, "middle", "muted", upward=True))
    for series in chart.series:
        _draw_series(drawing, series, x, y, 2.6 if chart.small else 3.6)
    return drawing


def _draw_series(drawing: Drawing, series: Series, x: Scale, y: Scale, size: float) -> None:
    items = drawing.items
    style = series.style
    places = [(x(point.x), y(point.y)) for point in series.points]
    stepped = series.joined == "steps"
    if stepped and any(point.y_sd for point in series.points):
        above = [(x(point.x), y(point.y + (point.y_sd or 0))) for point in series.points]
        below = [(x(point.x), y(point.y - (point.y_sd or 0))) for point in series.points]
        items.append(Shape((*_steps(above), *reversed(_steps(below))), style.colour, opacity=0.15))
    if series.joined != "no" and len(places) > 1:
        path = _steps(places) if stepped else places
        items.append(Line(tuple(path), style.colour, 1.8 if series.marked else 1, style.dash, series.name))
    if not series.marked:
        return
    size = 0.6 * size if stepped else size
    for point, place in zip(series.points, places, strict=True):
        for sd, ends in (
            (point.x_sd, ((x(point.x - (point.x_sd or 0)), place[1]), (x(point.x + (point.x_sd or 0)), place[1]))),
            (point.y_sd, ((place[0], y(point.y - (point.y_sd or 0))), (place[0], y(point.y + (point.y_sd or 0))))),
        ):
            if sd and not stepped:
                items.append(Line(ends, style.colour, 1))
        items.append(mark(place, style, size, point.note))
        if point.ringed:
            items.append(Circle(place, 2 * size, "ink", outline=True, empty=True))


def _bars(chart: Bars) -> Drawing:
    size = 11.0
    left = 8 + max((text_width(row.label, size) for row in chart.rows), default=0)
    right = 10 + max((text_width(row.text, size) for row in chart.rows), default=0)
    top, bottom = 28.0, 40.0
    height = top + _ROW * max(len(chart.rows), 1) + bottom
    drawing = Drawing(WIDTH, height, f"{chart.title}: {chart.axis.label}")
    x = fit(
        chart.axis,
        [edge for row in chart.rows for edge in _edges(row.value, row.sd)],
        left,
        WIDTH - right,
        zero=chart.from_zero,
    )
    items = drawing.items
    items.append(Words((0, 14), chart.title, 12, bold=True))
    foot = height - bottom
    marked = ticks(x, 4)
    for value in marked:
        items.append(Line(((x(value), top - 4), (x(value), foot)), "grid", 0.8))
        items.append(Words((x(value), foot + 13), say(value, chart.axis.kind, marked), size - 1, "middle", "muted"))
    items.append(Words(((left + WIDTH - right) / 2, height - 8), chart.axis.label, size, "middle", "muted"))
    zero = x(0.0) if chart.from_zero else x.start
    for index, row in enumerate(chart.rows):
        middle = top + _ROW * (index + 0.5)
        items.append(Words((left - 8, middle + 4), row.label, size, "end"))
        items.append(Words((WIDTH - right + 8, middle + 4), row.text, size))
        place = x(row.value)
        if chart.from_zero:
            items.append(Box(min(zero, place), middle - 6, max(abs(place - zero), 0.6), 12, row.style.colour, row.note))
        else:
            items.append(Line(((left, middle), (WIDTH - right, middle)), "grid", 0.8, (1, 3)))
        if row.sd:
            ends = ((x(row.value - row.sd), middle), (x(row.value + row.sd), middle))
            items.append(Line(ends, "ink" if chart.from_zero else row.style.colour, 1.4))
        if not chart.from_zero:
            items.append(mark((place, middle), row.style, 4, row.note))
    if chart.from_zero:
        items.append(Line(((zero, top - 4), (zero, foot)), "muted", 1))
    return drawing


def _heat_map(chart: HeatMap) -> Drawing:
    columns, rows, size = len(chart.columns), len(chart.rows), 9.0
    cell = min(30.0, max(9.0, 290.0 / max(columns, 1)))
    high = min(cell, 22.0)
    title = f"{chart.title}, {chart.value.label}"
    left, top, bottom = 40.0, 26.0, 34.0
    width = max(left + columns * cell + 6, text_width(title, 11) + 6)
    drawing = Drawing(width, top + rows * high + bottom, title)
    items = drawing.items
    items.append(Words((0, 13), title, 11, bold=True))
    values = [value for row in chart.cells for value in row if not math.isnan(value)]
    most = max(values, default=1.0)
    least = min(*values, most - LEAST_HEAT) if values else 0.0
    for index, (label, row) in enumerate(zip(chart.rows, chart.cells, strict=True)):
        y = top + index * high
        items.append(Words((left - 5, y + high / 2 + 3), label, size, "end", "muted"))
        for place, value in enumerate(row):
            if math.isnan(value):
                continue
            colour, ink = heat((value - least) / (most - least))
            note = f"{chart.row_label} {label}, {chart.column_label} {chart.columns[place]}: {percent(value)}"
            items.append(Box(left + place * cell, y, cell - 1, high - 1, colour, note))
            if cell >= 22:
                spot = (left + (place + 0.5) * cell - 0.5, y + high / 2 + 3)
                items.append(Words(spot, f"{100 * value:.0f}", size, "middle", ink))
    foot = top + rows * high
    for place in range(0, columns, max(1, math.ceil(14 / cell))):
        items.append(Words((left + (place + 0.5) * cell, foot + 11), chart.columns[place], size, "middle", "muted"))
    items.append(Words((left + columns * cell / 2, foot + 26), chart.column_label, 10, "middle", "muted"))
    items.append(Words((10, top + rows * high / 2), chart.row_label, 10, "middle", "muted", upward=True))
    return drawing


def _growth(chart: Growth) -> Drawing:
    """A row of bars for each layer: what was known below, what the task added on top."""
    tasks, size = len(chart.tasks), 9.0
    left, top, bottom, gap, high = 34.0, 24.0, 32.0, 24.0, 62.0
    step = min(34.0, (WIDTH - left) / max(tasks, 1))
    drawing = Drawing(
        max(left + step * tasks + 4, 190.0), top + len(chart.layers) * (high + gap) + bottom - 12, chart.title
    )
    items = drawing.items
    items.append(Words((0, 13), chart.title, 11, bold=True))
    for layer, name in enumerate(chart.layers):
        total = sum(added[layer] for added in chart.added)
        foot = top + (layer + 1) * high + layer * gap + 12
        scale = Scale(0, max(total, 1), 0, high - 16)
        items.append(Words((left, foot - high + 4), f"{name}: {total:,} units", size + 1, colour="muted"))
        for value in (0, total):
            items.append(Words((left - 4, foot - scale(value) + 3), f"{value:,}", size - 1, "end", "muted"))
        items.append(Line(((left, foot), (left + step * tasks, foot)), "muted", 0.8))
        known = 0
        for task, added in enumerate(chart.added):
            new = added[layer]
            x = left + task * step + 0.15 * step
            note = f"task {task + 1}, {chart.tasks[task]}: {name} +{new:,}, then {known + new:,} units"
            items.append(Box(x, foot - scale(known), 0.7 * step, scale(known), "known", note))
            items.append(
                Box(
                    x,
                    foot - scale(known + new),
                    0.7 * step,
                    scale(known + new) - scale(known),
                    chart.style.colour,
                    note,
                )
            )
            known += new
            if step >= 17:
                spot = (x + 0.35 * step, foot - scale(known) - 2)
                items.append(Words(spot, f"+{new}" if task else "", size - 1.5, "middle", "ink"))
    foot = drawing.height - bottom + 14
    every = max(1, math.ceil(13 / step))
    for task in range(0, tasks, every):
        items.append(Words((left + (task + 0.5) * step, foot), str(task + 1), size, "middle", "muted"))
    items.append(Words((left + step * tasks / 2, drawing.height - 5), "task", size + 1, "middle", "muted"))
    items.append(Words((8, (top + foot) / 2), "units", size + 1, "middle", "muted", upward=True))
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


def _steps(places: Sequence[Place]) -> list[Place]:
    """Return the corners of a line that stays level until the next place."""
    found = [places[0]]
    for (_, before), (x, y) in pairwise(places):
        found += [(x, before), (x, y)]
    return found


def _edges(value: float, sd: float | None) -> tuple[float, float]:
    return (value - (sd or 0), value + (sd or 0))

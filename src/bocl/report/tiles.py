"""Charts of one network → drawings: rows of tiles and bars by task, layer and number of units."""

from __future__ import annotations

import math

from bocl.report.charts import GrowthChart, HeatMap, Strips
from bocl.report.drawing import Drawing, text_width
from bocl.report.scale import Scale, whole_ticks
from bocl.report.style import heat
from bocl.wording import percent

LEAST_HEAT = 0.1  # the least range of a heat map: what is nearly the same looks nearly the same
_SIZE = 9.0  # of numbers


def draw_heat_map(chart: HeatMap) -> Drawing:
    """Draw cells coloured by their values, written on where there is room."""
    columns = len(chart.columns)
    cell = min(30.0, max(9.0, 290.0 / max(columns, 1)))
    high = min(cell, 22.0)
    left, top = 40.0, 26.0
    foot = top + len(chart.rows) * high
    drawing = _sheet(f"{chart.title}, {chart.value.label}", left + columns * cell + 6, foot + 34)
    values = [value for row in chart.cells for value in row if not math.isnan(value)]
    most = max(values, default=1.0)
    least = min(*values, most - LEAST_HEAT) if values else 0.0
    for index, (label, row) in enumerate(zip(chart.rows, chart.cells, strict=True)):
        y = top + index * high
        drawing.words((left - 5, y + high / 2 + 3), label, _SIZE, "end", "muted")
        for place, value in enumerate(row):
            if math.isnan(value):
                continue
            colour, ink = heat((value - least) / (most - least))
            note = f"{chart.row_label} {label}, {chart.column_label} {chart.columns[place]}: {percent(value)}"
            drawing.box((left + place * cell, y), cell - 1, high - 1, colour, note)
            if cell >= 22:
                spot = (left + (place + 0.5) * cell - 0.5, y + high / 2 + 3)
                drawing.words(spot, f"{100 * value:.0f}", _SIZE, "middle", ink)
    for place in range(0, columns, max(1, math.ceil(14 / cell))):
        drawing.words((left + (place + 0.5) * cell, foot + 11), chart.columns[place], _SIZE, "middle", "muted")
    drawing.words((left + columns * cell / 2, foot + 26), chart.column_label, 10, "middle", "muted")
    drawing.upward((10, (top + foot) / 2), chart.row_label, 10)
    return drawing


def draw_growth(chart: GrowthChart) -> Drawing:
    """Draw a row of bars for each layer: known units below, what the task added on top."""
    tasks = len(chart.tasks)
    left, top, gap, high = 34.0, 24.0, 24.0, 62.0
    step = min(34.0, (360.0 - left) / max(tasks, 1))
    width, height = max(left + step * tasks + 4, 190.0), top + len(chart.layers) * (high + gap) + 20
    drawing = Drawing(width, height, chart.title)
    drawing.title((0, 13), chart.title, 11)
    for layer, name in enumerate(chart.layers):
        total = sum(added[layer] for added in chart.added)
        foot = top + (layer + 1) * high + layer * gap + 12
        least = _foot_of(chart.added[0][layer] if tasks else 0, total)
        scale = Scale(least, max(total, 1), 0, high - 16)
        drawing.words((left, foot - high + 4), f"{name}: {total:,} units", 10, colour="muted")
        for value in (least, total):
            drawing.words((left - 4, foot - scale(value) + 3), f"{value:,}", _SIZE - 1, "end", "muted")
        drawing.line(((left, foot), (left + step * tasks, foot)), "muted", 0.8)
        known = 0
        for task, added in enumerate(chart.added):
            now = known + added[layer]
            x = left + task * step + 0.15 * step
            note = f"task {task + 1}, {chart.tasks[task]}: {name} +{now - known:,}, then {now:,} units"
            for low, above, colour in ((0, known, "known"), (known, now, chart.style.colour)):
                if above > low:
                    drawing.box((x, foot - scale(above)), 0.7 * step, scale(above) - scale(low), colour, note)
            if task and step >= 17:
                drawing.words((x + 0.35 * step, foot - scale(now) - 2), f"+{now - known}", _SIZE - 1.5, "middle")
            known = now
    foot = height - 18
    for task in range(0, tasks, max(1, math.ceil(13 / step))):
        drawing.words((left + (task + 0.5) * step, foot), str(task + 1), _SIZE, "middle", "muted")
    drawing.words((left + step * tasks / 2, height - 5), "task", 10, "middle", "muted")
    drawing.upward((8, (top + foot) / 2), "units", 10)
    return drawing


def _foot_of(first: int, total: int) -> int:
    """Return where bars begin: at zero, or above it where a large first task would hide what later ones add."""
    grown = total - first
    return round(first - 0.4 * grown) if 0 < 2 * grown < first else 0


def draw_strips(chart: Strips) -> Drawing:
    """Draw a row of bars for each strip, all to one scale, and a dot under the number that was kept."""
    most = max((len(strip) for strip in chart.shares), default=1)
    left, top, high = 30.0, 26.0, 21.0
    step = min(14.0, 250.0 / most)
    foot = top + high * len(chart.rows)
    drawing = _sheet(chart.title, left + step * most + 6, foot + 32)
    tallest = max((share for strip in chart.shares for share in strip), default=1.0)
    for index, (row, strip, kept) in enumerate(zip(chart.rows, chart.shares, chart.kept, strict=True)):
        base = top + high * (index + 1) - 6
        likely = max(range(len(strip)), key=strip.__getitem__)
        shares = [f"{count} ({100 * strip[count]:.0f} %)" for count in (likely, kept)]
        note = f"{chart.row_label} {row}: likeliest {shares[0]}, kept {shares[1]}"
        drawing.words((left - 6, base), row, _SIZE, "end", "muted")
        drawing.line(((left, base), (left + step * most, base)), "grid", 0.8)
        outline = [(left, base)]
        for count, share in enumerate(strip):
            level = base - (high - 8) * share / tallest
            outline += [(left + step * count, level), (left + step * (count + 1), level)]
        drawing.shape((*outline, (left + step * len(strip), base)), chart.style.colour, note=note)
        drawing.circle((left + step * (kept + 0.5), base + 3), 1.8, "ink", note=note)
    for tick in whole_ticks(Scale(0, most - 1, 0, 1), 6) if most > 1 else [0.0]:
        drawing.words((left + step * (tick + 0.5), foot + 11), f"{tick:.0f}", _SIZE, "middle", "muted")
    drawing.words((left + step * most / 2, foot + 26), chart.column_label, 10, "middle", "muted")
    drawing.upward((9, (top + foot) / 2), chart.row_label, 10)
    return drawing


def _sheet(title: str, width: float, height: float) -> Drawing:
    """Return a sheet with a title, wide enough for it."""
    drawing = Drawing(max(width, text_width(title, 11) + 6), height, title)
    drawing.title((0, 13), title, 11)
    return drawing

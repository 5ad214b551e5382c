"""Charts of one network → drawings: rows of tiles and bars by task, layer and number of units."""

from __future__ import annotations

import math

from bocl.report.charts import GrowthChart, HeatMap, Strips
from bocl.report.drawing import Box, Circle, Drawing, Line, Shape, Words, text_width
from bocl.report.scale import Scale, whole_ticks
from bocl.report.style import heat
from bocl.wording import percent

LEAST_HEAT = 0.1  # the least range of a heat map: what is nearly the same looks nearly the same
_WIDTH = 360.0


def draw_heat_map(chart: HeatMap) -> Drawing:
    """Cells coloured by their values, written on where there is room."""
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


def draw_growth(chart: GrowthChart) -> Drawing:
    """A row of bars for each layer: what was known below, what the task added on top."""
    tasks, size = len(chart.tasks), 9.0
    left, top, bottom, gap, high = 34.0, 24.0, 32.0, 24.0, 62.0
    step = min(34.0, (_WIDTH - left) / max(tasks, 1))
    drawing = Drawing(
        max(left + step * tasks + 4, 190.0), top + len(chart.layers) * (high + gap) + bottom - 12, chart.title
    )
    items = drawing.items
    items.append(Words((0, 13), chart.title, 11, bold=True))
    for layer, name in enumerate(chart.layers):
        total = sum(added[layer] for added in chart.added)
        foot = top + (layer + 1) * high + layer * gap + 12
        least = _foot_of(chart.added[0][layer] if tasks else 0, total)
        scale = Scale(least, max(total, 1), 0, high - 16)
        items.append(Words((left, foot - high + 4), f"{name}: {total:,} units", size + 1, colour="muted"))
        for value in (least, total):
            items.append(Words((left - 4, foot - scale(value) + 3), f"{value:,}", size - 1, "end", "muted"))
        items.append(Line(((left, foot), (left + step * tasks, foot)), "muted", 0.8))
        known = 0
        for task, added in enumerate(chart.added):
            new = added[layer]
            x = left + task * step + 0.15 * step
            note = f"task {task + 1}, {chart.tasks[task]}: {name} +{new:,}, then {known + new:,} units"
            for low, above, colour in ((0, known, "known"), (known, known + new, chart.style.colour)):
                if above > low:
                    height = scale(above) - scale(low)
                    items.append(Box(x, foot - scale(above), 0.7 * step, height, colour, note))
            known += new
            if task and step >= 17:
                spot = (x + 0.35 * step, foot - scale(known) - 2)
                items.append(Words(spot, f"+{new}", size - 1.5, "middle", "ink"))
    foot = drawing.height - bottom + 14
    every = max(1, math.ceil(13 / step))
    for task in range(0, tasks, every):
        items.append(Words((left + (task + 0.5) * step, foot), str(task + 1), size, "middle", "muted"))
    items.append(Words((left + step * tasks / 2, drawing.height - 5), "task", size + 1, "middle", "muted"))
    items.append(Words((8, (top + foot) / 2), "units", size + 1, "middle", "muted", upward=True))
    return drawing


def _foot_of(first: int, total: int) -> int:
    """Return where bars begin: at zero, or above it where a large first task would hide what later ones add."""
    grown = total - first
    return round(first - 0.4 * grown) if 0 < 2 * grown < first else 0


def draw_strips(chart: Strips) -> Drawing:
    """A row of bars for each strip, all of one height for a share of all, and a dot under the number that was kept."""
    most = max((len(strip) for strip in chart.shares), default=1)
    left, top, bottom, high, size = 30.0, 26.0, 32.0, 21.0, 9.0
    step = min(14.0, 250.0 / most)
    width = max(left + step * most + 6, text_width(chart.title, 11) + 6)
    foot = top + high * len(chart.rows)
    drawing = Drawing(width, foot + bottom, chart.title)
    items = drawing.items
    items.append(Words((0, 13), chart.title, 11, bold=True))
    tallest = max((share for strip in chart.shares for share in strip), default=1.0)
    for index, (row, strip, kept) in enumerate(zip(chart.rows, chart.shares, chart.kept, strict=True)):
        base = top + high * (index + 1) - 6
        likely = max(range(len(strip)), key=strip.__getitem__)
        believed = ", ".join(
            f"{what} {count} ({100 * strip[count]:.0f} %)" for what, count in (("likeliest", likely), ("kept", kept))
        )
        note = f"{chart.row_label} {row}: {believed}"
        items.append(Words((left - 6, base), row, size, "end", "muted"))
        items.append(Line(((left, base), (left + step * most, base)), "grid", 0.8))
        outline = [(left, base)]
        for count, share in enumerate(strip):
            level = base - (high - 8) * share / tallest
            outline += [(left + step * count, level), (left + step * (count + 1), level)]
        items.append(Shape((*outline, (left + step * len(strip), base)), chart.style.colour, note=note))
        items.append(Circle((left + step * (kept + 0.5), base + 3), 1.8, "ink", note=note))
    for tick in whole_ticks(Scale(0, most - 1, 0, 1), 6) if most > 1 else [0.0]:
        items.append(Words((left + step * (tick + 0.5), foot + 11), f"{tick:.0f}", size, "middle", "muted"))
    items.append(Words((left + step * most / 2, foot + 26), chart.column_label, 10, "middle", "muted"))
    items.append(Words((9, (top + foot) / 2), chart.row_label, 10, "middle", "muted", upward=True))
    return drawing

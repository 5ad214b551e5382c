"""What a figure shows, before it is drawn: plain data with labelled axes. ``numbers`` returns it as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bocl.report.style import Style

Kind = Literal["plain", "percent", "count"]
Spacing = Literal["even", "factors", "errors"]
Cell = str | float | int | None


@dataclass(frozen=True)
class Table:
    """Rows under a header; numbers are kept as numbers, and None is what was not measured.

    name    of its files
    others  rows of settings that are not their system's headline, folded on the page
    """

    name: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    others: tuple[tuple[Cell, ...], ...] = ()


@dataclass(frozen=True)
class Axis:
    """What an axis measures, with its unit, and how its numbers are written and spaced.

    kind     `percent`: shares, shown times 100; `count`: whole numbers, shown as 20k or 1.5M
    spacing  equal steps are equal differences, equal factors, or equal factors of the error 1 - value
    """

    label: str
    kind: Kind = "plain"
    spacing: Spacing = "even"


@dataclass(frozen=True)
class Point:
    """A measurement, its standard deviations if it has any, and a note to show when hovered over.

    ringed  drawn with a ring around it
    aside   drawn smaller, and not on the line of its series
    """

    x: float
    y: float
    note: str = ""
    x_sd: float | None = None
    y_sd: float | None = None
    ringed: bool = False
    aside: bool = False


@dataclass(frozen=True)
class Series:
    """Points of one system; ``joined`` by lines, by steps, or not."""

    name: str
    style: Style
    points: tuple[Point, ...]
    joined: Literal["lines", "steps", "no"] = "lines"
    marked: bool = True


@dataclass(frozen=True)
class Plot:
    """Series over two axes.

    small    drawn small, as one of many in a row
    named    whether names stand next to the marks, where there is room
    y_range  what the axis shows: the same for several plots, or all but what is far below
    """

    name: str
    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    small: bool = False
    named: bool = False
    y_range: tuple[float, float] | None = None

    @property
    def below(self) -> list[tuple[Series, list[float]]]:
        """The values below the axis by series, lowest first."""
        least = -math.inf if self.y_range is None else self.y_range[0]
        found = [(series, sorted(point.y for point in series.points if point.y < least)) for series in self.series]
        return sorted(((series, low) for series, low in found if low), key=lambda entry: entry[1][-1])


@dataclass(frozen=True)
class Bar:
    """One row of ``Bars``: a value, its standard deviation, how it is written, and a note to show when hovered over."""

    label: str
    style: Style
    value: float
    sd: float | None
    text: str
    note: str = ""


@dataclass(frozen=True)
class Bars:
    """Values side by side: bars from zero, or marks on a line where zero is far away."""

    name: str
    title: str
    axis: Axis
    rows: tuple[Bar, ...]
    from_zero: bool = True


@dataclass(frozen=True)
class HeatMap:
    """Values by row and column; NaN where there is none.

    row_label, column_label  what a row and a column are
    value                    what a cell shows, with its unit
    """

    name: str
    title: str
    row_label: str
    column_label: str
    value: Axis
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class GrowthChart:
    """A network as it grew: ``added[task][layer]`` units."""

    name: str
    title: str
    style: Style
    layers: tuple[str, ...]
    tasks: tuple[str, ...]
    added: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Strips:
    """Shares of 0, 1, … units, a strip of bars for each row; ``kept`` is the number of units that was kept.

    row_label, column_label  what a row and a number are
    """

    name: str
    title: str
    row_label: str
    column_label: str
    style: Style
    rows: tuple[str, ...]
    shares: tuple[tuple[float, ...], ...]
    kept: tuple[int, ...]


Chart = Plot | Bars | HeatMap | GrowthChart | Strips


def numbers(chart: Chart) -> Table:
    """Return every number a figure shows, without columns that hold nothing."""
    header, rows = _numbers(chart)
    kept = [index for index in range(len(header)) if any(row[index] not in (None, "") for row in rows)]
    return Table(chart.name, tuple(header[i] for i in kept), tuple(tuple(row[i] for i in kept) for row in rows))


def _numbers(chart: Chart) -> tuple[tuple[str, ...], Sequence[tuple[Cell, ...]]]:
    match chart:
        case Plot():
            return ("series", chart.x.label, chart.y.label, "sd of x", "sd of y", "note"), [
                (series.name, point.x, point.y, point.x_sd, point.y_sd, point.note)
                for series in chart.series
                for point in series.points
            ]
        case Bars():
            bars = [(row.label, row.value, row.sd, row.text, row.note) for row in chart.rows]
            return ("name", chart.axis.label, "sd", "as shown", "note"), bars
        case HeatMap():
            return (chart.row_label, chart.column_label, chart.value.label), [
                (row, column, value)
                for row, values in zip(chart.rows, chart.cells, strict=True)
                for column, value in zip(chart.columns, values, strict=False)
                if not math.isnan(value)
            ]
        case GrowthChart():
            return ("task", "layer", "units added"), [
                (task, layer, count)
                for task, counts in zip(chart.tasks, chart.added, strict=True)
                for layer, count in zip(chart.layers, counts, strict=True)
            ]
        case Strips():
            return (chart.row_label, chart.column_label, "share", "kept"), [
                (row, count, share, int(count == kept))
                for row, strip, kept in zip(chart.rows, chart.shares, chart.kept, strict=True)
                for count, share in enumerate(strip)
            ]


def edges(value: float, sd: float | None) -> tuple[float, float]:
    """Return the ends of a whisker: one standard deviation to either side of a value."""
    return value - (sd or 0), value + (sd or 0)

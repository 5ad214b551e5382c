"""What a figure shows, before it is drawn: plain data with labelled axes. ``numbers`` gives any of them as a table."""

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
    """Rows under a header; a number is a number, and a cell nobody measured is None.

    name    of its files
    others  rows of settings that do not stand for their system, folded on the page
    """

    name: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    others: tuple[tuple[Cell, ...], ...] = ()


@dataclass(frozen=True)
class Axis:
    """An axis: what is measured, its unit included, and how its numbers are said.

    kind     `percent`: shares, shown times 100; `count`: whole numbers, shown as 20k or 1.5M
    spacing  equal steps along it are equal differences, equal factors, or equal factors of the error 1 - value
    """

    label: str
    kind: Kind = "plain"
    spacing: Spacing = "even"


@dataclass(frozen=True)
class Point:
    """A measurement, its standard deviations where there are any, and words to show over it.

    ringed  stands out
    aside   drawn smaller, and passed by the line of its series
    """

    x: float
    y: float
    note: str = ""
    x_sd: float | None = None
    y_sd: float | None = None
    ringed: bool = False
    aside: bool = False

    @property
    def x_edges(self) -> tuple[float, float]:
        """One standard deviation to either side of ``x``."""
        return _edges(self.x, self.x_sd)

    @property
    def y_edges(self) -> tuple[float, float]:
        """One standard deviation to either side of ``y``."""
        return _edges(self.y, self.y_sd)


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

    small    stands with many others in a row
    named    whether names stand beside the marks, where there is room
    y_range  what the axis is made to show: several plots the same, or all but what is far below
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
        """What lies under the axis, lowest first, by series."""
        least = -math.inf if self.y_range is None else self.y_range[0]
        found = [(series, sorted(point.y for point in series.points if point.y < least)) for series in self.series]
        return sorted(((series, low) for series, low in found if low), key=lambda entry: entry[1][-1])


@dataclass(frozen=True)
class Bar:
    """One row of ``Bars``: a value, its standard deviation, how it is written, and words to show over it."""

    label: str
    style: Style
    value: float
    sd: float | None
    text: str
    note: str = ""

    @property
    def edges(self) -> tuple[float, float]:
        """One standard deviation to either side of the value."""
        return _edges(self.value, self.sd)


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
    value                    what a cell shows, its unit included
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
    """Shares of 0, 1, … units, a strip of bars for each row; ``kept`` is the number that was taken.

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
    """Return every number a figure shows."""
    match chart:
        case Plot():
            rows = [
                (series.name, point.x, point.y, point.x_sd, point.y_sd, point.note)
                for series in chart.series
                for point in series.points
            ]
            return _table(chart.name, ("series", chart.x.label, chart.y.label, "sd of x", "sd of y", "note"), rows)
        case Bars():
            header = ("name", chart.axis.label, "sd", "as shown", "note")
            return _table(
                chart.name, header, [(row.label, row.value, row.sd, row.text, row.note) for row in chart.rows]
            )
        case HeatMap():
            cells = [
                (row, column, value)
                for row, values in zip(chart.rows, chart.cells, strict=True)
                for column, value in zip(chart.columns, values, strict=False)
            ]
            labels = (chart.row_label, chart.column_label, chart.value.label)
            return _table(chart.name, labels, [cell for cell in cells if not math.isnan(cell[2])])
        case GrowthChart():
            units = [
                (task, layer, count)
                for task, counts in zip(chart.tasks, chart.added, strict=True)
                for layer, count in zip(chart.layers, counts, strict=True)
            ]
            return _table(chart.name, ("task", "layer", "units added"), units)
        case Strips():
            shares = [
                (row, count, share, int(count == kept))
                for row, strip, kept in zip(chart.rows, chart.shares, chart.kept, strict=True)
                for count, share in enumerate(strip)
            ]
            return _table(chart.name, (chart.row_label, chart.column_label, "share", "kept"), shares)


def _table(name: str, header: tuple[str, ...], rows: Sequence[tuple[Cell, ...]]) -> Table:
    """Leave out columns that hold nothing."""
    kept = [index for index in range(len(header)) if any(row[index] not in (None, "") for row in rows)]
    return Table(name, tuple(header[i] for i in kept), tuple(tuple(row[i] for i in kept) for row in rows))


def _edges(value: float, sd: float | None) -> tuple[float, float]:
    return value - (sd or 0), value + (sd or 0)

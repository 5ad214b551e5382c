"""A folder with every figure as SVG, and its numbers as CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from bocl.records.files import cannot_write
from bocl.report.charts import Cell, Chart, Table, numbers
from bocl.report.layout import draw
from bocl.report.sections import Report, portraits
from bocl.wording import csv_cell, one_line

_SPECIAL = re.compile(r"[\\{}&%$#_^~]")
_IN_LATEX = {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
_UNICODE = {"±": r"$\pm$", "→": r"$\to$", "α": r"$\alpha$", "−": "$-$"}


def write_assets(report: Report, folder: Path) -> int:
    """Write what a report shows; return how many files there are."""
    count = 0
    for name, data in _files(report):
        try:  # can be made again, so it does not wait for the disk
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        except OSError as error:
            raise cannot_write(folder / name, error) from error
        count += 1
    return count


def _files(report: Report) -> Iterator[tuple[str, bytes]]:
    for section in report.sections:
        for _, charts in section.rows:
            for chart in charts:
                yield from _chart_files(chart)
        for table in (*(table for _, table in section.tables), *section.files):
            yield from _table_files(table)
            if table.others:
                yield from _table_files(Table(f"{table.name}-other-settings", table.header, table.others))
    for stream in report.streams:
        for portrait in portraits(stream):
            for group in portrait.groups:
                for chart in group.charts:
                    yield from _chart_files(chart)


def _chart_files(chart: Chart) -> Iterator[tuple[str, bytes]]:
    yield f"{_safe(chart.name)}.svg", draw(chart, legend=True).standalone().encode()
    yield from _table_files(numbers(chart))


def _table_files(table: Table) -> Iterator[tuple[str, bytes]]:
    yield f"{_safe(table.name)}.csv", to_csv(table).encode()
    yield f"{_safe(table.name)}.tex", to_latex(table).encode()


def to_csv(table: Table) -> str:
    """Return a table with every digit of its numbers."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [csv_cell(cell) for cell in row] for row in (table.header, *table.rows)
    )
    return text.getvalue()


def to_latex(table: Table) -> str:
    """Return a table as a LaTeX tabular, numbers to six digits."""
    lines = [_row(table.header), r"\hline", *map(_row, table.rows)]
    return "\n".join([rf"\begin{{tabular}}{{{'l' * len(table.header)}}}", *lines, r"\end{tabular}", ""])


def _row(cells: Sequence[Cell]) -> str:
    return " & ".join(_latex(cell) for cell in cells) + r" \\"


def _latex(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.6g}"
    text = _SPECIAL.sub(lambda found: _IN_LATEX.get(found[0], "\\" + found[0]), one_line(str(cell)))
    return "".join(_UNICODE.get(character, character) for character in text)


def _safe(name: str) -> str:
    """Return a name that every file system accepts."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.") or "unnamed"

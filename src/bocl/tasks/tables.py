"""Tables of samples: one row per sample, numbers in every column but the label's.

.csv        comma-separated, with a line of column names; UTF-8
.parquet    with pyarrow, the extra `parquet`
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bocl.checks import exceeds_memory
from bocl.errors import DataError, did_you_mean
from bocl.extras import needed
from bocl.wording import shown

LABEL = "label"  # the column, unless another is named


@dataclass(frozen=True, eq=False)
class Table:
    """A table as it was read: its file, and the values of every column by name."""

    path: Path
    columns: dict[str, Sequence[Any]]

    def labels(self, column: str) -> list[Any]:
        """Return the labels as the file holds them."""
        values = list(self._column(column, "label"))
        missing = next((row for row, value in enumerate(values, start=1) if value in ("", None)), None)
        if missing is not None:
            raise DataError(f"{self.path}: row {missing} has no '{column}'; fill it in, or leave the row out")
        return values

    def texts(self, column: str) -> list[str]:
        """Return the texts of a column; an empty cell is none."""
        values = list(self._column(column, "text"))
        wrong = [row for row, value in enumerate(values, start=1) if not value or not isinstance(value, str)]
        if wrong:
            raise DataError(f"{self.path}: row {wrong[0]} has no text in '{column}'; fill it in, or leave the row out")
        return values

    def inputs(self, columns: Sequence[str]) -> NDArray[np.float32]:
        """Return the numbers of these columns, (rows, columns)."""
        found = [self._numbers(name) for name in columns]
        if not found:
            raise DataError(f"{self.path} has no column besides the label's; give one column for each feature")
        return np.stack(found, axis=1)

    def _column(self, name: str, what: str) -> Sequence[Any]:
        if name not in self.columns:
            only = next(iter(self.columns)) if len(self.columns) == 1 else ""
            hint = "; are its values separated by commas?" if ";" in only or "\t" in only else ""
            raise DataError(f"{self.path} has no {what} column '{name}'{did_you_mean(name, self.columns)}{hint}")
        return self.columns[name]

    def _numbers(self, name: str) -> NDArray[np.float32]:
        values = self._column(name, "feature")
        try:
            with np.errstate(over="ignore"):
                numbers = np.asarray(values, dtype=np.float64).astype(np.float32)
            wrong = np.argwhere(~np.isfinite(numbers)) if numbers.ndim == 1 else [[0]]
        except (ValueError, TypeError):
            wrong = [[row] for row, value in enumerate(values) if not _is_number(value)]
        if len(wrong):
            row = int(wrong[0][0])
            raise DataError(
                f"{self.path}: column '{name}' holds {shown(values[row])} in row {row + 1}, which is not a finite "
                "float32 number; turn text into numbers, fill in what is missing, or leave the column out"
            )
        return numbers


def read_labels(tables: Iterable[Table], column: str) -> list[list[Any]]:
    """Return the labels of the parts of a task: integers where all of them can be, else what the files hold."""
    found = [table.labels(column) for table in tables]
    if all(_is_integer(label) for labels in found for label in labels):
        return [[int(label) for label in labels] for labels in found]
    return found


def read_table(path: Path, content: bytes) -> Table:
    """Read the bytes of a table's file."""
    if excess := exceeds_memory(8 * len(content)):
        raise DataError(f"{path} takes {excess}; split it, or keep it as .npz")
    return Table(path, _parquet(path, content) if path.suffix.lower() == ".parquet" else _csv(path, content))


def _csv(path: Path, content: bytes) -> dict[str, Sequence[Any]]:
    try:
        rows = list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as comma-separated text in UTF-8: {error}") from error
    rows = [row for row in rows if row]
    if len(rows) < 2:
        raise DataError(f"{path} holds no samples; give a line of column names and one line per sample")
    names, samples = rows[0], rows[1:]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{path} has two columns called '{twice}'; rename one of them")
    for number, row in enumerate(samples, start=1):
        if len(row) != len(names):
            raise DataError(f"{path}: row {number} has {len(row)} values for {len(names)} columns; mend that line")
    return dict(zip(names, zip(*samples, strict=True), strict=True))


def _parquet(path: Path, content: bytes) -> dict[str, Sequence[Any]]:
    parquet = needed("pyarrow.parquet", "parquet", f"{path} is a Parquet file")
    try:
        file = parquet.ParquetFile(io.BytesIO(content))
        if excess := exceeds_memory(8 * file.metadata.num_rows * file.metadata.num_columns):
            raise DataError(f"{path} takes {excess} once unpacked; split it")
        table = file.read()
        return {name: table.column(name).to_pylist() for name in table.column_names}
    except DataError:
        raise
    except Exception as error:  # a damaged file raises nearly anything
        raise DataError(f"{path} cannot be read as a Parquet file: {' '.join(str(error).split())}") from error


def _is_integer(value: Any) -> bool:
    """Whether a label is an integer, or one as text; 007 is a name, because the number would lose its zeros."""
    return type(value) is int or (isinstance(value, str) and bool(re.fullmatch("0|-?[1-9][0-9]{0,17}", value)))


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (ValueError, TypeError):
        return False
    return True

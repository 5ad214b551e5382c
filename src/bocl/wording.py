"""Values, figures and messages as a person reads them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import date, time
from typing import TypeVar

T = TypeVar("T")
_FIGURE = re.compile(r"[+-]?[\d,.]+( ± [\d,.]+)?( %)?")
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # a spreadsheet computes a cell that begins so


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return ``1 group``, ``2,000 groups``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def shown(value: object) -> str:
    """Return a value short enough for one line."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # a user's own __repr__ may fail in any way, and Python refuses to write very large integers
        text = f"a {type(value).__name__}"
    return shortened(text)


def shortened(text: str) -> str:
    """Return a text cut to 60 characters at most."""
    return text if len(text) <= 60 else text[:57] + "…"


def as_written(value: object) -> str:
    """Return a value as a TOML file holds it, with its kind unless that is obvious."""
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return f"a table with {', '.join(map(str, value))}" if value else "an empty table"
    if isinstance(value, date | time):
        return f"the date or time {value}"
    text = shortened(json.dumps(value, ensure_ascii=False, default=str))
    if isinstance(value, str):
        return f"the string {text}"
    return f"the list {text}" if isinstance(value, list | tuple) else text


def one_line(message: str) -> str:
    """Return a message with what cannot be printed, such as a line break in a name, escaped."""
    return "".join(map(_printable, message))


def _printable(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")


def csv_cell(cell: T) -> T | str:
    """Return a number as it is, and words so that no spreadsheet takes them for a formula."""
    if not isinstance(cell, str):
        return cell
    words = one_line(cell)
    return f"'{words}" if words.lstrip().startswith(_FORMULA) and not _FIGURE.fullmatch(words) else words


def percent(value: float) -> str:
    """Return an accuracy as a percentage."""
    return "failed" if math.isnan(value) else f"{100 * value:.2f} %"


def points(value: float) -> str:
    """Return a difference of accuracies in points; exactly none is a plain 0."""
    return "0" if value == 0 else f"{100 * value:+.2f}"


def duration(seconds: float) -> str:
    """Return a time."""
    if seconds < 600:
        return f"{seconds:.1f} s" if seconds < 60 and not isinstance(seconds, int) else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def roughly(seconds: float) -> str:
    """Return a time in one unit, for an estimate or an age: ``45 s``, ``12 min``, ``5 h``, ``3 days``."""
    for unit, length, most in (("s", 1, 100), ("min", 60, 100), ("h", 3600, 48)):
        if (count := round(seconds / length)) < most:
            return f"{count} {unit}"
    return f"{round(seconds / 86400)} days"


def millions(count: float) -> str:
    """Return a large count in three figures or so."""
    return f"{count / 1e6:,.1f} M" if count >= 1e6 else f"{count / 1e3:,.0f} k"


def widths_text(widths: Sequence[int]) -> str:
    """Return units added, one number per hidden group."""
    return ", ".join(map(str, widths))

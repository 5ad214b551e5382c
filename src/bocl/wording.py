"""Words that messages are made of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, time


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return ``1 group``, ``2 groups``."""
    return f"{count} {one if count == 1 else many or one + 's'}"


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
    """Return a value as a TOML file holds it, with its kind where that is not plain to see."""
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

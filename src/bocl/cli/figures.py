"""Figures and messages as a person would read them on a terminal."""

from __future__ import annotations

from bocl.records.wording import duration, mean_and_spread, millions, percent, points, widths_text

__all__ = ["duration", "mean_and_spread", "millions", "one_line", "percent", "points", "widths_text"]


def one_line(message: str) -> str:
    """Return a message with what cannot be printed, such as a line break in a name, escaped; a list keeps its lines."""
    return "\n  ".join("".join(map(_shown, entry)) for entry in message.split("\n  "))


def _shown(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")

"""Figures and messages as a person would say them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean, stdev

from bocl.records.record import Widths


def one_line(message: str) -> str:
    """Return a message with what cannot be printed, such as a line break in a name, escaped; a list keeps its lines."""
    return "\n  ".join("".join(map(_shown, entry)) for entry in message.split("\n  "))


def _shown(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")


def percent(value: float) -> str:
    """Return an accuracy as a percentage."""
    return "failed" if math.isnan(value) else f"{100 * value:.2f} %"


def points(value: float) -> str:
    """Return a difference of accuracies in points; exactly nothing is a plain 0."""
    return "0" if value == 0 else f"{100 * value:+.2f}"


def duration(seconds: float) -> str:
    """Return a time."""
    if seconds < 600:
        return f"{seconds:.1f} s" if seconds < 60 and not isinstance(seconds, int) else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def millions(count: float) -> str:
    """Return a large count in three figures or so."""
    return f"{count / 1e6:,.1f} M" if count >= 1e6 else f"{count / 1e3:,.0f} k"


def widths_text(widths: Widths) -> str:
    """Return units added, one number per hidden group."""
    return ", ".join(map(str, widths))


def mean_and_spread(values: Sequence[float], mean: Callable[[float], str], spread: Callable[[float], str]) -> str:
    """Return ``mean ± sd`` of several values; the mean alone where they are one, or all the same."""
    shown = mean(fmean(values))
    return f"{shown} ± {spread(stdev(values))}" if len(set(values)) > 1 else shown

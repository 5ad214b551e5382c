"""Figures and messages as a person would say them: those of every room, at hand for the commands."""

from __future__ import annotations

from bocl.records.wording import duration, mean_and_spread, millions, one_line, percent, points, widths_text

__all__ = ["duration", "mean_and_spread", "millions", "one_line", "percent", "points", "widths_text"]

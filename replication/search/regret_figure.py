"""Draws regret against trials: a figure for each α of a record of replays."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bocl.errors import DataError
from bocl.report.charts import Axis, Plot, Point, Series
from bocl.report.style import Style

#: Ours and the paper's are dashed if they do not use earlier tasks.
STYLES = {
    "ours": Style("#d55e00"),
    "no transfer": Style("#d55e00", "circle", (6, 3), hollow=True),
    "paper": Style("#3b2f8f", "square"),
    "paper cold": Style("#3b2f8f", "square", (6, 3), hollow=True),
    "random": Style("#98a1aa", "diamond"),
    "reinforce": Style("#056777", "triangle"),
    "optuna TPE": Style("#c58a00", "plus"),
    "optuna GP": Style("#7a7420", "cross"),
}


def read_standings(record: Path) -> list[dict[str, Any]]:
    """Return the standings that `python -m replication.search replay --json` printed."""
    try:
        standings: list[dict[str, Any]] = json.loads(record.read_text(encoding="utf-8"))["standings"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{record} is not a record of replays: {error}; `replay --json` prints one") from error
    return standings


def regret_plots(name: str, standings: Sequence[Mapping[str, Any]]) -> list[Plot]:
    """Return a plot for each α: mean regret after every trial, in points, with its standard deviation shaded.

    Trial 0 (no units at all) is left out: no search chose it, and it lies far above the others.
    """
    return [
        Plot(
            f"regret-{name}-alpha-{alpha:g}",
            f"{name}, α {alpha:g}",
            Axis("trials", "count"),
            Axis("regret (points of reward)"),
            tuple(_series(standing) for standing in standings if standing["alpha"] == alpha),
        )
        for alpha in dict.fromkeys(standing["alpha"] for standing in standings)
    ]


def _series(standing: Mapping[str, Any]) -> Series:
    name = standing["searcher"]
    curve = list(zip(standing["regret"], standing["spread"], strict=True))[1:]
    points = tuple(
        Point(trial, 100 * mean, f"{name}, {trial}: {100 * mean:.2f} ± {100 * sd:.2f}", y_sd=100 * sd)
        for trial, (mean, sd) in enumerate(curve, start=1)
    )
    return Series(name, STYLES[name], points, joined="steps")

"""Regret against trials of searchers replayed side by side, drawn as the report's figures are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bocl.report.charts import Axis, Plot, Point, Series
from bocl.report.layout import draw
from bocl.report.style import DASHES, MARKS, Style
from bocl.report.svg import side_by_side

if TYPE_CHECKING:
    from bocl.benchmarks.search import Standing

_MOST = 4.0  # points of regret that a panel shows
_COLOURS = ("bocl", "paper-search", "random-search", "reinforce-search", "rcl", "den", "pgn", "gem", "ewc", "sn")


def draw_regret(standings: Sequence[Standing], path: Path) -> None:
    """Draw a panel per α into an SVG file: mean regret after each trial, its standard deviation shaded."""
    path.write_text(side_by_side([draw(plot, legend=True) for plot in regret_plots(standings)]), encoding="utf-8")


def regret_plots(standings: Sequence[Standing]) -> list[Plot]:
    """Return one plot per α, in points; a searcher looks the same in all of them."""
    names = list(dict.fromkeys(standing.searcher for standing in standings))
    plots = []
    for alpha in dict.fromkeys(standing.alpha for standing in standings):
        series = []
        for standing in (one for one in standings if one.alpha == alpha):
            place = names.index(standing.searcher)
            style = Style(_COLOURS[place % len(_COLOURS)], MARKS[place % len(MARKS)], DASHES[place % len(DASHES)])
            curve = zip(standing.regret, standing.spread, strict=True)
            points = [
                Point(
                    trial, 100 * regret, f"{standing.searcher}, trial {trial}: {100 * regret:.2f}", None, 100 * spread
                )
                for trial, (regret, spread) in enumerate(curve)
            ]
            series.append(Series(standing.searcher, style, tuple(points), joined="steps"))
        axes = Axis("trials", "count"), Axis("regret (points)")
        plots.append(Plot(f"regret-{alpha:g}", f"α = {alpha:g}", *axes, tuple(series), y_range=(0.0, _MOST)))
    return plots

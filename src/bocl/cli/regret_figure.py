"""Regret against trials, drawn. Matplotlib is imported when it is used, and is no dependency."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bocl.benchmarks.search import Standing
from bocl.errors import InputError


def draw_regret(standings: Sequence[Standing], path: Path) -> None:
    """Draw a panel per α into an SVG file: mean regret after each trial, its standard deviation shaded."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("a figure needs matplotlib; pip install 'bocl[bench]', or leave --figure out") from error
    alphas = list(dict.fromkeys(standing.alpha for standing in standings))
    figure = Figure(figsize=(5 * len(alphas), 4), layout="constrained")
    panels = figure.subplots(1, len(alphas), squeeze=False)[0]
    for panel, alpha in zip(panels, alphas, strict=True):
        for standing in (one for one in standings if one.alpha == alpha):
            trials = range(len(standing.regret))
            middle = [100 * value for value in standing.regret]
            reach = [100 * value for value in standing.spread]
            panel.plot(trials, middle, label=standing.searcher)
            low = [max(0.0, value - spread) for value, spread in zip(middle, reach, strict=True)]
            high = [value + spread for value, spread in zip(middle, reach, strict=True)]
            panel.fill_between(trials, low, high, alpha=0.08)
        panel.set(title=f"α = {alpha:g}", xlabel="trials", ylabel="regret in points", ylim=(0, 4))
    panels[0].legend()
    figure.savefig(path, format="svg")

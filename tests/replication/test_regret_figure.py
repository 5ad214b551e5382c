"""Regret against trials, drawn."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from types import SimpleNamespace

from replication.regret_figure import draw_regret, regret_plots


def standings(*searchers, alphas=(0.005, 0.01)):
    return [
        SimpleNamespace(searcher=name, alpha=alpha, regret=(0.05, 0.02, 0.01), spread=(0.01, 0.01, 0.0))
        for alpha in alphas
        for name in searchers
    ]


def test_there_is_a_panel_for_each_alpha_and_a_line_for_each_searcher(tmp_path):
    draw_regret(standings("ours", "random"), tmp_path / "regret.svg")
    root = ET.parse(tmp_path / "regret.svg").getroot()
    assert len(root) == 2
    words = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert [words.count(word) for word in ("α = 0.005", "α = 0.01", "ours", "random")] == [1, 1, 2, 2]


def test_regret_is_in_points_and_a_searcher_looks_the_same_in_every_panel():
    first, second = regret_plots(standings("ours", "random"))
    assert [(point.x, point.y, point.y_sd) for point in first.series[0].points] == [(0, 5, 1), (1, 2, 1), (2, 1, 0)]
    assert [series.style for series in first.series] == [series.style for series in second.series]
    assert len({series.style for series in first.series}) == 2


def test_any_number_of_searchers_can_be_drawn():
    (plot,) = regret_plots(standings(*(f"search {number}" for number in range(40)), alphas=(0.1,)))
    assert len({series.style for series in plot.series}) == 40

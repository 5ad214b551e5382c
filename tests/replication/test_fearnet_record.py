"""What the documentation says of FearNet is what was measured, and what was measured shows that sleep helps."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from replication.fearnet import RECORD, SEEDS

DOCS = Path(__file__).parents[2] / "docs" / "methods.md"
KINDS = ("task_incremental", "class_incremental")


def runs():
    found = json.loads(RECORD.read_text(encoding="utf-8"))["runs"]
    assert [run["seed"] for run in found] == list(SEEDS)
    return found


def test_the_figures_of_the_page_are_those_of_the_record():
    text = DOCS.read_text(encoding="utf-8")
    for step, name in ((8, "`fearnet`, nine tasks"), (9, "`fearnet`, ten tasks")):
        means = [np.mean([np.mean(run["steps"][step][kind]) for run in runs()]) for kind in KINDS]
        assert f"| {name} | {100 * means[0]:.1f} % | {100 * means[1]:.1f} % |" in text
    means = [np.mean([run["nearest_class_mean"][kind] for run in runs()]) for kind in KINDS]
    assert f"| the nearest class mean, ten tasks | {100 * means[0]:.1f} % | {100 * means[1]:.1f} % |" in text


def test_what_was_in_hc_is_recalled_better_after_sleep():
    for run in runs():
        before, after = zip(
            *(
                (run["steps"][task]["class_incremental"][task], run["steps"][task + 1]["class_incremental"][task])
                for task in range(1, 9)
                if run["steps"][task]["slept"] < run["steps"][task + 1]["slept"]
            ),
            strict=True,
        )
        assert len(before) == 4
        assert np.mean(after) > np.mean(before) + 0.05

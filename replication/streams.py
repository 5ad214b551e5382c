"""The replication's runs grouped: the paper's streams first, and as headlines the runs that studies mark so."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import cache

from bocl.records.summary import RunSummary
from bocl.report.systems import StreamResults, arrange
from replication.records import STUDIES, name_of

STREAMS = ("permuted-mnist", "mixed-mnist", "split-cifar100")


def arrange_replication(runs: Sequence[RunSummary]) -> list[StreamResults]:
    """Group runs; streams are in the paper's order, others follow by name."""
    streams = arrange(runs, is_headline)
    return sorted(streams, key=lambda one: STREAMS.index(one.name) if one.name in STREAMS else len(STREAMS))


def is_headline(run: RunSummary) -> bool:
    """Whether a run marks its system's headline: by its record, or if that is older than the mark, by its study."""
    return name_of(run) in headline_names() if run.headline is None else run.headline


@cache
def headline_names() -> frozenset[str]:
    """Return the names of the runs that studies mark as headlines."""
    studies = [
        tomllib.loads(file.read_text(encoding="utf-8")) for file in STUDIES.iterdir() if file.name.endswith(".toml")
    ]
    runs = [run for study in studies for run in study["run"]]
    return frozenset(run.get("name", run.get("method")) for run in runs if run.get("headline"))

"""Where the runs of the paper's studies are recorded, and what the place of a record says of its run."""

from __future__ import annotations

from pathlib import Path

from bocl.records.archives import SUFFIX
from bocl.records.summary import RunSummary

RESULTS = Path(__file__).parent / "results"
STUDIES = Path(__file__).parent / "studies"


def preset_of(run: RunSummary) -> str:
    """Return the preset that a journal was made on: the name of its folder or archive."""
    return run.folder.parent.name.removesuffix(SUFFIX)


def name_of(run: RunSummary) -> str:
    """Return its study's name for a run: that of its journal, or of the folder of runs that it lies in."""
    alone = run.folder.suffix == ".jsonl"
    return run.folder.name.rpartition("-seed-")[0] if alone else run.folder.parent.name

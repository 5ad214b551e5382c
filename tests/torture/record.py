"""How far the torture has come, and its last whole result, which is published.

runs/torture/HASH/PART.json     what was done of a part; HASH is of the library and of this folder: a change begins anew
tests/torture-last-run.json     the last time all parts were done
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "tests" / "torture-last-run.json"
PAGE = ROOT / "docs" / "nothing-is-lost.md"
BEGIN, END = "<!-- torture -->\n", "<!-- /torture -->"

sys.path.append(str(ROOT / "tests"))
from gpu_record import commit, source_hash  # noqa: E402


@dataclass
class Done:
    """What was done of a group of cases.

    cases     how many
    figures   what they counted
    wrong     what must not be, each in words
    seconds   they took
    finished  whether that is all of them
    """

    cases: int = 0
    figures: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0
    finished: bool = False

    def add(self, figures: Mapping[str, int]) -> None:
        """Take in the figures of one more case."""
        self.cases += 1
        for name, count in figures.items():
            self.figures[name] = self.figures.get(name, 0) + count


class Progress:
    """What was done of one part, kept after every case."""

    def __init__(self, part: str, place: Path | None = None) -> None:
        self.path = (place or ROOT / "runs" / "torture" / harness_hash()) / f"{part}.json"
        kept = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.groups = {name: Done(**done) for name, done in kept.items()}

    def of(self, group: str) -> Done:
        """Return what was done of a group."""
        return self.groups.setdefault(group, Done())

    def keep(self) -> None:
        """Write it down; a kill while it is written leaves the old one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps({name: asdict(done) for name, done in self.groups.items()}, indent=1))
        partial.replace(self.path)


def harness_hash() -> str:
    """Return a hash of the library's source and of this folder's."""
    digest = hashlib.sha256(source_hash().encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(f"{path.name}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def publish(parts: Mapping[str, Iterable[str]], place: Path = PLACE, kept: Path | None = None) -> dict[str, Any] | None:
    """Write the result of all parts, {name: its groups}, if all are done; return it."""
    import torch

    results = {}
    for part, names in parts.items():
        progress = Progress(part, kept)
        groups = [progress.of(name) for name in names]
        if not all(done.finished for done in groups):
            return None
        figures: Counter[str] = Counter()
        for done in groups:
            figures.update(done.figures)
        results[part] = {
            "cases": sum(done.cases for done in groups),
            "wrong": sum(len(done.wrong) for done in groups),
            "minutes": round(sum(done.seconds for done in groups) / 60, 1),
            "figures": dict(figures),
        }
    run = {
        "date": date.today().isoformat(),
        "commit": commit(),
        "source": source_hash(),
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "system": platform.system()},
        "parts": results,
    }
    place.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
    return run


def last_result(place: Path = PLACE) -> dict[str, Any] | None:
    """Return the result on record."""
    return json.loads(place.read_text(encoding="utf-8")) if place.exists() else None


def describe(run: Mapping[str, Any] | None) -> str:
    """Say in one line what a result tells."""
    if run is None:
        return "no torture is on record: `make torture` writes tests/torture-last-run.json"
    cases, wrong = (sum(part[name] for part in run["parts"].values()) for name in ("cases", "wrong"))
    since = "of this source" if run["source"] == source_hash() else "the source has changed since"
    at = f" at {run['commit']}" if run["commit"] else ""
    return f"last torture: {cases:,} cases, {wrong} wrong, {run['date']}{at}, torch {run['versions']['torch']}; {since}"


def table(run: Mapping[str, Any]) -> str:
    """Return a result as a table of the documentation."""
    versions = run["versions"]
    at = f", commit `{run['commit']}`" if run["commit"] else ""
    lines = [
        f"{run['date']}{at}, source `{run['source']}`, Python {versions['python']}, PyTorch {versions['torch']}, "
        f"{versions['system']}:",
        "",
        "| part | cases | wrong | minutes | what they counted |",
        "|---|---|---|---|---|",
    ]
    for name, part in run["parts"].items():
        figures = ", ".join(f"{count:,} {what}" for what, count in part["figures"].items())
        lines.append(f"| `{name}` | {part['cases']:,} | {part['wrong']} | {part['minutes']:g} | {figures} |")
    return "\n".join(lines)


def table_on(page: Path = PAGE) -> str:
    """Return the table that a page shows."""
    return page.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip()


def write_table(run: Mapping[str, Any], page: Path = PAGE) -> None:
    """Put the table of a result into its page."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    page.write_text(f"{before}{begin}{table(run)}\n{end}{after}", encoding="utf-8")

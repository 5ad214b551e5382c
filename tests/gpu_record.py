"""Tests that need a GPU: skipped where there is none, and their last whole run on record, since CI has none."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections import Counter
from datetime import date
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLACE = Path(__file__).with_name("gpu-last-run.json")


def gpu() -> str | None:
    """Return the name of the GPU, None where there is none."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def source_hash() -> str:
    """Return a hash of the library's source, which tells whether it has changed since a run."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "src").rglob("*.py")):
        digest.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def commit() -> str:
    """Return the commit that is checked out, -dirty where files differ from it, '' outside a repository."""
    if shutil.which("git") is None:
        return ""
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip()


def describe(place: Path) -> str:
    """Say in one line what the record tells of the last run."""
    if not place.exists():
        return f"no GPU run is on record: `make test-gpu` on a machine with a GPU writes tests/{place.name}"
    run = json.loads(place.read_text(encoding="utf-8"))
    since = "of this source" if run["source"] == source_hash() else "the source has changed since"
    at = f" at {run['commit']}" if run["commit"] else ""
    outcome = f"{run['passed']} passed, {run['failed']} failed"
    return f"last GPU run: {outcome}, {run['date']}{at}, torch {run['torch']} on {run['device']}; {since}"


class GpuTests:
    """A plugin of pytest for tests marked ``gpu``."""

    def __init__(self, place: Path = PLACE) -> None:
        self.place = place
        self.outcomes: Counter[str] = Counter()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Skip tests that need a GPU where there is none."""
        marked = [item for item in items if item.get_closest_marker("gpu")]
        if marked and gpu() is None:
            for item in marked:
                item.add_marker(pytest.mark.skip(reason="there is no GPU"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count what came of each; a failure before or after a test is one, too."""
        if "gpu" in report.keywords and (report.failed or (report.passed and report.when == "call")):
            self.outcomes[report.outcome] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        """Write the record of a whole run, and say what is on record."""
        whole = config.args_source is not config.ArgsSource.ARGS and not config.option.keyword
        if whole and config.option.markexpr == "gpu" and self.outcomes:
            self._write()
        terminalreporter.write_line(describe(self.place))

    def _write(self) -> None:
        import torch

        run = {
            "date": date.today().isoformat(),
            "commit": commit(),
            "source": source_hash(),
            "torch": torch.__version__,
            "device": gpu(),
            "passed": self.outcomes["passed"],
            "failed": self.outcomes["failed"],
        }
        self.place.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")

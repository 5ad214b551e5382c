"""The short version of ``make torture``, in a process of its own, because it forks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import bocl.errors

SOURCE = Path(bocl.errors.__file__).parents[1]


def tortured(script: str) -> subprocess.CompletedProcess[str]:
    """Run the short version of a script of this folder."""
    return subprocess.run(
        [sys.executable, "-W", "error", str(Path(__file__).with_name(script)), "--short"],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )


def test_killed_runs_end_as_if_nothing_had_happened():
    done = tortured("kills.py")
    assert done.returncode == 0, done.stderr
    assert "killed 7 times" in done.stdout
    assert "a pick, " in done.stdout
    assert "killed 3 times" in done.stdout

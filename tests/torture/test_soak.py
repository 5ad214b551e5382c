"""The short version of the soak, in a process of its own, because it forks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import bocl.errors

SOURCE = Path(bocl.errors.__file__).parents[1]


def test_nothing_grows_but_the_network():
    done = subprocess.run(
        [sys.executable, "-W", "error", str(Path(__file__).with_name("soak.py")), "--short"],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "tasks: 12\nkills: 2\n" in done.stdout

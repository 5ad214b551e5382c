"""The short version of ``make torture``, each part in a process of its own, because they fork."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bocl.errors

SOURCE = Path(bocl.errors.__file__).parents[1]
CASES = {"kills": 14, "corruption": 64, "sequences": 2, "disks": 12, "soak": 1}


@pytest.mark.parametrize("part", CASES)
def test_nothing_is_lost(part):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(Path(__file__).parent), part, "--short"],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    cases = [int(count) for count in re.findall(r": (\d+) cases, 0 wrong", done.stdout)]
    assert sum(cases) == CASES[part]

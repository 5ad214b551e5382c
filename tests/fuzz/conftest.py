"""Prints how many cases of each kind there were, and what came of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from fuzzing import TALLY, TIMES

sys.path.append(str(Path(__file__).parents[1] / "tasks"))  # its small data files and its server serve here too


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if TIMES > 1:
        terminalreporter.section("generated cases")
        for (kind, outcome), count in sorted(TALLY.items()):
            terminalreporter.write_line(f"{kind:40} {outcome:10} {count:7,}")
        terminalreporter.write_line(f"{'in all':51} {sum(TALLY.values()):7,}")

"""The table of runs on the terminal that asked for them, while they are made somewhere else."""

from __future__ import annotations

import re
import shutil
import time
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from bocl.progress import watch
from bocl.progress.display import Display
from bocl.progress.watch import watching

OLD = Path(__file__).parents[1] / "fixtures" / "run-format-2"
STEERING = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Screen:
    """The few codes that rich steers a terminal with: up, erase the line, back to its beginning."""

    def __init__(self, written: str) -> None:
        self.lines, self.row = [""], 0
        for word in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\n|\r|[^\x1b\n\r]+", written):
            if word == "\n":
                self.row += 1
                self.lines += [""] * (self.row == len(self.lines))
            elif word.endswith("A") and STEERING.fullmatch(word):
                self.row -= int(word[2:-1] or 1)
            elif word == "\x1b[2K":
                self.lines[self.row] = ""
            elif not STEERING.fullmatch(word) and word != "\r":
                self.lines[self.row] += word


@pytest.fixture
def console():
    """Return a terminal of a size that does not change."""
    return Console(file=StringIO(), force_terminal=True, width=80, height=24, color_system=None)


def shown(console: Console) -> list[str]:
    return [line.rstrip() for line in Screen(console.file.getvalue()).lines]


def until(console: Console, word: str) -> None:
    """Wait until a word is on the screen."""
    deadline = time.monotonic() + 20
    while word not in "\n".join(shown(console)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert word in "\n".join(shown(console))


def test_runs_are_shown_while_they_come_and_what_is_said_stays_above(tmp_path, console, monkeypatch):
    monkeypatch.setattr(watch, "PAUSE", 0.05)
    folders = [tmp_path / "runs" / name for name in ("first", "second")]
    with watching(folders, console) as given:
        until(console, "no run has begun yet")
        shutil.copytree(OLD, folders[0])
        until(console, "1 of 2 runs finished, 1 not begun")
        Display(console=given).say("1/2  the first  finished")
        shutil.copytree(OLD, folders[1])
        until(console, "2 of 2 runs finished")
        lines = shown(console)
        assert lines[0] == "1/2  the first  finished"
        assert lines[1].startswith("runs in ")
        assert sum(line.startswith("runs in ") for line in lines) == 1, "nothing is left of an earlier table"
    assert "".join(shown(console)) == "1/2  the first  finished"


def test_nothing_is_shown_where_there_is_no_terminal(tmp_path):
    console = Console(file=StringIO(), width=80)
    with watching([tmp_path / "run"], console) as given:
        Display(console=given).say("1/1  finished")
    assert console.file.getvalue() == "1/1  finished\n"

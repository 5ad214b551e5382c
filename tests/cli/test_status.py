"""``bocl status``: runs that others write, looked at from another terminal."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from test_cli import SMALL

import bocl.version
from bocl.cli import printing
from bocl.progress import watch
from bocl.records.journal import Journal, read
from bocl.records.run_log import JOURNAL

OLD = Path(__file__).parents[1] / "fixtures" / "run-format-2"


def cut(folder, place, lines):
    """Copy the first lines of a run's journal, as they were while the run was under way."""
    place.mkdir(parents=True)
    whole = (folder / JOURNAL).read_bytes().splitlines(keepends=True)
    (place / JOURNAL).write_bytes(b"".join(whole[:lines]))


def test_a_run_is_shown_from_its_first_record_to_its_last(bocl, tmp_path):
    assert bocl("run", *SMALL)[0] == 0
    records = read(tmp_path / "runs/digits/bocl-seed0" / JOURNAL)
    for count in range(len(records) + 1):
        cut(tmp_path / "runs/digits/bocl-seed0", tmp_path / f"cut/{count}/bocl-seed0", count)
        code, out, err = bocl("status", f"cut/{count}", "--json")
        assert (code, err) == (0, "")
        (run,) = json.loads(out)["runs"]
        done = [record for record in records[:count] if record["kind"] == "task"]
        rounds = [record for record in records[:count] if record["kind"] == "round" and record["task"] == len(done)]
        assert (run["method"], run["stream"]) == (("bocl", "permuted-digits") if count else ("", ""))
        assert (run["tasks_finished"], run["tasks"]) == (len(done), 2 if count else 0)
        assert (run["rounds"], run["children"]) == (len(rounds), sum(len(record["widths"]) for record in rounds))
        assert run["accuracy"] == (sum(done[-1]["row"]) / len(done) if done else None)
        assert (run["node"], run["device"]) == ((platform.node().split(".")[0], "cpu") if count else ("", ""))
        assert run["state"] == ("finished" if count == len(records) else "under way")
    assert bocl("status", "runs")[1].splitlines()[-1] == "1 of 1 run finished"
    code, out, _ = bocl("status", "cut", "runs")
    assert code == 0
    assert f"2 of {len(records) + 2} runs finished, {len(records)} under way; " in out


def test_it_fits_80_columns(bocl, tmp_path, monkeypatch):
    for number in range(3):
        cut(OLD, tmp_path / f"a-study/with-a-long-name-{number}/permuted-digits/bocl-without-attention/bocl-seed0", 3)
    written = StringIO()
    console = Console(file=written, width=80, force_terminal=True, color_system=None)
    monkeypatch.setattr(printing, "make_console", lambda: console)
    assert bocl("status", "a-study")[0] == 0
    lines = written.getvalue().splitlines()
    assert len(lines) == 8
    assert all(len(line) <= 80 for line in lines)


def test_a_damaged_run_is_told_below_the_others(bocl, tmp_path):
    for name in "ab":
        cut(OLD, tmp_path / "runs" / name, 99)
    data = (tmp_path / "runs/a" / JOURNAL).read_bytes()
    (tmp_path / "runs/a" / JOURNAL).write_bytes(data[:100] + b"x" + data[101:])
    (tmp_path / "runs/b" / JOURNAL).write_bytes(data + data[:50])
    code, out, err = bocl("status", "runs")
    assert (code, err) == (0, ""), "an unfinished line is nothing to tell: somebody is writing it"
    rows = [line for line in out.splitlines() if line.startswith(("a ", "b "))]
    assert [row.split()[-1] for row in rows] == ["unreadable", "finished"]
    assert f"runs/a/{JOURNAL}, line 1: damaged, its checksum does not match" in out
    found = json.loads(bocl("status", "runs", "--json")[1])
    assert [run["state"] for run in found["runs"]] == ["unreadable", "finished"]
    assert "checksum" in found["runs"][0]["problem"]


def test_nothing_is_written_and_a_run_may_begin_meanwhile(bocl, tmp_path):
    shutil.copytree(OLD, tmp_path / "runs" / "old")

    def listing():
        return [(path, path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(tmp_path.rglob("*"))]

    before = listing()
    assert bocl("status", "runs")[0] == 0
    assert bocl("status", "runs/old", "--json")[0] == 0
    assert listing() == before
    with Journal.open(tmp_path / "runs" / "old" / JOURNAL):
        assert bocl("status", "runs")[0] == 0, "somebody writes"
    (tmp_path / "runs" / "old" / JOURNAL).touch()
    assert bocl("status", "runs")[0] == 0


def test_a_grid_that_goes_on_is_looked_at_again_and_again(bocl, tmp_path, monkeypatch):
    """A terminal shows the first run, then, after a pause, the second one, too."""
    cut(OLD, tmp_path / "runs" / "first", 99)
    console = Console(file=StringIO(), width=80, height=12, force_terminal=True, color_system=None)
    monkeypatch.setattr(printing, "make_console", lambda: console)
    seen = []

    def pause(seconds):
        seen.append((seconds, console.file.getvalue()))
        console.file.truncate(0)
        console.file.seek(0)
        if len(seen) == 2:
            raise KeyboardInterrupt
        cut(OLD, tmp_path / "runs" / "second", 2)

    monkeypatch.setattr(time, "sleep", pause)
    code, out, err = bocl("status", "runs", "--watch")
    assert (code, out, err) == (130, "", "")
    assert [seconds for seconds, _ in seen] == [watch.PAUSE] * 2
    assert "1 of 1 run finished" in seen[0][1]
    assert "1 of 2 runs finished, 1 under way" in seen[1][1]
    assert console.file.getvalue().count("\x1b[?25h") == 1, "the cursor is back"


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no pseudo-terminals")
def test_watching_on_a_terminal_ends_with_ctrl_c(tmp_path):
    cut(OLD, tmp_path / "runs" / "first", 99)
    ours, theirs = os.openpty()
    env = {**os.environ, "PYTHONPATH": str(Path(bocl.version.__file__).parents[1]), "COLUMNS": "80", "LINES": "24"}
    command = [sys.executable, "-m", "bocl", "status", "runs", "--watch"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=tmp_path) as process:
        os.close(theirs)
        shown = b""
        while b"1 of 1 run finished" not in shown:
            shown += os.read(ours, 4096)  # raises OSError where the process ends before
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
    os.close(ours)
    assert b"Traceback" not in shown


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nowhere"], "nowhere: there is no such folder"),
        (["empty"], "there is no run in it yet"),
        (["file"], "file cannot be read: Not a directory"),
        (["empty", "--watch"], "--watch draws on a terminal"),
        (["empty", "--watch", "--json"], "--watch draws on a terminal"),
        (["x" * 300], "there is no such folder"),
        ([], "Missing argument"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(bocl, tmp_path, words, told):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    code, out, err = bocl("status", *words)
    assert (code, out) == (2, "")
    assert told in err
    assert len(err.splitlines()) == 1

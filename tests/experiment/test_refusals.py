"""A run that is refused leaves every byte of its folder as it was; a journal that was cut short costs no model."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from bocl.errors import DamagedError, FolderError
from bocl.experiment.run import run
from bocl.records import run_log
from bocl.records.events import TaskStarted
from bocl.records.journal import read
from bocl.records.run_log import JOURNAL, RunLog


def content(folder: Path) -> dict[str, str]:
    """Return the hash of every file of a folder."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def lines(folder: Path) -> list[bytes]:
    return (folder / JOURNAL).read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize("kept", ["nothing", "the start", "a torn start", "the first round"])
def test_a_journal_that_was_cut_short_is_refused_and_the_model_stays(tmp_path, small, kept):
    config = small("stream.tasks=2")
    run(config, tmp_path)
    whole = lines(tmp_path)
    rest = {
        "nothing": b"",
        "the start": whole[0],
        "a torn start": whole[0][:50],
        "the first round": whole[0] + whole[1],
    }
    (tmp_path / JOURNAL).write_bytes(rest[kept])
    before = content(tmp_path)
    with pytest.raises(FolderError, match=r"the journal was cut short; restore it|is empty, but .* is not"):
        run(config, tmp_path)
    assert content(tmp_path) == before


def test_a_journal_that_lost_its_last_task_is_refused(tmp_path, small):
    config = small("stream.tasks=2")
    run(config, tmp_path)
    last = [record["kind"] for record in read(tmp_path / JOURNAL)].index("task", 3)
    (tmp_path / JOURNAL).write_bytes(b"".join(lines(tmp_path)[:last]))
    before = content(tmp_path)
    with pytest.raises(
        DamagedError, match="task-01/last is missing"
    ):  # it was removed once the second task was finished
        run(config, tmp_path)
    assert content(tmp_path) == before


def test_what_a_killed_process_left_of_the_next_task_is_no_reason_to_refuse(tmp_path, small):
    config = small("stream.tasks=2")

    class Stopped(BaseException):
        pass

    def stop(event):
        if isinstance(event, TaskStarted) and event.index == 1:
            raise Stopped

    run(config, tmp_path / "whole")
    with pytest.raises(Stopped):
        run(config, tmp_path / "killed", callback=stop)
    (tmp_path / "killed/checkpoints/task-02").mkdir()
    (tmp_path / "killed/checkpoints/task-02/model.json").write_bytes(b"half of")
    (tmp_path / "killed/canaries/task-02.safetensors").write_bytes(b"half of")
    run(config, tmp_path / "killed")
    whole, killed = (content(tmp_path / name) for name in ("whole", "killed"))
    assert {**killed, JOURNAL: ""} == {**whole, JOURNAL: ""}


@pytest.mark.parametrize("tail", [b'{"before":"', b"\0" * 40])
def test_a_refused_run_cuts_no_torn_record(tmp_path, small, tail):
    run(small("stream.tasks=1"), tmp_path)
    with (tmp_path / JOURNAL).open("ab") as file:
        file.write(tail)
    before = content(tmp_path)
    with pytest.raises(FolderError, match=r"recipe\.epochs"):
        run(small("stream.tasks=1", "recipe.epochs=7"), tmp_path)
    assert content(tmp_path) == before


def test_a_refused_session_adds_no_record(tmp_path, small, monkeypatch):
    config = small("stream.tasks=3", "search.kind=random", "search.trials=3", "search.round_size=1")

    class Stopped(BaseException):
        pass

    def stop(event):
        if getattr(event, "number", 0) == 2:
            raise Stopped

    with pytest.raises(Stopped):
        run(config, tmp_path, callback=stop)
    before = content(tmp_path)
    monkeypatch.setattr("bocl.search.ledger.random_untried", lambda *_: (1, 2))
    for _ in range(2):
        with pytest.raises(FolderError, match="are asked for"):
            run(config, tmp_path)
    assert content(tmp_path) == before


def test_reading_a_journal_takes_one_look_at_each_session(tmp_path, small, monkeypatch):
    run(small("stream.tasks=1", "method=sn"), tmp_path)
    start, *others = read(tmp_path / JOURNAL)
    looks = []
    real = run_log.lasting_settings
    monkeypatch.setattr(run_log, "lasting_settings", lambda config: looks.append(1) or real(config))
    log = RunLog.of([*[start] * 200, *others], tmp_path / JOURNAL)
    assert (len(log.starts), len(looks)) == (200, 200)


def test_a_run_whose_children_had_memory_for_one_is_resumed(tmp_path, small):
    config = small("stream.tasks=1", "search.memory_gb=1e-6")
    run(config, tmp_path)
    assert len(run(config, tmp_path)) == 1

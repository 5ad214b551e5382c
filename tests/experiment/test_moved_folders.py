"""A run's folder in careless hands: moved, locked, linked and thinned out while it is used."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bocl.cli.main import app
from bocl.errors import DamagedError, FolderError, WorkError
from bocl.experiment.audit import DriftError
from bocl.experiment.grid import plan
from bocl.experiment.run import run
from bocl.methods.method import Learner
from bocl.records.events import RoundStarted, TaskDone, TaskStarted
from bocl.records.journal import Journal, read
from bocl.records.run_log import JOURNAL


class Stopped(BaseException):
    """What stops a run between two tasks."""


def content(folder: Path) -> dict[str, bytes]:
    """Return everything in a folder: the bytes of its files, and where its links lead."""
    return {
        path.relative_to(folder).as_posix(): os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def weights(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in content(folder).items() if name != JOURNAL}


def stop_before_the_second_task(event):
    if isinstance(event, TaskStarted) and event.index == 1:
        raise Stopped


@pytest.fixture
def begun(tmp_path, small):
    """A run of two tasks, the first of which is finished."""
    with pytest.raises(Stopped):
        run(small(), tmp_path / "begun", callback=stop_before_the_second_task)
    return tmp_path / "begun"


class TestMoved:
    @pytest.mark.parametrize("when", [RoundStarted, TaskDone])
    def test_a_folder_that_is_renamed_stops_its_run_which_resumes_where_it_is_now(self, tmp_path, small, when):
        run(small(), tmp_path / "whole")
        here, there = tmp_path / "here", tmp_path / "there"

        def rename(event):
            if isinstance(event, when) and here.exists():
                here.rename(there)

        with pytest.raises(WorkError, match=r"journal\.jsonl was moved or replaced during the run"):
            run(small(), here, callback=rename)
        assert not here.exists(), "nothing is written at the old place"
        run(small(), there)
        assert weights(there) == weights(tmp_path / "whole")

    def test_a_folder_that_is_replaced_by_another_run_of_the_same_name_is_left_alone(self, begun, small):
        other = begun.with_name("other")
        shutil.copytree(begun, other)
        before = content(other)

        def replace(event):
            if isinstance(event, RoundStarted) and other.exists():
                begun.rename(begun.with_name("away"))
                other.rename(begun)

        with pytest.raises(WorkError, match="was moved or replaced"):
            run(small(), begun, callback=replace)
        assert content(begun) == before

    def test_a_journal_that_is_deleted_is_back_when_the_run_stops(self, tmp_path, small):
        run(small(), tmp_path / "whole")

        def delete(event):
            if isinstance(event, TaskDone) and event.record.index == 0:
                (tmp_path / "run" / JOURNAL).unlink()

        with pytest.raises(WorkError, match="was removed during the run, which stops here; it is back"):
            run(small(), tmp_path / "run", callback=delete)
        run(small(), tmp_path / "run")
        assert weights(tmp_path / "run") == weights(tmp_path / "whole")

    def test_a_run_is_no_place_for_runs(self, begun):
        with pytest.raises(FolderError, match="is a run; give the folder above it"):
            plan("digits", out=str(begun))

    def test_what_is_not_ours_in_a_stale_checkpoint_stays(self, tmp_path, small):
        def add(event):
            if isinstance(event, TaskDone) and event.record.index == 0:
                (tmp_path / "checkpoints/task-01/mine").mkdir()
                (tmp_path / "checkpoints/task-01/mine/thesis.txt").write_text("years of work")

        run(small("method=sn"), tmp_path, callback=add)
        assert (tmp_path / "checkpoints/task-01/mine/thesis.txt").read_text() == "years of work"
        assert not (tmp_path / "checkpoints/task-01/model.json").exists()

    def test_deleting_a_lock_lets_no_second_writer_in(self, tmp_path, small):
        run(small(), tmp_path / "whole")
        folder = tmp_path / "run"
        refused = []

        def delete(event):
            if isinstance(event, RoundStarted):
                for lock in folder.glob("*.lock"):
                    lock.unlink()
                with pytest.raises(FolderError, match="in use by another process") as error:
                    run(small(), folder)
                refused.append(error)

        folder.mkdir()
        (folder / f"{JOURNAL}.lock").touch()  # as earlier versions made it
        run(small(), folder, callback=delete)
        assert refused
        assert weights(folder) == weights(tmp_path / "whole")

    def test_the_lock_of_an_earlier_version_at_work_is_respected(self, begun, small):
        with Journal.open(begun / f"{JOURNAL}.lock"), pytest.raises(FolderError, match="in use by another process"):
            run(small(), begun)


class TestLinks:
    @pytest.mark.parametrize("name", ["rounds", "canaries", "checkpoints", "rounds/task-02", "checkpoints/task-02"])
    def test_a_link_among_the_folders_of_a_run_is_refused_and_not_followed(self, begun, small, name):
        elsewhere = begun.with_name("elsewhere")
        if (begun / name).exists():
            (begun / name).rename(elsewhere)
        else:
            elsewhere.mkdir()
        (elsewhere / "task-01-pick-7").mkdir()  # which would be removed as stale
        (elsewhere / "task-01.safetensors.partial").write_bytes(b"of somebody else")
        (begun / name).symlink_to(elsewhere)
        before = content(begun), content(elsewhere), sorted(elsewhere.iterdir())
        with pytest.raises(FolderError, match=f"{name} is a link, and a run writes and removes only"):
            run(small(), begun)
        assert (content(begun), content(elsewhere), sorted(elsewhere.iterdir())) == before

    def test_a_link_that_appears_during_a_run_stops_it(self, begun, small):
        elsewhere = begun.with_name("elsewhere")

        def link(event):
            if isinstance(event, RoundStarted) and not elsewhere.exists():
                (begun / "rounds").rename(elsewhere)
                (begun / "rounds").symlink_to(elsewhere)

        with pytest.raises(FolderError, match="rounds is a link"):
            run(small(), begun, callback=link)
        assert [path.name for path in elsewhere.iterdir()] == ["task-01"]

    def test_a_journal_that_is_a_link_is_read_and_not_written(self, begun, small):
        elsewhere = begun.with_name("elsewhere.jsonl")
        (begun / JOURNAL).rename(elsewhere)
        (begun / JOURNAL).symlink_to(elsewhere)
        before = elsewhere.read_bytes()
        with pytest.raises(FolderError, match="it is a link"):
            run(small(), begun)
        assert elsewhere.read_bytes() == before
        assert len(read(begun / JOURNAL)) > 2

    def test_a_file_that_is_a_link_is_replaced_where_it_lies(self, begun, small):
        target = begun.with_name("target")
        target.write_bytes(b"of somebody else")
        (begun / "canaries/task-02.safetensors").symlink_to(target)
        run(small(), begun)
        assert target.read_bytes() == b"of somebody else"
        assert not (begun / "canaries/task-02.safetensors").is_symlink()


class TestDamageIsFoundEarly:
    @pytest.mark.parametrize("file", ["canaries/task-01.safetensors", "checkpoints/task-01/weights-*"])
    def test_a_resumed_run_looks_at_what_is_stored_before_it_trains(self, begun, small, monkeypatch, file):
        (path,) = begun.glob(file)
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        before = content(begun)
        monkeypatch.setattr(Learner, "learn", lambda *_, **__: pytest.fail("it trained first"))
        with pytest.raises(FolderError, match="is damaged: its hash is not the one"):
            run(small(), begun)
        assert content(begun) == before

    def test_a_resumed_run_asks_its_canaries_before_it_trains(self, begun, small, monkeypatch):
        monkeypatch.setattr("bocl.experiment.audit.canary_drift", lambda *_: 0.5)
        monkeypatch.setattr(Learner, "learn", lambda *_, **__: pytest.fail("it trained first"))
        with pytest.raises(DriftError, match="the logits of its canaries are off"):
            run(small(), begun)

    @pytest.mark.parametrize("file", ["canaries/task-01.safetensors", "checkpoints/task-02/weights-*"])
    def test_run_and_show_of_a_finished_run_name_a_file_that_is_gone(self, tmp_path, small, file):
        run(small(), tmp_path)
        (path,) = tmp_path.glob(file)
        path.unlink()
        with pytest.raises(FolderError, match=r"(canaries/task-01|checkpoints/task-02/weights-\w+)\.safetensors"):
            run(small(), tmp_path)
        shown = CliRunner().invoke(app, ["show", str(tmp_path)])
        assert shown.exit_code == 0
        name = "canaries/task-01.safetensors" if "canaries" in file else "checkpoints/task-02/weights-*.safetensors"
        assert f"{name} is missing; results come from the journal" in shown.stderr

    def test_run_and_show_of_a_finished_run_without_its_checkpoint_say_so(self, tmp_path, small):
        run(small(), tmp_path)
        shutil.rmtree(tmp_path / "checkpoints")
        for work in (
            lambda: run(small(), tmp_path),
            lambda: CliRunner().invoke(app, ["show", str(tmp_path)], catch_exceptions=False),
        ):
            with pytest.raises(DamagedError, match="task-02 is missing, but"):
                work()

"""What a run meets on a real machine: full disks, signals, clocks that go back, folders it may not write to."""

from __future__ import annotations

import errno
import os
import signal
import time

import pytest

from bocl.errors import FolderError, WorkError
from bocl.experiment.grid import plan, run_grid
from bocl.experiment.run import run
from bocl.experiment.store import RunStore
from bocl.records.interrupts import Terminated, held_back, stopping_on_terminate
from bocl.records.journal import read
from bocl.records.run_log import JOURNAL, RunLog

OPTIONS = ("recipe.batch_size=256", "search.kind=random", "search.round_size=2")
CALLS = ("write", "fsync", "replace", "mkdir")


def weights(folder):
    return [file.read_bytes() for file in sorted(folder.glob("checkpoints/*/weights-*.safetensors"))]


class FullDisk:
    """Calls that change the disk, the n-th of which fails, and writes after it too, as on a disk that is full."""

    def __init__(self, monkeypatch, fails_at, code):
        self.made = 0
        for name in CALLS:
            monkeypatch.setattr(os, name, self.watched(name, getattr(os, name), fails_at, code))

    def watched(self, name, real, fails_at, code):
        def call(*arguments, **options):
            self.made += 1
            if self.made == fails_at or (name == "write" and self.made > fails_at):
                if name == "write":
                    real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 3])
                raise OSError(code, os.strerror(code))
            return real(*arguments, **options)

        return call


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A finished run and the number of calls it made."""
    from experiment_examples import SMALL

    from bocl.experiment.config import load_config

    config, folder = load_config("digits", [*SMALL, *OPTIONS]), tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        disk = FullDisk(patch, 10**9, 0)
        run(config, folder)
    return config, folder, disk.made - 4  # libraries make a few when they are first used


@pytest.mark.parametrize("part", range(12))
@pytest.mark.parametrize(("code", "way_out"), [(errno.ENOSPC, "free space"), (errno.EIO, "check the disk")])
def test_a_disk_that_fails_stops_the_run_whole(tmp_path, undisturbed, monkeypatch, part, code, way_out):
    config, whole, calls = undisturbed
    with monkeypatch.context() as patch:
        fails_at = part + 1 if part < 3 else (2 * part + (code == errno.EIO)) * calls // 24
        FullDisk(patch, fails_at, code)
        wanted = WorkError if code == errno.ENOSPC else (WorkError, FolderError)  # EIO can be of the folder
        with pytest.raises(wanted, match=r"cannot be (written|used|opened)|cannot save") as told:
            run(config, tmp_path)
        if isinstance(told.value, WorkError):
            assert f"{way_out}, then run" in str(told.value) or f"{way_out} on the disk, then run" in str(told.value)
    assert not list(tmp_path.rglob("*.partial")), "no half of a file is left"
    if (tmp_path / JOURNAL).exists():
        data = (tmp_path / JOURNAL).read_bytes()
        assert data.endswith(b"\n") or not data, "no half of a line is left"
        RunLog.of(read(tmp_path / JOURNAL), tmp_path / JOURNAL)
    run(config, tmp_path)
    assert weights(tmp_path) == weights(whole)


def test_a_clock_that_goes_back_changes_nothing(tmp_path, undisturbed, monkeypatch):
    config, whole, _ = undisturbed
    now = iter(range(10**6, 0, -7))
    for name in ("time", "perf_counter", "monotonic"):
        monkeypatch.setattr(time, name, lambda: float(next(now)))
    run(config, tmp_path)
    assert weights(tmp_path) == weights(whole)


def test_a_folder_that_may_not_be_written_to_is_refused(tmp_path, undisturbed, monkeypatch):
    """As an administrator, tests may write anywhere, so the refusal is planted."""
    config, _, _ = undisturbed
    real = os.open

    def refuse(path, flags, *mode, **options):
        if flags & (os.O_RDWR | os.O_WRONLY):
            raise PermissionError(errno.EROFS, "Read-only file system")
        return real(path, flags, *mode, **options)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(FolderError, match="Read-only file system"):
        run(config, tmp_path)


def test_a_second_run_in_the_same_folder_is_refused_and_the_first_goes_on(tmp_path, undisturbed):
    config, whole, _ = undisturbed
    refusals = []

    def start_another(event):
        if type(event).__name__ == "RoundStarted":
            with pytest.raises(FolderError, match="in use by another process") as told:
                run(config, tmp_path)
            refusals.append(told.value)

    run(config, tmp_path, callback=start_another)
    assert len(refusals) >= 3
    assert weights(tmp_path) == weights(whole)


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)])
@pytest.mark.parametrize("write", ["start", "keep_round", "commit"])
def test_a_signal_waits_until_the_record_is_written(tmp_path, undisturbed, monkeypatch, number, error, write):
    config, whole, _ = undisturbed
    append = RunStore._append
    kind = {"start": "start", "keep_round": "round", "commit": "task"}[write]

    def interrupted(self, record):
        if record["kind"] == kind:
            signal.raise_signal(number)
        append(self, record)

    monkeypatch.setattr(RunStore, "_append", interrupted)
    with stopping_on_terminate(), pytest.raises(error):
        run(config, tmp_path)
    assert read(tmp_path / JOURNAL)[-1]["kind"] == kind
    monkeypatch.undo()
    run(config, tmp_path)
    assert weights(tmp_path) == weights(whole)


def test_signals_are_heard_again_afterwards():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    done = []

    def write():
        with held_back():
            signal.raise_signal(signal.SIGINT)
            done.append("the rest")

    with pytest.raises(KeyboardInterrupt):
        write()
    assert done == ["the rest"]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_grid_goes_on_where_it_was_stopped(tmp_path, small):
    from contextlib import nullcontext

    from experiment_examples import SMALL

    class Stopped(BaseException):
        pass

    def make(name):
        return plan(
            "digits", [*SMALL, *OPTIONS], methods=["bocl", "sn"], seeds=[0, 1], out=str(tmp_path / name), device="cpu"
        )

    def stop_in(wanted):
        def watch(config, _folder):
            def callback(event):
                if (config.method, config.seed) == wanted and type(event).__name__ == "TaskDone":
                    raise Stopped

            return nullcontext(callback)

        return watch

    run_grid(make("whole"), watch=stop_in(None))
    for wanted in (("bocl", 1), ("sn", 0)):
        with pytest.raises(Stopped):
            run_grid(make("again"), watch=stop_in(wanted))
    run_grid(make("again"), watch=stop_in(None))
    for (_, one), (_, other) in zip(make("whole"), make("again"), strict=True):
        assert weights(one) == weights(other)

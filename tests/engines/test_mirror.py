"""A run's folder in a second place holds what the first one holds, and a run goes on from there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from engine_examples import StoppedHere, assert_same_run, small, told

from bocl.engines.mirror import FolderChanges, Mirror, write_content
from bocl.engines.orders import RunOrder, carry_out
from bocl.errors import BoclError
from bocl.experiment.run import run
from bocl.records.files import write_whole
from bocl.records.journal import read
from bocl.records.run_log import JOURNAL


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".lock"]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def make_mirrored(here: Path, there: Path, after_each) -> None:
    """Make a run here, and keep it there; ``after_each`` is called with the number of records so far."""
    mirror, changes = Mirror(there, small()), write_content(here, {})
    try:

        def on_record() -> None:
            mirror.take(changes())
            after_each(mirror.records)

        carry_out(RunOrder.of("run", small(), here), "cpu", on_record=on_record)
    finally:
        mirror.close()


def test_the_second_place_holds_what_the_first_does_after_every_record(tmp_path):
    seen = []

    def compare(records: int) -> None:
        assert contents(tmp_path / "here") == contents(tmp_path / "there")
        seen.append(records)

    make_mirrored(tmp_path / "here", tmp_path / "there", compare)
    assert seen == list(range(1, len(read(tmp_path / "here" / JOURNAL)) + 1))
    assert any(path.startswith("rounds/") for path in contents(tmp_path / "there"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Make the run in one place."""
    place = tmp_path_factory.mktemp("whole")
    run(small(), place / "run", device="cpu")
    return place / "run"


@pytest.mark.parametrize("at", [1, 4])
def test_a_run_goes_on_from_the_second_place_when_the_first_is_lost(tmp_path, whole, at):
    def lose(records: int) -> None:
        if records == at:
            raise StoppedHere

    with pytest.raises(StoppedHere):
        make_mirrored(tmp_path / "here", tmp_path / "there", lose)
    assert len(read(tmp_path / "there" / JOURNAL)) == at
    before = told(tmp_path / "there")
    shutil.rmtree(tmp_path / "here")
    mirror = Mirror(tmp_path / "there", small())
    changes = write_content(tmp_path / "again", mirror.content())
    order = RunOrder.of("run", small(), tmp_path / "again")
    carry_out(order, "cpu", on_record=lambda: mirror.take(changes()))
    mirror.close()
    assert told(tmp_path / "there")[: len(before)] == before
    assert_same_run(tmp_path / "there", whole)


def test_nobody_else_writes_in_the_second_place(tmp_path):
    mirror = Mirror(tmp_path / "there", small())
    with pytest.raises(BoclError, match="another"):
        run(small(), tmp_path / "there", device="cpu")
    mirror.close()


def test_what_is_gone_in_the_first_place_goes_in_the_second(tmp_path):
    (tmp_path / "here/a/b").mkdir(parents=True)
    (tmp_path / "here/a/b/file").write_text("x")
    changes, mirror = FolderChanges(tmp_path / "here"), Mirror(tmp_path / "there", small())
    mirror.take(changes())
    assert (tmp_path / "there/a/b/file").read_text() == "x"
    assert changes().files == {}
    shutil.rmtree(tmp_path / "here/a/b")
    mirror.take(changes())
    mirror.close()
    assert not (tmp_path / "there/a/b").exists()


def test_a_file_that_is_written_anew_is_new_though_its_size_and_time_are_the_same(tmp_path):
    changes = write_content(tmp_path, {"weights": b"old"})
    found = (tmp_path / "weights").stat()
    write_whole(tmp_path / "weights", b"new")
    os.utime(tmp_path / "weights", ns=(found.st_atime_ns, found.st_mtime_ns))
    assert changes().files == {"weights": b"new"}

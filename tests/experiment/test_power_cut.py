"""No power cut loses what the journal names: the order of writing, syncing, moving and removing, call by call."""

from __future__ import annotations

import os
import re

import pytest
from disk_model import Disk

from bocl.experiment.run import run
from bocl.methods.saving import load
from bocl.records.files import PARTIAL, make_folder
from bocl.records.journal import read
from bocl.records.run_log import JOURNAL

OPTIONS = ("stream.tasks=3", "recipe.batch_size=256", "search.kind=random", "search.round_size=2")


class Killed(BaseException):
    """The end of a process, between two calls."""


@pytest.mark.parametrize("method", ["bocl", "sn"])
def test_what_the_journal_names_survives_a_power_cut_after_any_call(tmp_path, small, monkeypatch, method):
    folder = tmp_path / "runs" / "mine"
    disk = Disk(tmp_path, folder / JOURNAL)
    with monkeypatch.context() as patch:
        disk.watch(patch)
        run(small(*OPTIONS, f"method={method}"), folder)
    assert disk.faults[:1] == []
    others = {name for name in disk.made if not name.endswith(PARTIAL)}
    assert others == {JOURNAL}, "every other file is written beside its place and moved"
    lines = len(read(folder / JOURNAL))
    assert disk.calls.count(f"fsync runs/mine/{JOURNAL}") == lines > 3
    assert any(call.startswith("unlink") and "checkpoints" in call for call in disk.calls), "stale files are removed"


def test_a_folder_whose_maker_was_killed_is_made_sure_by_the_next(tmp_path, small, monkeypatch):
    """A process dies between making a folder and syncing its name; the one that goes on finds the folder there."""
    config = small(*OPTIONS, "stream.tasks=1", "method=sn")
    for fatal in range(1, 8):
        folder = tmp_path / f"{fatal}"
        disk = Disk(tmp_path, folder / "mine" / JOURNAL)
        with monkeypatch.context() as patch:
            disk.watch(patch)
            mkdir, made = os.mkdir, []

            def die(*words, made=made, mkdir=mkdir, fatal=fatal, **options):
                mkdir(*words, **options)
                made.append(words)
                if len(made) == fatal:
                    raise Killed

            patch.setattr(os, "mkdir", die)
            try:
                run(config, folder / "mine")
            except Killed:
                patch.setattr(os, "mkdir", mkdir)
                run(config, folder / "mine")
        assert disk.faults[:1] == [], f"killed after folder {fatal}"
    assert len(made) < fatal, "every folder was one to be killed after"


def test_a_model_saved_over_an_older_one_is_the_old_or_the_new(tmp_path, small, monkeypatch):
    run(small(*OPTIONS, "stream.tasks=2", "method=sn"), tmp_path / "run")
    learner = load(tmp_path / "run", device="cpu")
    disk = Disk(tmp_path / "model", tmp_path / "model" / JOURNAL)
    with monkeypatch.context() as patch:
        disk.watch(patch)
        learner.save(tmp_path / "model")
        (old,) = (path.name for path in tmp_path.glob("model/weights-*"))
        learner.network.tensors["layer/fc1/bias"][0] += 1
        before = len(disk.calls)
        learner.save(tmp_path / "model")
    (new,) = (path.name for path in tmp_path.glob("model/weights-*"))
    wanted = []
    for name in (new, "model.json"):
        wanted += [f"{call} {name}{PARTIAL}" for call in ("open", "write", "fsync")]
        wanted += [f"replace {name}{PARTIAL} {name}", "open .", "fsync ."]
    plain = [re.sub(r"\.[0-9a-f]{8}\.partial", PARTIAL, call) for call in disk.calls[before:]]
    assert plain == ["open .", *wanted, f"unlink {old}"], "held, written, and only then is the old one removed"


def test_an_empty_folder_in_one_that_may_not_be_read_will_do(tmp_path, monkeypatch):
    """As an administrator, tests may read anything, so the refusal is planted."""
    (tmp_path / "mine").mkdir()
    real = os.open

    def refuse(path, *others, **options):
        if path == tmp_path:
            raise PermissionError(13, "Permission denied")
        return real(path, *others, **options)

    monkeypatch.setattr(os, "open", refuse)
    make_folder(tmp_path / "mine" / "run")
    assert (tmp_path / "mine" / "run").is_dir()

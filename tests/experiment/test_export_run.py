"""Exports from a run: checked with the samples and logits it stored, and with a card that its journal bears out."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from experiment_examples import SMALL
from typer.testing import CliRunner

import bocl
from bocl.cli.main import app
from bocl.errors import FolderError, WorkError
from bocl.experiment import export_run as exporting
from bocl.experiment.audit import DriftError, audit
from bocl.experiment.config import load_config
from bocl.experiment.load_run import load_run
from bocl.experiment.run import run
from bocl.methods.exporting.canaries import Canaries
from bocl.records.journal import read
from bocl.records.run_log import JOURNAL, RunLog


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return a run of bocl and one of a method that changes earlier tasks."""
    folder = tmp_path_factory.mktemp("runs")
    for method in ("bocl", "sn"):
        run(load_config("digits", [*SMALL, f"method={method}"]), folder / method)
    return folder


def call(*words: object) -> str:
    result = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_an_export_is_checked_with_what_the_run_stored(runs, tmp_path):
    out = call("export", runs / "bocl", "--task", "permutation 2", "--to", "pt2", "-o", tmp_path / "task.pt2")
    assert re.search(r"task\.pt2: task 'permutation 2' as pt2, [\d,]+ bytes in 1 file\n", out)
    assert "checked: 16 stored samples went through it, and their logits have the same bits" in out
    learner = load_run(runs / "bocl", device="cpu")
    x = bocl.permuted_digits(tasks=2, seed=0).test_split(1).raw
    program = torch.export.load(tmp_path / "task.pt2").module()
    assert torch.equal(program(x), learner.predict(x, "permutation 2"))


def test_stored_logits_that_are_not_the_tasks_stop_an_export(runs, tmp_path, monkeypatch):
    stored = exporting._stored

    def other(*arguments, **options):
        found = stored(*arguments, **options)
        return {number: Canaries(each.samples, each.logits + 1) for number, each in found.items()}

    monkeypatch.setattr(exporting, "_stored", other)
    with pytest.raises(WorkError, match="task 'permutation 1' as safetensors gives other logits than the task"):
        exporting.export_run(runs / "bocl", "1", tmp_path / "task.safetensors", "safetensors", device="cpu")
    assert not any(tmp_path.iterdir())


def test_earlier_tasks_of_a_method_that_changes_them_are_checked_with_what_it_says_now(runs, tmp_path):
    first = exporting.export_run(runs / "sn", "1", tmp_path / "1.safetensors", "safetensors", device="cpu")
    last = exporting.export_run(runs / "sn", "2", tmp_path / "2.safetensors", "safetensors", device="cpu")
    assert (first.stored, last.stored) == (False, True)
    assert last.difference == 0


@pytest.mark.parametrize("method", ["bocl", "sn"])
def test_the_card_says_what_the_journal_says(method, runs, tmp_path):
    exporting.export_run(runs / method, "1", tmp_path / "hub", "hub-folder", device="cpu")
    card = (tmp_path / "hub" / "README.md").read_text()
    place = runs / method / JOURNAL
    log = RunLog.of(read(place), place)
    assert f"value: {log.tasks[-1].row[0]:.6f}" in card
    assert f"On its validation samples: {100 * log.tasks[-1].validation_row[0]:.2f} %" in card
    audited = audit(runs / method, device="cpu", with_accuracy=False)
    assert audited.head in card
    assert log.starts[0].data in card
    tensors = audited.tasks[0].tensors
    assert (f"{tensors} tensors have the hash recorded" if tensors else "those of the last one were checked") in card


def test_a_run_that_is_not_as_recorded_gets_no_card(runs, tmp_path):
    (canary,) = (runs / "bocl").glob("canaries/task-01.safetensors")
    whole = canary.read_bytes()
    canary.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    try:
        with pytest.raises((DriftError, FolderError, WorkError)):
            exporting.export_run(runs / "bocl", "1", tmp_path / "hub", "hub-folder", device="cpu")
    finally:
        canary.write_bytes(whole)
    assert not (tmp_path / "hub").exists()


def test_an_open_run_exports_with_what_it_stored(tmp_path):
    opened = bocl.open(tmp_path / "run", bocl.mlp(6, [4]), recipe=bocl.Recipe(epochs=1), method="fixed")
    x, y = np.eye(40, 6, dtype="float32"), np.arange(40) % 2
    opened.learn(bocl.from_arrays([(x, y)], names=["spring"]))
    written = opened.export("spring", tmp_path / "hub", "hub-folder")
    assert written.stored
    assert "The run was audited when this was written" in (written.path / "README.md").read_text()
    assert torch.equal(opened.module("spring")(torch.from_numpy(x)), opened.predict(x, "spring"))


def test_a_saved_model_is_exported_too(runs, tmp_path):
    load_run(runs / "bocl", device="cpu").save(tmp_path / "model")
    out = call("export", tmp_path / "model", "--task", 2, "--to", "hub-folder", "-o", tmp_path / "hub")
    assert "checked: 4 made-up samples went through it" in out
    card = (tmp_path / "hub" / "README.md").read_text()
    assert "It was exported without a journal, which would say." in card
    assert "model-index" not in card

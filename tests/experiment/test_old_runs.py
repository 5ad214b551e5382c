"""A run of format 2, kept for ever: later versions must go on reading it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from bocl.errors import FolderError
from bocl.experiment.audit import audit
from bocl.experiment.config import Config, load_config
from bocl.experiment.run import run
from bocl.methods.saving import load
from bocl.records.earlier import upgrade_config
from bocl.records.journal import encode, read
from bocl.records.run_log import JOURNAL
from bocl.records.summary import summarise
from bocl.settings import parse

OLD = Path(__file__).parents[1] / "fixtures" / "run-format-2"


@pytest.fixture
def copy(tmp_path):
    return shutil.copytree(OLD, tmp_path / "run")


def test_it_is_shown():
    summary = summarise(OLD)
    assert [task.widths for task in summary.tasks] == [(6, 4), (2, 3)]
    assert summary.matrix == [(0.7111111111111111,), (0.7111111111111111, 0.65)]
    assert len(summary.tasks[1].trials) == 5


def test_it_is_loaded_and_predicts():
    learner = load(OLD, device="cpu")
    assert [entry.name for entry in learner.seen] == ["permutation 1", "permutation 2"]
    assert sum(learner.parameters().values()) == 792


def test_it_is_audited(copy):
    found = audit(copy, device="cpu")
    assert found.head == "c4f74073adcfa4c416e06d25a86fc03af18783dc23077815fb7c6eda9e671200"
    assert [task.tensors for task in found.tasks] == [12, 29]
    assert [task.accuracy for task in found.tasks] == pytest.approx([0.7111, 0.65], abs=0.005)


def test_it_is_left_alone_when_it_is_run_again(copy):
    before = (copy / JOURNAL).read_bytes()
    config = parse(Config, upgrade_config(read(OLD / JOURNAL)[0]["config"]), "the old run")
    assert len(run(config, copy, device="cpu")) == 2
    assert (copy / JOURNAL).read_bytes() == before


def test_settings_that_came_later_have_their_defaults_there(copy):
    record = read(copy / JOURNAL)[0]
    del record["config"]["recipe"]["precision"]
    (copy / JOURNAL).write_bytes(encode(record)[0])
    for name in ("checkpoints", "canaries", "rounds"):
        shutil.rmtree(copy / name)
    config = parse(Config, upgrade_config(record["config"]), "the old run")
    with pytest.raises(FolderError, match=r"recipe\.epochs: 8 there, 9 here"):
        run(replace(config, recipe=replace(config.recipe, epochs=9)), copy)
    assert len(run(config, copy, device="cpu")) == 2


def test_settings_that_are_no_more_are_told(copy):
    record = read(copy / JOURNAL)[0]
    record["config"]["recipe"]["gone"] = 1
    (copy / JOURNAL).write_bytes(encode(record)[0])
    with pytest.raises(FolderError, match=r"recipe\.gone: unknown key.*another version of bocl"):
        run(load_config("digits"), copy)

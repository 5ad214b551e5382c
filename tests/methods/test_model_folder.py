"""A model's folder holds the old model or the new one, and says what is wrong with it."""

from __future__ import annotations

import json

import pytest
import torch
from method_examples import RECIPE, hard_stream, make_bocl, small_cnn

from bocl.errors import FolderError
from bocl.methods.fixed import Fixed
from bocl.methods.saving import load, save
from bocl.methods.sn import SN


@pytest.fixture
def folder(tmp_path):
    """Return the folder of a model that has learnt one task."""
    learner = SN(small_cnn(), recipe=RECIPE, seed=3, device="cpu")
    learner.learn(hard_stream()[0])
    save(learner, tmp_path / "model")
    return tmp_path / "model"


def edit(folder, change) -> None:
    model = json.loads((folder / "model.json").read_text())
    change(model)
    (folder / "model.json").write_text(json.dumps(model))


def test_a_newer_save_replaces_the_older(folder):
    learner = load(folder, device="cpu")
    learner.learn(hard_stream()[1])
    save(learner, folder)
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", ".safetensors"]
    assert len(load(folder, device="cpu").seen) == 2


def test_settings_come_back(tmp_path):
    learner = Fixed(small_cnn(), widths=(1, 2), recipe=RECIPE, seed=7, device="cpu")
    learner.learn(hard_stream()[0])
    learner.save(tmp_path / "model")
    loaded = load(tmp_path / "model", device="cpu")
    assert (loaded.widths, loaded.recipe, loaded.seed) == ((1, 2), RECIPE, 7)
    assert loaded.learn(hard_stream()[1]).widths == (1, 2)


def test_a_learner_that_has_learnt_nothing_can_be_saved(tmp_path):
    make_bocl(small_cnn()).save(tmp_path / "model")
    loaded = load(tmp_path / "model", device="cpu")
    fresh = make_bocl(small_cnn())
    assert repr(loaded.learn(hard_stream()[0])) == repr(fresh.learn(hard_stream()[0]))
    assert all(torch.equal(tensor, loaded.state().tensors[name]) for name, tensor in fresh.state().tensors.items())


def test_damaged_weights_are_refused(folder):
    (weights,) = folder.glob("*.safetensors")
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(FolderError, match="damaged"):
        load(folder)


def test_missing_weights_are_refused(folder):
    (weights,) = folder.glob("*.safetensors")
    weights.unlink()
    with pytest.raises(FolderError, match="cannot be read"):
        load(folder)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda model: model.update(format=99), "format 99"),
        (lambda model: model.update(method="snn"), "unknown method 'snn'.*did you mean 'sn'"),
        (lambda model: model.pop("graph"), "lacks graph"),
        (lambda model: model["settings"].update(seed="x"), "seed"),
        (lambda model: model["graph"]["steps"][0].update(step="spell"), "cannot be read as a model"),
    ],
)
def test_a_model_that_makes_no_sense_is_refused(folder, change, reason):
    edit(folder, change)
    with pytest.raises(FolderError, match=reason):
        load(folder)


def test_what_is_no_model_is_refused(tmp_path, folder):
    with pytest.raises(FolderError, match="no model"):
        load(tmp_path / "nowhere")
    (folder / "model.json").write_text("{")
    with pytest.raises(FolderError, match="cannot be read"):
        load(folder)


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    learner = make_bocl()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FolderError, match="something else"):
        save(learner, tmp_path)
    with pytest.raises(FolderError, match="it is a file"):
        save(learner, tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "mine"

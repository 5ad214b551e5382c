"""Runs whose learner guesses tasks: what is recorded, shown, resumed, audited, picked for, and asked by people."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from experiment_examples import SMALL, another_child
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import bocl
from bocl.cli.main import app
from bocl.errors import ConfigError, FolderError, InputError
from bocl.experiment import proof, scoring
from bocl.experiment.audit import DriftError, audit, check_learner
from bocl.experiment.build import build_method, build_network, build_stream
from bocl.experiment.config import load_config
from bocl.experiment.pick import pick
from bocl.experiment.run import run
from bocl.methods.saving import load
from bocl.records.identity import relevant_settings
from bocl.records.journal import BEGINNING, encode, read
from bocl.records.record import Guesses
from bocl.records.run_log import JOURNAL, RunLog
from bocl.records.summary import summarise
from bocl.report.figures import comparison
from bocl.report.systems import arrange
from bocl.tracking.points import read_points

THREE = (*SMALL, "stream.tasks=3", "guess.map=auto", "search.kind=random", "recipe.batch_size=256")
METHODS = ("bocl", "ewc")


def config(*overrides):
    return load_config("digits", [*THREE, *overrides])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished run of each method."""
    place = tmp_path_factory.mktemp("runs")
    return {method: place / method for method in METHODS if run(config(f"method={method}"), place / method)}


def measured(folder, task, validation=False):
    """Return how often samples of a task are named for it, and rightly classified too."""
    stream, learner = build_stream(config()), load(folder, device="cpu")
    split = stream[task].validation if validation else stream.test_split(task)
    guess = learner.predict_task(split.raw)
    named = guess.tasks == task
    right = named & (learner.predict(split.raw, task).argmax(1) == split.labels)
    return named.double().mean().item(), right.double().mean().item()


@pytest.mark.parametrize("method", METHODS)
def test_it_is_recorded_how_well_tasks_are_guessed(finished, method):
    *_, last = summarise(finished[method]).tasks
    found = last.guesses
    assert found.tasks == 3
    for validation, named, right in (
        (False, found.named, found.accuracy),
        (True, found.validation_named, found.validation_accuracy),
    ):
        shares = [measured(finished[method], task, validation) for task in range(3)]
        assert named == pytest.approx(np.mean([share for share, _ in shares]))
        assert right == pytest.approx(np.mean([share for _, share in shares]))
    assert found.named > 0.9
    assert last.extra_numbers >= 64 * 65 // 2 + 3 * 10 * 65
    assert (method == "ewc") == (last.extra_numbers > 64 * 65 // 2 + 3 * 10 * 65)


def test_nothing_else_changes(finished, tmp_path):
    without = run(config("guess.map=none"), tmp_path / "run", device="cpu")
    for one, other in zip(without, summarise(finished["bocl"]).tasks, strict=True):
        assert one.guesses is None
        assert one.extra_numbers == 0
        times = {"seconds": 0, "training_seconds": 0}
        assert replace(one, **times) == replace(other, guesses=None, extra_numbers=0, **times)
    proofs = [read(folder / JOURNAL)[-1]["proof"]["tensors"] for folder in (tmp_path / "run", finished["bocl"])]
    assert proofs[0].items() <= proofs[1].items()
    assert proofs[1].keys() - proofs[0].keys() == {"guess/sums", "guess/counts"}


def test_a_checkpoint_holds_only_what_its_task_added(finished):
    def saved(task):
        (file,) = (finished["bocl"] / "checkpoints" / f"task-0{task}").glob("weights-*")
        return {name for name in load_file(file) if name.startswith("guess/")}

    assert [saved(task) for task in (1, 2, 3)] == [
        {f"guess/{task}/sums", f"guess/{task}/counts", "guess/scatter"} for task in range(3)
    ]


@pytest.mark.parametrize("method", METHODS)
def test_a_resumed_run_guesses_as_one_that_was_not_stopped(finished, tmp_path, method):
    class Stopped(BaseException):
        pass

    def stop(event):
        if isinstance(event, bocl.TaskDone) and event.record.index == 1:
            raise Stopped

    with pytest.raises(Stopped):
        run(config(f"method={method}"), tmp_path / "run", device="cpu", callback=stop)
    run(config(f"method={method}"), tmp_path / "run", device="cpu")
    one, other = (load(folder, device="cpu").state().tensors for folder in (tmp_path / "run", finished[method]))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    both = [summarise(folder).tasks[-1].guesses for folder in (tmp_path / "run", finished[method])]
    assert both[0] == both[1]
    assert len(audit(tmp_path / "run", device="cpu").tasks) == 3


def test_an_audit_finds_other_sums_of_a_task(tmp_path):
    folder = tmp_path / "run"
    run(config("method=fixed"), folder, device="cpu")
    learner = load(folder, device="cpu")
    learner.discriminant.tasks[1].sums[0, 0] += 1e-3
    with pytest.raises(DriftError, match=r"task 2, 'permutation 2': tensor guess/sums is not the one recorded"):
        check_learner(folder, RunLog.of(read(folder / JOURNAL), folder / JOURNAL), learner)


def test_damaged_sums_in_a_file_are_found(tmp_path):
    folder = tmp_path / "run"
    run(config("method=fixed", "stream.tasks=1"), folder, device="cpu")
    (file,) = (folder / "checkpoints" / "task-01").glob("weights-*")
    tensors = load_file(file)
    tensors["guess/scatter"] += 1
    save_file(tensors, file)
    with pytest.raises(FolderError, match="damaged"):
        load(folder, device="cpu")
    with pytest.raises(DriftError):
        audit(folder, device="cpu")


def test_few_tasks_are_guessed_after_each_and_all_after_the_last(tmp_path, monkeypatch):
    monkeypatch.setattr(proof, "MOST_CHECKED", 1)
    asked, real = [], scoring._guessed_right
    monkeypatch.setattr(scoring, "_guessed_right", lambda *given: asked.append(given[1]) or real(*given))
    records = run(config("method=fixed", "stream.tasks=4"), tmp_path / "run", device="cpu")
    assert [record.guesses.tasks for record in records] == [1, 2, 2, 4]
    assert len(asked) == 2 * (1 + 2 + 2 + 4), "test and validation samples of each"


def test_a_pick_is_guessed_with_anew(tmp_path):
    folder = tmp_path / "run"
    before = run(config("stream.tasks=2"), folder, device="cpu")[-1]
    pick(folder, another_child(before).widths, device="cpu")
    after = summarise(folder).tasks[-1]
    assert after.widths != before.widths
    assert after.guesses.named == before.guesses.named, "what tasks are guessed by is not of the child"
    shares = [measured(folder, task)[1] for task in range(2)]
    assert after.guesses.accuracy == pytest.approx(np.mean(shares))
    audit(folder, device="cpu")


def test_settings_that_are_off_change_no_identity():
    plain = {"method": "bocl", "seed": 0, "stream": {"name": "a"}}
    off, on = ({**plain, "guess": {"map": kind, "size": 7}} for kind in ("none", "auto"))
    assert relevant_settings(plain) == relevant_settings(off)
    assert relevant_settings(on).items() >= {"guess.map": "auto", "guess.size": 7}.items()


def test_a_run_without_the_section_goes_on(tmp_path):
    folder, off = tmp_path / "run", config("guess.map=none")
    with pytest.raises(KeyboardInterrupt):
        run(off, folder, device="cpu", callback=interrupt_after_first)
    records = read(folder / JOURNAL)
    del records[0]["config"]["guess"]
    for record in records:
        record.pop("guesses", None)
    rewrite(folder / JOURNAL, records)
    with pytest.raises(FolderError, match=r"guess\.map: None there, auto here"):
        run(config(), folder, device="cpu")
    assert [record.guesses for record in run(off, folder, device="cpu")] == [None] * 3


def interrupt_after_first(event):
    if isinstance(event, bocl.TaskDone) and event.record.index == 0:
        raise KeyboardInterrupt


def rewrite(path, records):
    """Write a journal anew, whose hashes are right."""
    before, lines = BEGINNING, []
    for record in records:
        line, before = encode(record, before)
        lines.append(line)
    path.write_bytes(b"".join(lines))


def test_a_method_that_takes_no_such_settings_is_refused(monkeypatch):
    asked = config("method=fixed")

    def plain(self, network, *, recipe, seed, device):
        """Take no guess."""

    monkeypatch.setattr(bocl.Fixed, "__init__", plain)
    with pytest.raises(ConfigError, match="fixed does not guess tasks"):
        build_method(asked, build_network(asked.network))


# As people meet it.


def test_it_is_shown_compared_reported_and_tracked(finished, tmp_path):
    run(config("guess.map=none", "method=sn"), tmp_path / "sn", device="cpu")
    shown = CliRunner().invoke(app, ["show", str(finished["bocl"])])
    guesses = summarise(finished["bocl"]).tasks[-1].guesses
    assert f"task named correctly       {100 * guesses.named:.2f} %" in shown.stdout
    assert f"accuracy without the task  {100 * guesses.accuracy:.2f} %" in shown.stdout
    both = CliRunner().invoke(app, ["show", str(finished["bocl"]), str(tmp_path / "sn")], env={"COLUMNS": "160"})
    rows = [line.split() for line in both.stdout.splitlines()]
    (ours,), (theirs,) = ([row for row in rows if row and row[0].endswith(name)] for name in ("bocl", "sn"))
    assert [f"{100 * value:.2f}" for value in (guesses.named, guesses.accuracy)] == ours[3:5]
    assert len(theirs) < len(ours)
    alone = CliRunner().invoke(app, ["show", str(tmp_path / "sn"), str(tmp_path / "sn")])
    assert "named" not in alone.stdout
    plain = json.loads(CliRunner().invoke(app, ["show", "--json", str(finished["bocl"])]).stdout)[0]
    assert plain["figures"]["task_named"] == plain["tasks"][-1]["guesses"]["named"] == guesses.named
    (stream,) = arrange([summarise(finished["bocl"]), summarise(tmp_path / "sn")])
    compared = comparison(stream)
    column = compared.header.index("task named correctly (%)")
    assert {row[0]: row[column] for row in compared.rows} == {
        "bocl, random search": f"{100 * guesses.named:.2f}",
        "sn": "",
    }
    (other,) = arrange([summarise(tmp_path / "sn")])
    assert "task named correctly (%)" not in comparison(other).header
    points = {(point.name, point.step): point.value for point in read_points(finished["bocl"]).points}
    assert points["guesses/named", 3] == guesses.named


def test_some_of_many_tasks_are_said_to_be_some(finished, monkeypatch):
    summary = summarise(finished["bocl"])
    few = replace(summary.tasks[-1], guesses=Guesses(2, 0.5, 0.25, 0.5, 0.25))
    monkeypatch.setattr(
        "bocl.records.summary.summarise_all", lambda _: [replace(summary, tasks=(*summary.tasks[:-1], few))]
    )
    shown = CliRunner().invoke(app, ["show", str(finished["bocl"])])
    assert "50.00 % (samples of 2 of 3 tasks)" in shown.stdout


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """A run of the user's own tasks, and their samples."""
    folder = tmp_path_factory.mktemp("own") / "run"
    found = bocl.open(
        folder,
        bocl.mlp(4, [6]),
        method="fixed",
        device="cpu",
        guess=bocl.GuessSettings("auto"),
        recipe=bocl.Recipe(epochs=40, learning_rate=0.02),
    )
    pairs = []
    for task, (name, labels) in enumerate((("spring", ("a", "b")), ("autumn", ("c", "d", "=e")))):
        rng = np.random.default_rng(task)
        y = np.arange(120) % len(labels)
        x = rng.normal(0, 4, (len(labels), 4))[y] + rng.normal(0, 1, (120, 4))
        pairs.append((x.astype(np.float32), [labels[number] for number in y]))
        found.learn(bocl.from_arrays([pairs[-1]], names=[name]))
    return found, pairs


def test_a_run_without_an_end_guesses(opened):
    found, pairs = opened
    for (x, y), name in zip(pairs, ("spring", "autumn"), strict=True):
        assert np.mean(np.array(found.predict_task(x).names) == name) > 0.95
        assert found.predict_task(x[:5], together=True).names == (name,) * 5
        assert found.score(x, y) > 0.9
        assert found.predict(x, together=True).shape == found.predict_proba(x, name).shape
    assert [record.guesses.tasks for record in found.records] == [1, 1], "the samples that are at hand"
    assert found.records[-1].extra_numbers == 10 + 5 * (4 + 1)


def table(place):
    return list(csv.reader(place.read_text(encoding="utf-8").splitlines()))


def test_predictions_without_a_task_name_it(opened, tmp_path):
    found, ((x, _), (other, _)) = opened
    np.savez(tmp_path / "x.npz", x=np.concatenate([x[:3], other[:3]]))
    place = tmp_path / "out.csv"
    asked = ["predict", str(found.folder), str(tmp_path / "x.npz"), "-o", str(place)]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert "6 samples of guessed tasks" in done.output
    header, *rows = table(place)
    assert header == ["sample", "label", "task", "p(task)", "p(label)"]
    assert [row[2] for row in rows] == ["spring"] * 3 + ["autumn"] * 3
    wanted = found.predict_labels(np.concatenate([x[:3], other[:3]]))
    assert [row[1].lstrip("'") for row in rows] == wanted
    guess = found.predict_task(np.concatenate([x[:3], other[:3]]))
    np.testing.assert_allclose([float(row[3]) for row in rows], guess.probabilities.amax(1), atol=1e-6)
    assert CliRunner().invoke(app, [*asked, "--together"]).exit_code == 0
    assert len({row[2] for row in table(place)[1:]}) == 1
    assert CliRunner().invoke(app, [*asked, "--task", "autumn"]).exit_code == 0
    assert table(place)[0] == ["sample", "label", "p(=e)", "p(c)", "p(d)"]


def test_predictions_without_a_task_need_something_to_guess_by(tmp_path):
    run(config("guess.map=none", "stream.tasks=1", "method=fixed"), tmp_path / "run", device="cpu")
    np.savez(tmp_path / "x.npz", x=np.zeros((2, 1, 8, 8), np.uint8))
    asked = ["predict", str(tmp_path / "run"), str(tmp_path / "x.npz"), "-o", str(tmp_path / "out.csv")]
    found = CliRunner().invoke(app, asked)
    assert isinstance(found.exception, InputError)
    assert "--set guess.map=auto" in str(found.exception)
    assert not (tmp_path / "out.csv").exists()

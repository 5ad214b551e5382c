"""Long streams: what is saved, hashed and checked after a task does not grow with the number of tasks before it."""

from __future__ import annotations

import json
import shutil
from math import ceil

import pytest
import torch
from experiment_examples import SMALL, Stopped, another_child

from bocl.errors import FolderError
from bocl.experiment import proof, scoring
from bocl.experiment.audit import DriftError, audit
from bocl.experiment.config import load_config
from bocl.experiment.pick import pick
from bocl.experiment.run import run
from bocl.methods.saving import _seal, load, save
from bocl.records.events import TaskDone, TaskStarted
from bocl.records.files import describe
from bocl.records.journal import encode, read
from bocl.records.run_log import JOURNAL
from bocl.records.summary import summarise

LONG = ("recipe.batch_size=512", "fixed.widths=2", "search.kind=random")
TIMES = ("seconds", "training_seconds", "time")


@pytest.mark.parametrize("done", [0, 1, 15, 16, 17, 40, 256, 300])
def test_so_many_earlier_tasks_are_checked_at_a_time(done):
    checked = proof.checked_again(done)
    assert checked == sorted(set(checked))
    assert len(checked) == min(done, proof.MOST_CHECKED)
    assert all(0 <= task < done for task in checked)


def test_every_earlier_task_has_its_turn():
    checked_at = {}
    for done in range(1, 700):
        checked_at |= dict.fromkeys(proof.checked_again(done), done)
        waits = [done - checked_at.get(task, task + 1) for task in range(done)]
        assert max(waits) <= ceil(done / proof.MOST_CHECKED) + 2


@pytest.mark.parametrize("method", ["fixed", "independent"])
def test_a_late_task_costs_no_more_than_an_early_one(tmp_path, small, monkeypatch, method):
    """Tasks that are alike: their networks have the same size, and read no others."""
    monkeypatch.setattr(proof, "MOST_CHECKED", 3)
    hashed, predicted, costs = [], [], []
    real_hash, real_accuracy = proof._sha256, scoring.accuracy

    def note(kept, real):
        def call(*arguments):
            kept.append(1)
            return real(*arguments)

        return call

    monkeypatch.setattr(proof, "_sha256", note(hashed, real_hash))
    monkeypatch.setattr(scoring, "accuracy", note(predicted, real_accuracy))

    def count(event):
        if isinstance(event, TaskDone):
            (place,) = tmp_path.glob(f"checkpoints/task-{event.record.index + 1:02d}")
            sizes = {path.suffix: path.stat().st_size for path in place.iterdir()}
            costs.append((len(hashed), len(predicted), sizes[".json"], sizes[".safetensors"]))
            hashed.clear()
            predicted.clear()

    run(small(*LONG, "stream.tasks=25", f"method={method}", "growth.reads=own"), tmp_path, callback=count)
    early, late = costs[4], costs[24]
    assert late[:2] == early[:2]
    assert late[1] == 2 * (3 + 1)  # validation and test samples, of three earlier tasks and the new one
    assert late[2] <= 1.02 * early[2], "the name of the task is longer"
    assert late[3] <= 1.02 * early[3], "so are those of tensors"
    assert [task.canaries for task in audit(tmp_path).tasks] == [0.0] * 25, "an audit checks all"


def files(folder):
    """Return what a run came to: its files, and its records without times and sessions."""
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}
    found |= {path.relative_to(folder).as_posix(): b"" for path in folder.rglob("last")}
    records = [without_times(record) for record in read(folder / JOURNAL) if record["kind"] != "start"]
    return {**found, JOURNAL: records}


def without_times(value):
    if isinstance(value, list):
        return [without_times(item) for item in value]
    if isinstance(value, dict):
        return {name: without_times(item) for name, item in value.items() if name not in TIMES}
    return value


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished run of seven tasks, of which two earlier ones are checked at a time: (config, folder)."""
    config, folder = load_config("digits", [*SMALL, *LONG, "stream.tasks=7"]), tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proof, "MOST_CHECKED", 2)
        run(config, folder, device="cpu")
    return config, folder


def stop_in(*tasks):
    """Return a listener that stops a run when it begins one of these tasks, each of them once."""
    left = list(tasks)

    def callback(event):
        if isinstance(event, TaskStarted) and event.index in left:
            left.remove(event.index)
            raise Stopped

    return callback


def test_a_run_that_is_stopped_again_and_again_comes_to_the_same_files(tmp_path, whole, monkeypatch):
    config, folder = whole
    monkeypatch.setattr(proof, "MOST_CHECKED", 2)
    stop = stop_in(1, 3, 4)
    for _ in range(3):
        with pytest.raises(Stopped):
            run(config, tmp_path / "run", device="cpu", callback=stop)
    run(config, tmp_path / "run", device="cpu")
    assert files(tmp_path / "run") == files(folder)
    names = sorted(path.name for path in folder.glob("checkpoints/*"))
    assert names == [f"task-{number:02d}" for number in range(1, 8)]
    assert [path.parent.name for path in folder.glob("checkpoints/*/last")] == ["task-07"]


@pytest.mark.parametrize(
    "place", ["checkpoints/task-02/weights-*", "checkpoints/task-02/model.json", "canaries/task-02*"]
)
def test_a_changed_byte_of_an_early_task_is_found(tmp_path, whole, place):
    copy = shutil.copytree(whole[1], tmp_path / "run")
    (path,) = copy.glob(place)
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(DriftError, match=path.name.replace(".", r"\.")):
        audit(copy, with_accuracy=False)
    if "checkpoints" in place:
        with pytest.raises(FolderError, match=path.name.replace(".", r"\.")):
            load(copy)
    path.unlink()
    with pytest.raises(DriftError, match="task-02"):
        audit(copy, with_accuracy=False)


def test_a_checkpoint_is_the_learner_as_it_was_then(whole):
    _, folder = whole
    last, then = load(folder, device="cpu"), load(folder / "checkpoints/task-03", device="cpu")
    assert [entry.name for entry in then.seen] == [entry.name for entry in last.seen[:3]]
    assert then.history == last.history[: len(then.history)]
    assert len(then.history) in (2, 3)
    kept = then.state().tensors
    assert kept.keys() == {name for name in last.state().tensors if int(name.split("/")[0]) < 3}
    assert all(torch.equal(tensor, last.state().tensors[name]) for name, tensor in kept.items())


def rewrite(folder, change):
    """Write a journal anew with right hashes, its records changed."""
    records, lines, head = read(folder / JOURNAL), [], "0" * 64
    for record in records:
        change(record)
        line, head = encode(record, head)
        lines.append(line)
    (folder / JOURNAL).write_bytes(b"".join(lines))


def as_in_format_3(folder):
    """Make of a run what an earlier version would have written: one checkpoint, which is whole."""
    learner = load(folder, device="cpu")
    last = f"checkpoints/task-{len(learner.seen):02d}"
    shutil.rmtree(folder / "checkpoints")
    save(learner, folder / last)
    stored = describe(f"{last}/model.json", (folder / last / "model.json").read_bytes())

    def change(record):
        if record["kind"] == "start":
            record["format"] = 3
        if record["kind"] == "task":
            del record["proof"]["partial"]
            if record["index"] == len(learner.seen) - 1:
                record["proof"]["checkpoint"] = vars(stored)

    rewrite(folder, change)


def test_a_run_of_an_earlier_version_goes_on(tmp_path, whole):
    config, folder = whole
    with pytest.raises(Stopped):
        run(config, tmp_path, device="cpu", callback=stop_in(3))
    as_in_format_3(tmp_path)
    audit(tmp_path)
    wanted = another_child(summarise(tmp_path).tasks[-1])
    kept = summarise(tmp_path).tasks[-1].widths
    for widths in (wanted.widths, kept):  # one after the other: in the end it is as it was
        assert pick(tmp_path, widths, device="cpu").after.widths == widths
    run(config, tmp_path, device="cpu")
    names = sorted(path.name for path in tmp_path.glob("checkpoints/*"))
    assert names == ["task-03-pick-2", *(f"task-{number:02d}" for number in range(4, 8))]
    assert len(audit(tmp_path).tasks) == 7
    then, now = load(folder, device="cpu"), load(tmp_path, device="cpu")
    assert now.state().facts == then.state().facts
    assert all(torch.equal(tensor, now.state().tensors[name]) for name, tensor in then.state().tensors.items())


@pytest.mark.parametrize(
    ("before", "told"),
    [
        ({"folder": "../../elsewhere"}, "is no name of a checkpoint"),
        ({"folder": "task-09"}, "task-09 holds no model"),
        ({"sha256": "0" * 64}, "its hash is not the one in the model that adds to it"),
        ({"sha256": 7}, "before: expected|sha256"),
    ],
)
def test_a_checkpoint_that_adds_to_another_one_is_refused(tmp_path, whole, before, told):
    copy = shutil.copytree(whole[1], tmp_path / "run")
    place = copy / "checkpoints/task-07/model.json"
    model = json.loads(place.read_text())
    model["before"] |= before
    place.write_text(json.dumps(model | {"sha256": _seal(model)}))
    with pytest.raises(FolderError, match=told):
        load(place.parent)


def test_a_method_that_changes_earlier_tasks_has_one_whole_checkpoint(tmp_path, small):
    run(small(*LONG, "stream.tasks=3", "method=sn"), tmp_path)
    assert [path.name for path in tmp_path.glob("checkpoints/*")] == ["task-03"]
    assert load(tmp_path / "checkpoints/task-03").seen[0].name == "permutation 1"
    assert len(audit(tmp_path).tasks) == 3

"""The audit: silent on a run that is as recorded, and precise about anything else."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict

import pytest
import torch
from torch import nn

from bocl.errors import FolderError, WorkError
from bocl.experiment import audit as audit_module
from bocl.experiment.audit import DriftError, audit, check_untouched
from bocl.experiment.config import Config
from bocl.experiment.proof import make_canaries
from bocl.experiment.provenance import node
from bocl.experiment.run import run
from bocl.experiment.store import RunStore
from bocl.method_table import METHODS
from bocl.methods.bocl import BOCL
from bocl.methods.fixed import Fixed, FixedSettings
from bocl.methods.saving import load
from bocl.methods.tensor_files import write_tensors
from bocl.networks.growth import GrowthSettings
from bocl.records.journal import encode, read
from bocl.records.record import TaskRecord
from bocl.records.run_log import JOURNAL
from bocl.records.summary import summarise
from bocl.tasks.arrays import from_arrays
from bocl.training.recipe import Recipe
from paper_settings import PAPER_GROWTH


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run of every method: {name: folder}."""
    from experiment_examples import SMALL

    from bocl.experiment.config import load_config

    place = tmp_path_factory.mktemp("runs")
    for method in METHODS:
        run(load_config("digits", [*SMALL, f"method={method}"]), place / method)
    return place


@pytest.fixture
def copy(finished, tmp_path):
    """A copy of BOCL's run, to be damaged."""
    return shutil.copytree(finished / "bocl", tmp_path / "run")


@pytest.mark.parametrize("method", METHODS)
def test_a_run_is_found_as_it_was_recorded(finished, method):
    found = audit(finished / method)
    records = read(finished / method / JOURNAL)
    tasks = [record for record in records if record["kind"] == "task"]
    assert (found.records, found.forgets) == (len(records), METHODS[method].load().forgets)
    assert [task.accuracy for task in found.tasks] == tasks[-1]["row"]
    checked = [task for task in found.tasks if task.tensors is not None]
    assert len(checked) == (1 if found.forgets else 2)
    for task in checked:
        assert task.tensors == len(tasks[task.index]["proof"]["tensors"]) > 0
        assert task.canaries == 0.0, "the same machine gives the same bits"
    assert [task.accuracy for task in audit(finished / method, with_accuracy=False).tasks] == [None, None]


# What is altered in a learner.


def norm_net():
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 4), nn.ReLU(), nn.Linear(4, 2)
    )  # fmt: skip


GROWTHS = {"paper": PAPER_GROWTH, "default": GrowthSettings(gate_share=1.0)}


@pytest.fixture(scope="module", params=GROWTHS)
def learnt(request, tmp_path_factory):
    """A store, and a learner with batch norms and gates that has learnt three tasks; two of them are recorded."""
    generator = torch.Generator().manual_seed(0)
    pairs = [(torch.randn(60, 1, 6, 6, generator=generator).numpy(), [0, 1] * 30) for _ in range(3)]
    stream = from_arrays(pairs)
    options = {"growth": GROWTHS[request.param], "recipe": Recipe("adam", epochs=1), "device": "cpu"}
    learner = Fixed(norm_net(), settings=FixedSettings(2), **options)
    config = Config()
    with RunStore.open(tmp_path_factory.mktemp("run"), config) as store:
        store.start(config, learner, data="")
        for index in range(2):
            learned = learner.learn(stream[index])
            row = (0.5,) * (index + 1)
            record = TaskRecord(index, "x", learned.widths, row, row, {}, 0, (), float("nan"), 0, 0.0, 0.0)
            store.commit(record, learner, make_canaries(learner, stream[index]))
        learner.learn(stream[2])
        yield store, learner


STORED = [
    ("an old weight", "layer/0/rows"),
    ("what old units read from new ones", "layer/4/columns"),
    ("a batch norm's mean", "norm/1/mean"),
    ("a batch norm's variance", "norm/1/var"),
    ("a batch norm's weight", "norm/1/weight"),
    ("a head", "head/weight"),
    ("a head's bias", "head/bias"),
    ("an attention matrix", "gate/4/reduce.weight"),
    ("an attention vector", "gate/4/expand.bias"),
    ("a gate per unit", "gate/4/unit"),
]
OF_THE_PAPER = {"layer/4/columns", "gate/4/reduce.weight", "gate/4/expand.bias"}  # layer 4 reads a flattened map


@pytest.mark.parametrize("task", [0, 1])
@pytest.mark.parametrize(("what", "name"), STORED)
@pytest.mark.parametrize("form", ["stored", "used"])
def test_the_smallest_change_of_any_tensor_is_found(learnt, task, what, name, form):
    store, learner = learnt
    weights = learner.network.growths[task].tensors
    if form == "used":
        name = name.replace("rows", "weight").replace("columns", "weight")
        weights = learner.network.tasks[task].weights
    if name not in weights:
        paper = learner.growth == PAPER_GROWTH
        other = name == "gate/4/unit" if paper else name in OF_THE_PAPER
        assert task == 0 or other, "the first task has no gates, and no units before it"
        return
    check_untouched(store.folder, store.log, learner, (0.5, 0.5, 0.5))
    value = weights[name].view(-1)
    before = value[0].clone()
    value[0] = torch.nextafter(before, torch.tensor(9.0))
    try:
        with pytest.raises(DriftError, match=f"task {task + 1}, 'x': tensor .*{name} is not the one recorded"):
            check_untouched(store.folder, store.log, learner, (0.5, 0.5, 0.5))
    finally:
        value[0] = before
    check_untouched(store.folder, store.log, learner, (0.5, 0.5, 0.5))


def test_a_change_that_no_tensor_shows_is_found_by_the_canaries(learnt, monkeypatch):
    store, learner = learnt
    predict = Fixed.predict
    monkeypatch.setattr(Fixed, "predict", lambda self, x, task: predict(self, x, task) * (1 + 1e-6 * task))
    with pytest.raises(DriftError, match="task 2, 'x': the logits of its canaries are off"):
        check_untouched(store.folder, store.log, learner, (0.5, 0.5, 0.5))
    monkeypatch.setattr(Fixed, "predict", lambda self, x, task: predict(self, x, task) * float("nan"))
    with pytest.raises(DriftError, match="task 1, 'x': the logits of its canaries are off by nan"):
        check_untouched(store.folder, store.log, learner, (0.5, 0.5, 0.5))


def test_on_another_machine_logits_may_differ_in_their_last_bits(learnt, monkeypatch):
    store, learner = learnt
    predict = Fixed.predict
    monkeypatch.setattr("bocl.experiment.audit.machine", lambda _device: {"device": "another"})
    monkeypatch.setattr(Fixed, "predict", lambda self, x, task: predict(self, x, task) * (1 + 1e-5))
    check_untouched(store.folder, store.log, learner, (0.5, 0.5, 0.5))
    monkeypatch.setattr(Fixed, "predict", lambda self, x, task: predict(self, x, task) * 1.1)
    with pytest.raises(DriftError, match=r"0\.001 is allowed here"):
        check_untouched(store.folder, store.log, learner, (0.5, 0.5, 0.5))


def test_another_host_of_the_same_kind_gives_the_same_bits(learnt, monkeypatch):
    store, learner = learnt
    predict = Fixed.predict
    monkeypatch.setattr("platform.node", lambda: "another.example.org")
    assert node() == "another", "without its domain"
    check_untouched(store.folder, store.log, learner, (0.5, 0.5, 0.5))
    monkeypatch.setattr(Fixed, "predict", lambda self, x, task: predict(self, x, task) * (1 + 1e-5))
    with pytest.raises(DriftError, match="the logits of its canaries are off"):
        check_untouched(store.folder, store.log, learner, (0.5, 0.5, 0.5))


def test_an_accuracy_that_moved_is_found(learnt):
    store, learner = learnt
    with pytest.raises(DriftError, match=r"task 2, 'x': test accuracy 0\.51 after task 3, recorded was 0\.5"):
        check_untouched(store.folder, store.log, learner, (0.5, 0.51, 0.5))


# What is altered in a folder.


def rewrite(folder, change):
    """Write a journal anew with right hashes, its records changed."""
    records, lines, head = read(folder / JOURNAL), [], "0" * 64
    for record in records:
        change(record)
        line, head = encode(record, head)
        lines.append(line)
    (folder / JOURNAL).write_bytes(b"".join(lines))


def test_a_rewritten_accuracy_is_found_though_every_hash_is_right(copy):
    def change(record):
        if record["kind"] == "task":
            record["row"][0] += 0.1

    rewrite(copy, change)
    with pytest.raises(DriftError, match=r"task 1, 'permutation 1': test accuracy .* now, recorded was"):
        audit(copy)


def test_a_row_that_contradicts_an_earlier_one_is_found_without_the_data(copy):
    def change(record):
        if record["kind"] == "task" and record["index"] == 1:
            record["row"][0] += 0.1

    rewrite(copy, change)
    with pytest.raises(DriftError, match=r"task 1, 'permutation 1': test accuracy .* after task 2, recorded was"):
        audit(copy, with_accuracy=False)


def test_a_tensor_that_is_not_the_one_recorded_is_named(copy):
    def change(record):
        if record["kind"] == "task" and record["index"] == 0:
            record["proof"]["tensors"]["head/weight"] = "0" * 64

    rewrite(copy, change)
    with pytest.raises(DriftError, match="task 1, 'permutation 1': tensor head/weight is not the one recorded"):
        audit(copy)


def test_a_damaged_file_is_named(copy):
    for path in [path for path in copy.rglob("*") if path.is_file() and path.stat().st_size]:
        whole = path.read_bytes()
        middle = len(whole) // 2
        for damaged in (whole[:middle] + bytes([whole[middle] ^ 4]) + whole[middle + 1 :], whole[:-3]):
            if path.name == JOURNAL and damaged == whole[:-3]:
                continue  # a torn tail: the record of the last task, without its file
            path.write_bytes(damaged)
            with pytest.raises(DriftError, match=path.name.replace(".", r"\.")):
                audit(copy, with_accuracy=False)
            path.write_bytes(whole)
    audit(copy)


def test_a_journal_that_lost_its_last_task_does_not_fit_the_folder(copy):
    lines = (copy / JOURNAL).read_bytes().splitlines(keepends=True)
    (copy / JOURNAL).write_bytes(b"".join(lines[:-1]))
    with pytest.raises(DriftError, match="checkpoints/task-01/last is missing"):
        audit(copy)


def put(kind, index, *path, value):
    """Return a change that puts a value into a record of a task or session."""

    def change(record):
        if record["kind"] == kind and record.get("index", 0) == index:
            for step in path[:-1]:
                record = record[step]
            record[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (put("task", 1, "name", value="another"), r"the checkpoint has the tasks .*'permutation 2'\], the journal"),
        (put("task", 1, "widths", value=[3, 3]), r"the checkpoint has the widths .*, the journal .*\(3, 3\)"),
        (put("task", 1, "stored", value=7), r"journal\.jsonl, line .*7 parameters are stored, not \d+ \+ \d+"),
        (put("task", 1, "validation_row", 0, value=0.9), r"validation accuracy 0\.9 after task 2, recorded was"),
        (put("task", 1, "validation_row", 1, value=0.9), r"validation accuracy .* now, recorded was 0\.9"),
    ],
    ids=["name", "widths", "stored", "an earlier validation", "a validation"],
)
def test_a_rewritten_record_is_found_though_every_hash_is_right(copy, change, told):
    rewrite(copy, change)
    with pytest.raises(DriftError, match=told):
        audit(copy)


def test_settings_that_nobody_can_have_run_are_refused_in_one_line(copy):
    rewrite(copy, put("start", 0, "config", "recipe", value={"epochs": -1, "optimiser": "a\nb"}))
    with pytest.raises(FolderError, match=r"journal\.jsonl: config\.recipe.*another version of bocl") as told:
        audit(copy)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "tensors",
    [
        {"inputs": torch.zeros(2, 1, 8, 8)},
        {"inputs": torch.zeros(3), "logits": torch.zeros(3)},
        {},
        {"inputs": torch.zeros(16, 1, 8, 8, dtype=torch.uint8), "logits": torch.zeros(16, 3)},
    ],
    ids=["no logits", "no samples", "nothing", "other logits"],
)
def test_canaries_that_are_none_are_refused_by_name(copy, tensors):
    def change(record):
        if record["kind"] == "task" and record["index"] == 0:
            stored = write_tensors(copy, "canaries/task-01.safetensors", tensors, "canaries, format 2")
            record["proof"]["canaries"] = asdict(stored)

    rewrite(copy, change)
    with pytest.raises(DriftError, match=r"canaries/task-01\.safetensors is not what was recorded for task 1: "):
        audit(copy)


def test_a_journal_of_another_run_does_not_fit_the_folder(copy, small, tmp_path):
    run(small("seed=1"), tmp_path / "another")
    shutil.copy(tmp_path / "another" / JOURNAL, copy / JOURNAL)
    for read_it in (audit, summarise, load):
        with pytest.raises((DriftError, FolderError), match=r"model\.json is damaged"):
            read_it(copy)


# A run that watches itself.


@pytest.fixture
def forgetful(monkeypatch):
    """Make BOCL alter the head of its first task while it learns the second."""
    learn = BOCL.learn

    def learn_and_forget(self, task, callback, **options):
        if self.seen:
            self.network.growths[0].tensors["head/bias"][0] += 1
        return learn(self, task, callback, **options)

    monkeypatch.setattr(BOCL, "learn", learn_and_forget)


def test_a_run_that_forgets_stops_before_it_records_that(tmp_path, small, forgetful):
    with pytest.raises(WorkError, match="task 1, 'permutation 1': tensor head/bias is not the one recorded"):
        run(small(), tmp_path)
    assert sum(record["kind"] == "task" for record in read(tmp_path / JOURNAL)) == 1


def test_without_its_audit_a_run_goes_on_and_what_is_written_of_the_first_task_stays(tmp_path, small, forgetful):
    assert len(run(small(), tmp_path, audit=False)) == 2
    assert [task.canaries for task in audit(tmp_path).tasks] == [0.0, 0.0]


def test_json_can_hold_what_was_found(finished):
    found = audit(finished / "sn")
    json.dumps({**asdict(found), "folder": ""}, allow_nan=False)


def test_after_another_version_of_torch_a_sample_may_fall_to_the_other_side(copy):
    records = read(copy / JOURNAL)
    later = {**records[0], "versions": {**records[0]["versions"], "torch": "0"}}
    last = next(number for number, record in enumerate(records) if record["kind"] == "task" and record["index"] == 1)
    records[last]["row"][0] += 0.001
    lines, head = [], "0" * 64
    for record in (*records[: last - 1], later, *records[last - 1 :]):
        line, head = encode(record, head)
        lines.append(line)
    (copy / JOURNAL).write_bytes(b"".join(lines))
    assert len(audit(copy, with_accuracy=False).tasks) == 2


def test_a_run_that_goes_on_while_it_is_audited_is_looked_at_again(copy, monkeypatch):
    whole = (copy / JOURNAL).read_bytes()
    lines = whole.splitlines(keepends=True)
    (copy / JOURNAL).write_bytes(b"".join(lines[:3]))  # as the journal was when its first task was finished
    first = audit_module._audit

    def goes_on(*arguments):
        (copy / JOURNAL).write_bytes(whole)
        monkeypatch.setattr(audit_module, "_audit", first)
        raise DriftError("checkpoints/task-01 is missing")

    monkeypatch.setattr(audit_module, "_audit", goes_on)
    assert len(audit(copy, with_accuracy=False).tasks) == 2

"""Another child for the last finished task: what is replaced, what goes on from it, what is refused."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from experiment_examples import SMALL

from bocl.errors import DamagedError, FolderError, InputError
from bocl.experiment.audit import DriftError, audit
from bocl.experiment.config import Config, load_config
from bocl.experiment.pick import _trial_of, pick
from bocl.experiment.run import run
from bocl.experiment.store import RunStore
from bocl.methods.saving import load
from bocl.records.earlier import upgrade_config
from bocl.records.events import TaskDone, TrialDone
from bocl.records.journal import BEGINNING, encode, read
from bocl.records.pareto import Criterion, choose
from bocl.records.record import TaskRecord, Trial
from bocl.records.run_log import JOURNAL, RunLog
from bocl.records.summary import summarise
from bocl.settings import parse

OLD = Path(__file__).parents[1] / "fixtures" / "run-format-2"
OPTIONS = ("stream.tasks=3", "recipe.batch_size=256", "search.kind=random", "search.round_size=2")


class Stopped(BaseException):
    pass


def stop_after_two(event):
    if isinstance(event, TaskDone) and event.record.index == 1:
        raise Stopped


@pytest.fixture(scope="module")
def two_tasks(tmp_path_factory):
    """A run of three tasks, two of them finished."""
    config, folder = load_config("digits", [*SMALL, *OPTIONS]), tmp_path_factory.mktemp("run") / "run"
    with pytest.raises(Stopped):
        run(config, folder, device="cpu", callback=stop_after_two)
    return config, folder


@pytest.fixture
def begun(tmp_path, two_tasks):
    return two_tasks[0], shutil.copytree(two_tasks[1], tmp_path / "run")


def others(folder):
    """The children of the last task that were not kept."""
    task = summarise(folder).tasks[-1]
    return [trial for trial in task.trials if trial.widths != task.widths]


def test_a_picked_child_takes_the_place_of_the_one_kept(begun):
    _, folder = begun
    old, history = summarise(folder).tasks, (folder / JOURNAL).read_bytes()
    for trial in others(folder):
        found = pick(folder, trial.widths, device="cpu")
        first, second = summarise(folder).tasks
        assert first == old[0]
        assert second == found.after
        assert second.widths == trial.widths
        assert sum(second.parameters.values()) == trial.parameters
        assert second.stored == first.stored + trial.parameters
        assert second.row[0] == old[1].row[0], "the task before is untouched"
        assert second.validation_row[1] == pytest.approx(trial.accuracy, abs=0.01)  # of its compact form
        assert second.trials == old[1].trials
        audit(folder, device="cpu")
        learner = load(folder, device="cpu")
        assert learner.network.growths[1].widths == learner.history[0].best == trial.widths
        assert sum(learner.parameters().values()) == second.stored
    assert (folder / JOURNAL).read_bytes().startswith(history), "history is only added to"
    assert len(list(folder.glob("checkpoints/*"))) == 2
    assert len(list(folder.glob("canaries/*"))) == 2


def test_the_child_has_the_weights_of_its_round(begun):
    _, folder = begun
    log = RunLog.of(read(folder / JOURNAL), folder / JOURNAL)
    wanted = others(folder)[-1].widths
    entry = next(entry for entry in log.rounds[1] if entry.purpose == "search" and wanted in entry.widths)
    with RunStore.open(folder, begun[0]) as store:
        tensors = store.recall(entry)
    pick(folder, wanted, device="cpu")
    growth = load(folder, device="cpu").network.growths[1]
    for name, tensor in growth.tensors.items():
        assert torch.equal(tensor, tensors[f"{entry.widths.index(wanted)}/{name}"])


def test_a_run_goes_on_from_the_picked_network_the_same_way_every_time(begun, tmp_path):
    config, folder = begun
    copies = [shutil.copytree(folder, tmp_path / name) for name in ("kept", "once", "twice")]
    one, other = others(folder)[:2]
    pick(copies[1], other.widths, device="cpu")
    pick(copies[2], one.widths, device="cpu")
    pick(copies[2], other.widths, device="cpu")
    for copy in copies:
        run(config, copy, device="cpu")
        audit(copy, device="cpu")
    kept, once, twice = (summarise(copy).tasks for copy in copies)
    assert once[2].trials == twice[2].trials
    assert once[2].row == twice[2].row
    assert once[2].trials != kept[2].trials
    weights = [[path.read_bytes() for path in sorted(copy.glob("checkpoints/*/weights-*"))] for copy in copies[1:]]
    assert weights[0] == weights[1]
    assert sorted(path.name for path in copies[2].glob("checkpoints/*")) == ["task-01", "task-02-pick-2", "task-03"]
    assert (copies[2] / "canaries" / "task-02-pick-2.safetensors").is_file()


def test_the_last_learner_is_taken_where_a_crash_left_two(begun):
    _, folder = begun
    for kept, left in (("task-02", "task-02-pick-1"), ("task-02-pick-1", "task-02-pick-2")):
        before = folder / "checkpoints" / kept
        shutil.copytree(before, folder / "aside")
        widths = pick(folder, others(folder)[0].widths, device="cpu").after.widths
        (folder / "aside").rename(before)
        assert sorted(path.name for path in folder.glob("checkpoints/*")) == ["task-01", kept, left]
        assert load(folder, device="cpu").network.growths[1].widths == widths


def test_a_pick_can_be_by_price_budget_or_target(begun):
    _, folder = begun
    trials = summarise(folder).tasks[-1].trials
    smallest = min(trial.parameters for trial in trials)
    small = [Criterion(alpha=5.0), Criterion(budget=smallest)]
    for criterion in (*small, Criterion(target=0.01), Criterion(alpha=0.0), Criterion(target=1.0)):
        assert pick(folder, criterion, device="cpu").after.widths == choose(trials, criterion).widths
    assert {choose(trials, criterion).widths for criterion in small} == {(0, 0)}


def test_picking_what_is_kept_changes_nothing(begun):
    _, folder = begun
    before = (folder / JOURNAL).read_bytes()
    found = pick(folder, summarise(folder).tasks[-1].widths, task=1, device="cpu")
    assert found.before == found.after
    assert (folder / JOURNAL).read_bytes() == before


@pytest.mark.parametrize(
    ("wanted", "task", "message"),
    [
        ((3, 99), None, r"no child with widths \(3, 99\) was trained for task 2; bocl show --task 2"),
        ((0,), None, r"no child with widths \(0,\)"),
        (Criterion(budget=1), None, "no trial adds so few parameters"),
        ((0, 0), 0, "task 1 of .* cannot be picked for; the last finished one, 2, can"),
        ((0, 0), 2, "task 3 of .* cannot be picked for"),
    ],
)
def test_what_cannot_be_picked_is_refused(begun, wanted, task, message):
    _, folder = begun
    before = (folder / JOURNAL).read_bytes()
    with pytest.raises(InputError, match=message):
        pick(folder, wanted, task=task, device="cpu")
    assert (folder / JOURNAL).read_bytes() == before


def test_once_the_next_task_has_begun_it_is_too_late(begun):
    config, folder = begun

    def stop(event):
        if isinstance(event, TrialDone):
            raise Stopped

    widths = others(folder)[0].widths
    with pytest.raises(Stopped):
        run(config, folder, device="cpu", callback=stop)
    with pytest.raises(InputError, match=r"task 2 of .* cannot be picked for: task 3, built on it, has begun"):
        pick(folder, widths, device="cpu")


def test_weights_that_are_gone_are_told(begun):
    _, folder = begun
    widths = others(folder)[0].widths
    shutil.rmtree(folder / "rounds")
    with pytest.raises(DamagedError, match=r"round-\d+\.safetensors cannot be read"):
        pick(folder, widths, device="cpu")
    assert summarise(folder).tasks[-1].widths != widths


def test_a_child_that_failed_is_refused(begun):
    _, folder = begun
    records, lines, head = read(folder / JOURNAL), b"", BEGINNING
    records[-1]["trials"][1] |= {"accuracy": None, "reward": None}
    for record in records:
        line, head = encode(record, head)
        lines += line
    (folder / JOURNAL).write_bytes(lines)
    with pytest.raises(InputError, match="failed and has no weights"):
        pick(folder, tuple(records[-1]["trials"][1]["widths"]), device="cpu")


@pytest.mark.parametrize(("method", "message"), [("frozen", "learnt without a search"), ("sn", "without a search")])
def test_a_method_without_trials_is_refused(tmp_path, method, message):
    run(load_config("digits", [*SMALL, f"method={method}"]), tmp_path, device="cpu")
    with pytest.raises(InputError, match=message):
        pick(tmp_path, (0, 0), device="cpu")


def test_a_folder_without_a_run_is_refused_and_left_alone(tmp_path):
    with pytest.raises(FolderError, match="is not a run"):
        pick(tmp_path / "none", (0, 0), device="cpu")
    assert not (tmp_path / "none").exists()


def test_a_run_under_way_is_refused(begun):
    config, folder = begun
    with RunStore.open(folder, config), pytest.raises(FolderError, match="in use by another process"):
        pick(folder, others(folder)[0].widths, device="cpu")


def test_an_old_run_can_be_picked_from_and_gone_on_with(tmp_path):
    folder = shutil.copytree(OLD, tmp_path / "run")
    record = pick(folder, others(folder)[0].widths, device="cpu").after
    assert len(record.row) == 2
    assert math.isnan(record.trials[0].cost)
    audit(folder, device="cpu")
    config = parse(Config, upgrade_config(read(OLD / JOURNAL)[0]["config"]), "the old run")
    assert run(config, folder, device="cpu")[-1] == record


def test_a_picked_task_that_is_not_as_recorded_is_found(begun):
    _, folder = begun
    pick(folder, others(folder)[0].widths, device="cpu")
    (file,) = folder.glob("canaries/*-pick-1.safetensors")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises(DriftError, match="is damaged"):
        audit(folder, device="cpu")


def test_a_budget_is_refused_before_the_folder_is_touched(tmp_path):
    config = load_config("digits", [*SMALL, "goal.total_budget=500"])
    with pytest.raises(InputError, match=r"goal\.total_budget is 500.*give at least"):
        run(config, tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_run_of_json_holds_what_units_cost(begun):
    _, folder = begun
    record = json.loads((folder / JOURNAL).read_text().splitlines()[-1])["record"]
    for trial in record["trials"]:
        assert trial["reward"] == trial["accuracy"] - 5e-3 * trial["cost"]


def test_of_children_of_the_same_widths_one_with_weights_is_picked():
    stopped = Trial((1, 2), math.nan, 9, math.nan, reads="first", rungs=(0.5,))
    failed, trained = Trial((3, 0), math.nan, 5, math.nan), Trial((1, 2), 0.7, 8, 0.7, reads="own")
    row = (0.5, 0.5)
    task = TaskRecord(1, "x", (0, 0), row, row, {}, 0, (stopped, failed, trained), math.nan, 0, 0.0, 0.0)
    assert _trial_of(task, (1, 2), None) == trained
    with pytest.raises(InputError, match=r"the child with widths \(3, 0\) failed and has no weights"):
        _trial_of(task, (3, 0), None)
    with pytest.raises(InputError, match=r"the child with widths \(1, 2\) was stopped early and has no weights"):
        _trial_of(replace(task, trials=(stopped, failed)), (1, 2), "first")

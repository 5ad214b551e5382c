"""Records whose hashes are right and whose content is not: refused with the line and the reason."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from bocl.errors import DamagedError, FolderError
from bocl.records.journal import Journal
from bocl.records.run_log import JOURNAL, RunLog
from bocl.records.summary import find_runs, summarise

HASH = "0" * 64
START = {
    "kind": "start",
    "format": 2,
    "config": {"method": "bocl", "seed": 0, "stream": {"tasks": 2}},
    "digest": "d",
    "groups": ["a", "b"],
    "versions": {"torch": "2"},
    "data": "f",
    "machine": {"threads": 1},
    "shares_device": 1,
    "time": "now",
}
FIT = {"accuracy": 0.5, "loss": 1.0, "epochs": 1, "samples": 2, "seconds": 0.1, "failure": ""}


def a_round(task, number):
    return {
        "kind": "round",
        "task": task,
        "number": number,
        "purpose": "search",
        "widths": [[1, 2]],
        "seeds": [7],
        "fits": [dict(FIT)],
        "children_at_once": None,
        "weights": {
            "file": f"rounds/task-{task + 1:02d}/round-{number:03d}.safetensors",
            "bytes": 1,
            "sha256": HASH,
        },
    }


def a_task(index):
    return {
        "kind": "task",
        "index": index,
        "name": "x",
        "widths": [1, 2],
        "validation_row": [0.5] * (index + 1),
        "row": [0.5] * (index + 1),
        "parameters": {"shared": 1},
        "stored": index + 1,
        "trials": [{"widths": [1, 2], "accuracy": None, "parameters": 1, "reward": None}],
        "difficulty": None,
        "samples": 1,
        "seconds": 1.0,
        "training_seconds": 1.0,
        "proof": {
            "tensors": {"head": HASH},
            "canaries": {"file": f"canaries/task-{index + 1:02d}.safetensors", "bytes": 1, "sha256": HASH},
            "checkpoint": {"file": f"checkpoints/task-{index + 1:02d}/model.json", "bytes": 1, "sha256": HASH},
        },
    }


HALVING = {"kind": "out-of-memory", "task": 1, "round": 2, "children_at_once": 2}
WHOLE = [START, a_round(0, 1), a_task(0), START, a_round(1, 1), HALVING, a_round(1, 2), a_task(1)]


def read_all(records):
    return RunLog.of(records, Path("journal.jsonl"))


def test_a_whole_run_is_read():
    log = read_all(WHOLE)
    assert [len(part) for part in (log.starts, log.tasks, log.proofs, log.rounds[1])] == [2, 2, 2, 2]
    assert log.halvings == {(1, 2): 2}
    assert log.prior_trials == "", "early records are without"
    later = {**START, "prior_trials": HASH}
    assert read_all([*WHOLE[:3], later, *WHOLE[4:]]).prior_trials == HASH
    assert log.tasks[0].trials[0].failed
    assert log.tasks[0].difficulty != log.tasks[0].difficulty


def three_tasks(*reads):
    """Return a run of three tasks that read these."""
    start = {**START, "config": {**START["config"], "stream": {"tasks": 3}}}
    tasks = [a_task(index) | ({} if read is None else {"reads": read}) for index, read in enumerate(reads)]
    return [start, *(record for index, task in enumerate(tasks) for record in (a_round(index, 1), task))]


def test_what_a_task_reads_is_all_earlier_ones_unless_it_says_so():
    assert [task.reads_tasks for task in read_all(three_tasks(None, None, None)).tasks] == [(), (0,), (0, 1)]
    assert [task.reads_tasks for task in read_all(three_tasks([], [], [1])).tasks] == [(), (), (1,)]
    check_refused(three_tasks([], [0], [1]), lambda _: None, 7, "it reads (1,): task 2 without all that it reads")
    check_refused(three_tasks(None, None, [1]), lambda _: None, 7, "task 2 without all that it reads")


def without(place, name):
    """Return a change that takes one entry out of a record."""

    def change(records):
        del records[place][name]

    return change


def put(place, *path_and_value):
    """Return a change that puts a value at a path in a record."""
    *path, last, value = path_and_value

    def change(records):
        target = records[place]
        for step in path:
            target = target[step]
        target[last] = value

    return change


def moved(old, new):
    """Return a change that moves a record."""

    def change(records):
        records.insert(new, records.pop(old))

    return change


def one_task(records):
    for start in (0, 3):
        records[start]["config"]["stream"]["tasks"] = 1


CHANGES = [
    (without(0, "kind"), 1, "the first record must be a start"),
    (without(1, "kind"), 2, "its kind is None"),
    (put(1, "kind", "trial"), 2, "its kind is 'trial'"),
    (without(0, "config"), 1, "config: required key is missing"),
    (without(0, "digest"), 1, "digest: required key is missing"),
    (without(0, "format"), 1, "it has format None"),
    (put(0, "prior_trials", "x"), 1, "start.prior_trials: expected a string of the form ^[0-9a-f]{64}$ or '', found"),
    (
        lambda records: [records[at].update(prior_trials=64 * str(at)) for at in (0, 3)],
        4,
        "different trials of other runs",
    ),
    (put(0, "format", 5), 1, "it has format 5; this version of bocl reads format 4"),
    (put(0, "config", {}), 1, "config.method"),
    (put(0, "config", "seed", "0"), 1, "config.seed"),
    (put(0, "config", "stream", {}), 1, "config.stream.tasks"),
    (put(0, "config", "stream", "tasks", 0), 1, "start.config.stream.tasks is 0; it must be at least 1"),
    (put(3, "config", "seed", 7), 4, "different settings"),
    (put(0, "groups", [1]), 1, "groups"),
    (put(0, "more", 1), 1, "unknown key"),
    (put(2, "extra_numbers", -1), 3, "task.extra_numbers is -1; it must be at least 0"),
    (put(2, "units", {"copied": [1, 2, 3, 4, 5]}), 3, "widths (1, 2, 3, 4, 5) do not fit"),
    (put(2, "index", 1), 3, "it finishes task 2, not task 1"),
    (put(7, "index", 0), 8, "it finishes task 1, not task 2"),
    (one_task, 8, "task 2 of 1"),
    (put(7, "row", [0.5]), 8, "a row has 1 accuracies, not 2"),
    (put(7, "row", [0.5, 1.5]), 8, "task.row[1] is 1.5; it must be at most 1"),
    (put(7, "row", [0.5, None]), 8, "row"),
    (put(7, "name", 3), 8, "name"),
    (put(7, "widths", [1]), 8, "do not fit 2 groups"),
    (put(7, "widths", [1, -1]), 8, "do not fit 2 groups"),
    (put(7, "trials", [{}]), 8, "trials"),
    (put(7, "trials", 0, "widths", [1, 2, 3]), 8, "do not fit 2 groups"),
    (put(7, "attention", {"fc2": [0.5]}), 8, "fc2 has 1 mean gates, not 2"),
    (put(7, "attention", {"fc2": [0.5, 1.5]}), 8, "task.attention.fc2[1] is 1.5; it must be at most 1"),
    (put(7, "attention", {"fc2": 0.5}), 8, "attention"),
    (without(7, "proof"), 8, "proof"),
    (put(7, "proof", "tensors", {"head": "abc"}), 8, "task.proof.tensors.head: expected a string of the form"),
    (put(7, "proof", "canaries", "file", "../../etc/passwd"), 8, "it names the file '../../etc/passwd'"),
    (put(7, "proof", "checkpoint", "file", "/etc/passwd"), 8, "it names the file '/etc/passwd'"),
    (put(4, "task", 0), 5, "a round of task 1, not of task 2"),
    (put(4, "number", 2), 5, "round 2 of its task, not round 1"),
    (put(6, "number", 1), 7, "round 1 of its task, not round 2"),
    (put(4, "widths", []), 5, "round.widths: expected a list with 1 or more entries"),
    (put(4, "seeds", [1, 2]), 5, "differ in number"),
    (put(4, "fits", 0, "accuracy", 2.0), 5, "round.fits[0].accuracy is 2.0; it must be at most 1"),
    (put(4, "fits", 0, "accuracy", None), 5, "a reason why it failed"),
    (put(4, "weights", "file", "rounds/task-01/round-001.safetensors"), 5, "it names the file"),
    (put(4, "weights", "sha256", "no"), 5, "round.weights.sha256: expected a string of the form"),
    (put(5, "round", 1), 6, "it names round 1 of task 2, not round 2"),
    (put(5, "children_at_once", 0), 6, "out-of-memory.children_at_once is 0; it must be at least 1"),
    (put(4, "reads", [[0], [0]]), 5, "its widths, seeds, fits and reads differ in number"),
    (put(4, "reads", [[1]]), 5, "it reads (1,), which are not numbers of earlier tasks in order"),
    (put(1, "reads", [[0]]), 2, "it reads (0,), which are not numbers of earlier tasks in order"),
    (put(4, "reads", [[-1]]), 5, "it reads (-1,), which are not numbers of earlier tasks in order"),
    (put(4, "reads", [[0, 0]]), 5, "it reads (0, 0), which are not numbers of earlier tasks in order"),
    (put(4, "reads", [["0"]]), 5, "round.reads[0][0]"),
    (put(7, "reads", [1]), 8, "it reads (1,), which are not numbers of earlier tasks in order"),
    (put(7, "reads", 0), 8, "task.reads"),
    (put(7, "trials", 0, "reads", "some"), 8, "task.trials[0].reads"),
    (put(7, "limit", "money"), 8, "task.limit"),
    (put(7, "widened", -1), 8, "task.widened is -1; it must be at least 0"),
    (put(7, "bounds", [4]), 8, "do not fit 2 groups"),
    (put(4, "fits", 0, "rungs", [1.5]), 5, "round.fits[0].rungs[0] is 1.5; it must be at most 1"),
    (moved(6, 4), 5, "round 2 of its task, not round 1"),
    (moved(2, 1), 3, "a round of task 1, not of task 2"),
    (moved(0, 1), 1, "the first record must be a start"),
]


@pytest.mark.parametrize(("change", "line", "reason"), CHANGES, ids=[reason for _, _, reason in CHANGES])
def test_what_makes_no_sense_is_refused_with_its_line(change, line, reason):
    check_refused(WHOLE, change, line, reason)


def check_refused(whole, change, line, reason):
    records = json.loads(json.dumps(whole))
    change(records)
    with pytest.raises(DamagedError) as told:
        read_all(records)
    assert str(told.value).startswith(f"journal.jsonl, line {line}: ")
    assert reason in str(told.value)
    assert "\n" not in str(told.value)


def a_pick(task, number):
    kept = ("widths", "validation_row", "row", "parameters", "stored", "proof")
    record = {name: value for name, value in a_task(task).items() if name in kept}
    record["proof"]["canaries"]["file"] = f"canaries/task-{task + 1:02d}-pick-{number}.safetensors"
    record["proof"]["checkpoint"]["file"] = f"checkpoints/task-{task + 1:02d}-pick-{number}/model.json"
    return {"kind": "pick", "task": task, "number": number, **record, "widths": [0, 1], "row": [0.25]}


TRIED = {"trials": [{"widths": [0, 1], "accuracy": 0.5, "parameters": 1, "reward": 0.5}, *a_task(0)["trials"]]}
LATER = START | {"time": "later"}
LARGER = {"parameters": {"shared": 7}, "stored": 7}
PICKED = [START, a_round(0, 1), a_task(0) | TRIED, LATER, a_pick(0, 1), a_pick(0, 2) | LARGER, a_round(1, 1)]


def test_a_pick_takes_the_place_of_what_the_task_kept():
    log = read_all(PICKED)
    assert (log.tasks[0].widths, log.tasks[0].row, log.tasks[0].stored) == ((0, 1), (0.25,), 7)
    assert len(log.tasks[0].trials) == 2
    assert log.checkpoint == "checkpoints/task-01-pick-2"
    assert [start.time for start in log.learnt_in] == ["later"]
    assert log.picks == {0: 2}


@pytest.mark.parametrize(
    ("change", "line", "reason"),
    [
        (moved(4, 1), 2, "none is finished"),
        (put(4, "task", 1), 5, "it picks for task 2, and task 1 is the last finished"),
        (put(4, "task", -1), 5, "it picks for task 0"),
        (moved(5, 6), 7, "it picks for task 1, and task 2 has begun"),
        (put(5, "number", 1), 6, "pick 1 of its task, not pick 2"),
        (put(4, "widths", [1, 2]), 5, "no child of task 1 has the widths (1, 2)"),  # it failed
        (put(4, "row", [0.5, 0.5]), 5, "a row has 2 accuracies, not 1"),
        (put(4, "stored", 2), 5, "2 parameters are stored, not 0 + 1"),
        (without(4, "proof"), 5, "proof"),
        (put(4, "proof", "checkpoint", "file", "checkpoints/task-01/model.json"), 5, "it names the file"),
    ],
)
def test_a_pick_that_makes_no_sense_is_refused_with_its_line(change, line, reason):
    check_refused(PICKED, change, line, reason)


def test_a_summary_refuses_the_same(tmp_path):
    with Journal.open(tmp_path / JOURNAL) as journal:
        journal.append(START)
        journal.append({"kind": "task"})
    with pytest.raises(FolderError, match=r"journal\.jsonl, line 2: not a record of a run"):
        summarise(tmp_path)


def test_a_record_may_tell_of_its_gates():
    records = json.loads(json.dumps(WHOLE))
    records[7]["attention"] = {"fc2": [0.25, None]}
    gates = read_all(records).tasks[1].attention["fc2"]
    assert gates[0] == 0.25
    assert math.isnan(gates[1])
    assert read_all(WHOLE).tasks[1].attention == {}, "records of before have none"


def test_a_journal_kept_alone_is_a_run_too(tmp_path):
    with Journal.open(tmp_path / "kept.jsonl") as journal:
        for record in WHOLE:
            journal.append(record)
        head = journal.head
    assert find_runs(tmp_path) == find_runs(tmp_path / "kept.jsonl") == [tmp_path / "kept.jsonl"]
    summary = summarise(tmp_path / "kept.jsonl")
    assert (summary.head, summary.lines, len(summary.sessions)) == (head, 8, 2)
    assert summary.figures()["accuracy"] == 0.5
    (tmp_path / "a-run").mkdir()
    (tmp_path / "a-run" / JOURNAL).write_bytes((tmp_path / "kept.jsonl").read_bytes())
    assert find_runs(tmp_path) == [tmp_path / "a-run", tmp_path / "kept.jsonl"]
    with pytest.raises(DamagedError, match="task-02 is missing"):
        summarise(tmp_path / "a-run")


def test_a_place_may_hold_several_grids(tmp_path):
    runs = ("one/kept.jsonl", "two/a-run/journal.jsonl", "a-run/journal.jsonl", "a/study/a-run/journal.jsonl")
    for name in (*runs, "much/too/deep/for/kept.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    (tmp_path / "a-run" / "other.jsonl").touch()  # a file of the run, no run
    found = [tmp_path / name for name in ("a/study/a-run", "a-run", "one/kept.jsonl", "two/a-run")]
    assert find_runs(tmp_path) == found
    with pytest.raises(FolderError, match="holds no runs"):
        find_runs(tmp_path / "much")


def test_a_session_of_a_later_version_may_know_more_settings():
    records = json.loads(json.dumps(WHOLE))
    records[3]["config"]["later"] = {"setting": 1}
    records[3]["digest"] = "e"
    assert len(read_all(records).starts) == 2


@pytest.mark.parametrize("search", ["fast", {"memory_gb": "[/red]"}, {"memory_gb": None}])
def test_settings_that_a_report_computes_with_are_checked(search):
    start = {**START, "config": {**START["config"], "search": search}}
    with pytest.raises(DamagedError, match=r"line 1: not a record of a run: start\.config\.search"):
        RunLog.of([start], Path("journal.jsonl"))

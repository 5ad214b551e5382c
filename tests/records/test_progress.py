"""How far a run is by its journal: cut at every record and byte, damaged, replaced, and while it is written."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from test_run_log import HALVING, HASH, START, WHOLE, a_round, a_task

from bocl.errors import FolderError
from bocl.records.journal import Journal, encode
from bocl.records.progress import progress_in, progress_of, runs_under
from bocl.records.run_log import JOURNAL

OLD = Path(__file__).parents[1] / "fixtures" / "run-format-2"


def journal_bytes(records):
    """Return a journal with these records."""
    lines, before = [], HASH
    for record in records:
        line, before = encode(record, before)
        lines.append(line)
    return b"".join(lines)


def write_run(folder, records):
    """Write a run that has nothing but a journal."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / JOURNAL).write_bytes(journal_bytes(records))
    return folder


def shown(run):
    return (run.done, run.rounds, run.children, run.accuracy)


def test_a_run_is_followed_record_by_record(tmp_path):
    found = [shown(progress_of(write_run(tmp_path, WHOLE[:count]))) for count in range(len(WHOLE) + 1)]
    assert found == [
        (0, 0, 0, None),
        (0, 0, 0, None),
        (0, 1, 1, None),
        (1, 0, 0, 0.5),
        (1, 0, 0, 0.5),
        (1, 1, 1, 0.5),
        (1, 1, 1, 0.5),
        (1, 2, 2, 0.5),
        (2, 0, 0, 0.5),
    ]


def test_what_is_known_of_a_run(tmp_path):
    start = {**START, "node": "here", "machine": {"device": "cuda:1"}}
    start["config"] = {**start["config"], "seed": 3, "stream": {"tasks": 2, "name": "mixed-mnist"}}
    second = a_round(1, 1)
    second["fits"] = [{**second["fits"][0], "seconds": seconds} for seconds in (0.5, 1.5)]
    second |= {"widths": [[1, 2], [3, 4]], "seeds": [1, 2]}
    task = a_task(0) | {"seconds": 7.0, "row": [0.25]}
    run = progress_of(write_run(tmp_path, [start, task, second]))
    assert (run.method, run.seed, run.stream, run.tasks) == ("bocl", 3, "mixed-mnist", 2)
    assert (run.node, run.device) == ("here", "cuda:1")
    assert (run.seconds, run.accuracy, run.children, run.spent) == ((7.0,), 0.25, 2, 2.0)
    assert not run.finished
    assert progress_of(write_run(tmp_path, [*WHOLE[:3], start, *WHOLE[4:]])).finished


def test_the_last_session_says_where_it_runs_and_how_many_tasks_there_are(tmp_path):
    given = {"name": "x", "place": "x.csv", "sha256": HASH}
    first = {**START, "config": {**START["config"], "stream": {"tasks": None}}, "node": "a", "given": [given]}
    assert progress_of(write_run(tmp_path, [first, a_task(0)])).finished, "all tasks that it was given"
    later = progress_of(write_run(tmp_path, [first, a_task(0), first | {"given": [given, given], "node": "b"}]))
    assert (later.done, later.tasks, later.node, later.finished) == (1, 2, "b", False)


def test_a_pick_replaces_the_accuracies_of_its_task(tmp_path):
    pick = {"kind": "pick", "task": 0, "number": 1, "row": [0.75]}
    assert progress_of(write_run(tmp_path, [*WHOLE[:3], pick])).accuracy == 0.75


def test_runs_of_one_method_and_preset_are_alike(tmp_path):
    config = START["config"] | {"network": {"build": "mlp"}, "recipe": {"epochs": 3}}
    same = [config, config | {"seed": 1}, config | {"growth": {"attention": False}}]
    others = [{"method": "sn"}, {"stream": {"tasks": 3}}, {"network": {"build": "lenet"}}, {"recipe": {"epochs": 4}}]
    runs = [START | {"config": each} for each in (*same, *(config | other for other in others))]
    alike = [progress_of(write_run(tmp_path / str(number), [start])).alike for number, start in enumerate(runs)]
    assert len(set(alike[:3])) == 1
    assert len(set(alike)) == 5


def test_a_line_that_is_being_written_is_left_out(tmp_path):
    """Every byte of two records, as a reader may find them."""
    whole = journal_bytes(WHOLE)
    ends = [len(journal_bytes(WHOLE[:count])) for count in range(len(WHOLE) + 1)]
    (tmp_path / JOURNAL).write_bytes(whole[: ends[2]])
    before, after = (shown(progress_of(write_run(tmp_path, WHOLE[:count]))) for count in (2, 3))
    for length in range(ends[2], ends[3] + 1):
        (tmp_path / JOURNAL).write_bytes(whole[:length])
        run = progress_of(tmp_path)
        assert (run.problem, shown(run)) == ("", after if length == ends[3] else before)
    for length in range(ends[1]):
        (tmp_path / JOURNAL).write_bytes(whole[:length])
        run = progress_of(tmp_path)
        assert (run.problem, run.method, run.tasks, run.finished) == ("", "", 0, False)


@pytest.mark.parametrize(
    ("change", "line", "reason"),
    [
        (lambda records: records.pop(0), 1, "the first record must be a start"),
        (lambda records: records[0].update(format=99), 1, "it has format 99"),
        (lambda records: records[0]["config"].pop("seed"), 1, "start.config.seed"),
        (lambda records: records[0]["config"]["stream"].update(tasks=10**400), 1, "start.config.stream.tasks"),
        (lambda records: records[2].pop("seconds"), 3, "task.seconds"),
        (lambda records: records[2].update(seconds=1e300), 3, "task.seconds"),
        (lambda records: records[2].update(row=[]), 3, "task.row"),
        (lambda records: records[2].update(row=["good"]), 3, "task.row"),
        (lambda records: records[4].update(fits="many"), 5, "round.fits"),
    ],
)
def test_a_journal_of_something_else_is_told_by_its_line(tmp_path, change, line, reason):
    records = json.loads(json.dumps([*WHOLE[:5], HALVING]))
    change(records)
    run = progress_of(write_run(tmp_path, records))
    assert f"{JOURNAL}, line {line}: " in run.problem
    assert reason in run.problem


def test_a_damaged_run_does_not_hide_the_others(tmp_path):
    for name in "abcd":
        write_run(tmp_path / "grid" / name, WHOLE)
    data = (tmp_path / "grid" / "b" / JOURNAL).read_bytes()
    (tmp_path / "grid" / "b" / JOURNAL).write_bytes(data.replace(b"0.5", b"0.6", 1))
    (tmp_path / "grid" / "c" / JOURNAL).write_text("somebody's notes\n")
    runs = progress_in([tmp_path])
    assert [run.folder.name for run in runs] == list("abcd")
    assert [bool(run.problem) for run in runs] == [False, True, True, False]
    assert "its checksum does not match" in runs[1].problem
    assert runs[0].finished
    assert runs[3].finished


def test_a_run_of_an_early_format_has_no_node():
    run = progress_of(OLD)
    assert (run.problem, run.finished, run.node, run.device) == ("", True, "", "cpu")


def test_a_journal_is_read_again_only_when_it_has_changed(tmp_path, monkeypatch):
    for name in "ab":
        write_run(tmp_path / name, WHOLE[:3])
    before = progress_in([tmp_path])
    reads = []
    monkeypatch.setattr(
        "bocl.records.progress.read", lambda path: reads.append(path.parent.name) or [START, a_round(0, 1)]
    )
    assert progress_in([tmp_path], before) == before
    assert reads == []
    with Journal.open(tmp_path / "b" / JOURNAL) as journal:
        journal.append(a_round(1, 1))
    after = progress_in([tmp_path], before)
    assert reads == ["b"]
    assert after[0] is before[0]


def test_a_journal_that_could_not_be_read_is_tried_again(tmp_path, monkeypatch):
    """A file server may be away for a moment."""
    write_run(tmp_path / "run", WHOLE)

    def away(path):
        raise FolderError(f"{path}: cannot be read: Stale file handle")

    with monkeypatch.context() as patched:
        patched.setattr("bocl.records.progress.read", away)
        before = progress_in([tmp_path])
    assert "Stale" in before[0].problem
    assert progress_in([tmp_path], before)[0].finished


def test_a_writer_is_not_in_the_way_and_nothing_is_written(tmp_path):
    folder = write_run(tmp_path / "run", WHOLE[:3])

    def listing():
        return [(path, path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(tmp_path.rglob("*"))]

    before = listing()
    assert shown(progress_of(folder)) == (1, 0, 0, 0.5)
    assert listing() == before
    with Journal.open(folder / JOURNAL) as journal:
        journal.append(WHOLE[3])
        assert shown(progress_of(folder)) == (1, 0, 0, 0.5)
        journal.append(a_round(1, 1))
        assert shown(progress_of(folder)) == (1, 1, 1, 0.5)
    (tmp_path / "run").chmod(0o500)
    (folder / JOURNAL).chmod(0o400)
    try:
        assert shown(progress_of(folder)) == (1, 1, 1, 0.5), "whoever may only read can look"
    finally:
        (tmp_path / "run").chmod(0o700)


def test_no_file_is_opened_but_to_read_and_none_is_locked(tmp_path, monkeypatch):
    folder = write_run(tmp_path / "run", WHOLE)
    monkeypatch.setattr("bocl.records.journal.lock_file", lambda *_, **__: pytest.fail("it takes a lock"))
    monkeypatch.setattr(os, "open", lambda *_, **__: pytest.fail("only pathlib's open, which is 'rb'"))
    assert progress_of(folder).finished


def test_runs_are_found_at_any_depth_and_once(tmp_path):
    for place in ("a/b/c/d/run", "study/digits/bocl/bocl-seed0", "study/digits/bocl/bocl-seed1"):
        write_run(tmp_path / place, WHOLE)
    (tmp_path / "study" / "empty").mkdir()
    (tmp_path / "circle").symlink_to(tmp_path, target_is_directory=True)
    names = [str(run.relative_to(tmp_path)) for run in runs_under(tmp_path)]
    assert names == ["a/b/c/d/run", "study/digits/bocl/bocl-seed0", "study/digits/bocl/bocl-seed1"]
    found = progress_in([tmp_path / "study", tmp_path, tmp_path / "a/b/c/d/run"])
    assert len(found) == 3
    with pytest.raises(FolderError, match="there is no such folder"):
        runs_under(tmp_path / "nowhere")


def test_a_run_that_is_not_there_yet_or_any_more_is_left_out(tmp_path):
    assert progress_of(tmp_path / "run") is None
    write_run(tmp_path / "run", WHOLE)
    before = progress_in([tmp_path])
    shutil.rmtree(tmp_path / "run")
    assert progress_in([tmp_path], before) == []


def test_a_journal_that_is_restored_from_a_copy_is_read_anew(tmp_path):
    (before,) = progress_in([write_run(tmp_path / "run", WHOLE)])
    write_run(tmp_path / "run", WHOLE[:3])
    os.utime(tmp_path / "run" / JOURNAL, ns=(before.stamp[0], before.stamp[0]))
    (after,) = progress_in([tmp_path / "run"], [before])
    assert (before.done, after.done) == (2, 1), "its size tells, too"

"""Rounds are trained once: a run that goes on asks for the same rounds, and reads what it has trained."""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace

import pytest
import torch
from experiment_examples import Stopped

from bocl.errors import FolderError, WorkError
from bocl.experiment import round_archive
from bocl.experiment.run import run
from bocl.methods import parts
from bocl.methods.halving import Halving
from bocl.methods.rounds import RoundMaker
from bocl.methods.saving import load
from bocl.methods.tensor_files import write_tensors
from bocl.records.events import OutOfMemory, TaskStarted, TrialDone
from bocl.records.journal import encode, read
from bocl.records.run_log import JOURNAL

OPTIONS = ("stream.tasks=3", "search.trials=3", "search.kind=random", "search.round_size=2", "recipe.batch_size=256")
# Two trials a round, z = 0 with the first.


def kinds(folder, kind):
    return [record for record in read(folder / JOURNAL) if record["kind"] == kind]


def timeless(value):
    if isinstance(value, list):
        return [timeless(item) for item in value]
    if isinstance(value, dict):
        return {name: timeless(item) for name, item in value.items() if "seconds" not in name}
    return value


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.safetensors")}


def assert_same(one, other):
    for kind in ("round", "task"):
        assert timeless(kinds(one, kind)) == timeless(kinds(other, kind))
    assert files(one) == files(other)


@pytest.mark.parametrize("method", ["bocl", "fixed"])
def test_no_round_is_trained_twice(tmp_path, small, stop_before, method):
    config = small(*OPTIONS, f"method={method}")
    whole = stop_before(-1)
    run(config, tmp_path / "whole")
    for most in range(1, len(whole), 2):
        before = stop_before(most)
        with pytest.raises(Stopped):
            run(config, tmp_path / f"{most}")
        after = stop_before(-1)
        run(config, tmp_path / f"{most}")
        assert before + after == whole
        assert_same(tmp_path / f"{most}", tmp_path / "whole")


def test_a_run_that_goes_on_tells_what_it_recalls_and_every_trial(tmp_path, small, stop_before):
    config = small(*OPTIONS)
    heard = {"whole": [], "again": []}
    run(config, tmp_path / "whole", callback=heard["whole"].append)
    stop_before(2)  # the base network and a round of the search
    with pytest.raises(Stopped):
        run(config, tmp_path / "again")
    stop_before(-1)
    run(config, tmp_path / "again", callback=heard["again"].append)
    assert [event.recalled for event in heard["again"] if isinstance(event, TaskStarted)] == [1, 0]
    trials = {name: [event for event in events if isinstance(event, TrialDone)] for name, events in heard.items()}
    assert trials["again"] == trials["whole"]


def test_rounds_are_kept_until_the_next_task_is_finished(tmp_path, small, stop_before):
    config = small(*OPTIONS)
    trained = stop_before(-1)
    run(config, tmp_path / "whole")
    assert {path.parent.name for path in (tmp_path / "whole").glob("rounds/*/*")} == {"task-03"}
    stop_before(len(trained) - 1)
    with pytest.raises(Stopped):
        run(config, tmp_path / "begun")
    assert {path.parent.name for path in (tmp_path / "begun").glob("rounds/*/*")} == {"task-02", "task-03"}


def test_a_searcher_that_asks_for_something_else_is_refused(tmp_path, small, stop_before, monkeypatch):
    config = small(*OPTIONS, "search.round_size=1")
    stop_before(3)
    with pytest.raises(Stopped):
        run(config, tmp_path)
    stop_before(-1)
    recorded = [tuple(widths) for widths in kinds(tmp_path, "round")[-1]["widths"]]
    monkeypatch.setattr("bocl.search.ledger.random_untried", lambda *_: (1, 2))
    with pytest.raises(FolderError, match="round 2 of task 2 was trained with the widths") as told:
        run(config, tmp_path)
    assert f"{recorded}, and now [(1, 2)] are asked for" in str(told.value)


def test_a_damaged_round_is_refused_by_name(tmp_path, small, stop_before):
    config = small(*OPTIONS)
    stop_before(2)
    with pytest.raises(Stopped):
        run(config, tmp_path)
    stop_before(-1)
    path = tmp_path / "rounds/task-02/round-001.safetensors"
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(damaged)
        with pytest.raises(FolderError, match=r"round-001\.safetensors is damaged"):
            run(config, tmp_path)
    path.unlink()
    with pytest.raises(FolderError, match=r"round-001\.safetensors cannot be read"):
        run(config, tmp_path)


@pytest.mark.parametrize("name", ["x", "7/head/bias", "0/head/bias"])
def test_a_round_of_other_children_is_refused_though_every_hash_is_right(tmp_path, small, stop_before, name):
    config = small(*OPTIONS)
    stop_before(2)
    with pytest.raises(Stopped):
        run(config, tmp_path)
    stop_before(-1)
    records = read(tmp_path / JOURNAL)
    stored = write_tensors(tmp_path, records[-1]["weights"]["file"], {name: torch.zeros(3)}, "round, format 2")
    records[-1]["weights"] = asdict(stored)
    lines, head = [], "0" * 64
    for record in records:
        line, head = encode(record, head)
        lines.append(line)
    (tmp_path / JOURNAL).write_bytes(b"".join(lines))
    with pytest.raises(FolderError, match=r"round-001\.safetensors does not hold the children of its round: tensor"):
        run(config, tmp_path)


def test_a_file_in_place_of_a_folder_of_rounds_is_left_alone(tmp_path, small):
    config = small("method=sn")
    run(config, tmp_path)
    (tmp_path / "rounds").mkdir()
    (tmp_path / "rounds" / "task-07").write_text("mine")
    assert len(run(config, tmp_path)) == 2


def test_a_checkpoint_that_no_record_names_is_not_loaded(tmp_path, small):
    run(small("method=sn"), tmp_path)
    shutil.copytree(tmp_path / "checkpoints/task-02", tmp_path / "checkpoints/task-03")
    (tmp_path / "checkpoints/task-03/model.json").write_text("{}")
    assert load(tmp_path).name == "sn"
    shutil.rmtree(tmp_path / "checkpoints/task-02")
    with pytest.raises(FolderError, match=r"checkpoints/task-02 is missing, but .*journal\.jsonl ends with task 2"):
        load(tmp_path)


def test_a_round_that_did_not_fit_goes_on_with_the_number_recorded(tmp_path, small, monkeypatch):
    """When the run goes on all children would fit; the round is trained as it would have been all the same."""
    config = small(*OPTIONS, "stream.tasks=2", "search.warm_points=4", "search.round_size=3")
    real, tried, room = parts.train, [], 2

    def train(children, *arguments, **options):
        tried.append(children.count)
        if children.count > room:
            raise torch.OutOfMemoryError("no more")
        return real(children, *arguments, **options)

    def stop(event):
        if isinstance(event, OutOfMemory):
            raise Stopped

    monkeypatch.setattr(parts, "train", train)
    run(config, tmp_path / "whole")
    with pytest.raises(Stopped):
        run(config, tmp_path / "again", callback=stop)
    (note,) = kinds(tmp_path / "again", "out-of-memory")
    assert (note["task"], note["round"], note["children_at_once"]) == (1, 1, 2), "recorded before it is used"
    room = 4
    tried.clear()
    run(config, tmp_path / "again")
    assert tried[:2] == [2, 2], "the base network is recalled, then come two parts"
    wanted, found = (timeless(kinds(tmp_path / name, "round"))[1] for name in ("whole", "again"))
    assert found == wanted
    assert (found["number"], found["children_at_once"], len(found["widths"])) == (1, 2, 4)


@pytest.mark.parametrize("method", ["bocl", "rcl"])
@pytest.mark.parametrize("most", ["search.children_at_once=1", "search.memory_gb=1e-6"])
def test_children_are_trained_one_by_one_where_settings_say_so(tmp_path, small, monkeypatch, method, most):
    real, sizes = parts.train, []

    def train(children, *arguments, **options):
        sizes.append(children.count)
        return real(children, *arguments, **options)

    monkeypatch.setattr(parts, "train", train)
    trials = ("stream.tasks=2", "search.trials=3", "rcl.trials=3", "search.kind=random")
    run(small(*trials, f"method={method}"), tmp_path / "together")
    assert max(sizes) > 1
    sizes.clear()
    run(small(*trials, f"method={method}", most), tmp_path / "alone")
    assert set(sizes) == {1}
    assert all(record["children_at_once"] is None for record in kinds(tmp_path / "alone", "round"))


@pytest.fixture
def failing(monkeypatch):
    """Return a function that makes children of some widths raise."""
    real = parts.train

    def fail(wrong):
        def train(children, *arguments, **options):
            if any(z in wrong for z in children.widths):
                raise ValueError("a bad\nday")
            return real(children, *arguments, **options)

        monkeypatch.setattr(parts, "train", train)

    return fail


def test_a_child_that_fails_is_recorded_with_its_reason_and_the_rest_goes_on(tmp_path, small, failing, stop_before):
    config = small(*OPTIONS, "stream.tasks=2")
    plain = run(config, tmp_path / "plain")[1].trials
    failing({plain[1].widths})
    tasks = run(config, tmp_path / "whole")
    trials = tasks[1].trials
    assert [trial.failed for trial in trials] == [trial.widths == plain[1].widths for trial in trials]
    fits = [fit for record in kinds(tmp_path / "whole", "round") for fit in record["fits"]]
    assert [fit["failure"] for fit in fits if fit["accuracy"] is None] == ["ValueError: a bad day"]
    assert tasks[1].widths != plain[1].widths
    stop_before(2)
    with pytest.raises(Stopped):
        run(config, tmp_path / "again")
    stop_before(-1)
    run(config, tmp_path / "again")
    assert_same(tmp_path / "again", tmp_path / "whole")


def test_without_a_difficulty_the_search_starts_cold(tmp_path, small, failing):
    config = small(*OPTIONS, "search.kind=paper")
    failing({(0, 0)})
    tasks = run(config, tmp_path)
    for task in tasks[1:]:
        assert task.difficulty != task.difficulty
        assert task.trials[0].failed
        assert not all(trial.failed for trial in task.trials)
    assert [record["difficulty"] for record in kinds(tmp_path, "task")] == [None] * 3


def test_when_every_child_fails_the_work_failed(tmp_path, small, failing):
    config = small("stream.tasks=2", "search.trials=2", "search.bounds=1")
    failing({(a, b) for a in (0, 1) for b in (0, 1)})
    with pytest.raises(WorkError, match="task 'permutation 2': ValueError: a bad day, in each of 4 children"):
        run(config, tmp_path)


def test_a_base_network_that_fails_is_not_remembered(tmp_path, small, failing):
    config = small("stream.tasks=1")
    failing({(6, 5)})
    with pytest.raises(WorkError, match="task 'permutation 1': ValueError: a bad day"):
        run(config, tmp_path)
    assert kinds(tmp_path, "round") == []
    failing(set())
    assert len(run(config, tmp_path)) == 1


@pytest.fixture
def halved(monkeypatch):
    """Stop all but two children of every round of a search after the first of two epochs."""
    children = RoundMaker.children

    def with_rungs(self, purpose, widths, *arguments):
        sizes = tuple(sum(z) for z in widths)
        return replace(children(self, purpose, widths, *arguments), halving=Halving((1,), (2,), sizes))

    monkeypatch.setattr(RoundMaker, "children", with_rungs)


@pytest.mark.usefixtures("halved")
def test_rungs_and_stopped_children_are_recorded_and_recalled(tmp_path, small, stop_before, monkeypatch):
    config = small(*OPTIONS, "stream.tasks=2", "search.round_size=3", "search.trials=6", "recipe.epochs=2")
    answers = []

    class Listening(round_archive.RoundArchive):
        def __call__(self, *arguments, **options):
            answers.append(super().__call__(*arguments, **options))
            return answers[-1]

    monkeypatch.setattr("bocl.experiment.run.RoundArchive", Listening)
    tasks = run(config, tmp_path / "whole")
    (_, trained, _), fits = (
        answers,
        [fit for record in kinds(tmp_path / "whole", "round")[1:] for fit in record["fits"]],
    )
    stopped = [fit["accuracy"] is None for fit in fits]
    assert stopped[:4].count(False) == 2
    assert [fit["epochs"] for fit in fits] == [1 if is_stopped else 2 for is_stopped in stopped]
    assert all(len(fit["rungs"]) == 1 and fit["failure"] == "" for fit in fits)
    assert [trial.failed for trial in tasks[1].trials] == stopped, "no accuracy is made up"
    stop_before(2)
    with pytest.raises(Stopped):
        run(config, tmp_path / "again")
    rest = stop_before(-1)
    answers.clear()
    run(config, tmp_path / "again")
    assert len(rest) == 1
    for recalled, child in zip(answers[0], trained, strict=True):
        assert (recalled.rungs, recalled.stopped, recalled.failure) == (child.rungs, child.stopped, child.failure)
        assert recalled.growth.tensors.keys() == child.growth.tensors.keys()
        assert bool(recalled.growth.tensors) is not recalled.stopped
    assert_same(tmp_path / "again", tmp_path / "whole")


def test_rounds_without_rungs_are_written_without_them(tmp_path, small):
    run(small("stream.tasks=1"), tmp_path)
    assert all("rungs" not in fit for record in kinds(tmp_path, "round") for fit in record["fits"])

"""Runs with the settings that nobody has to give: stopped in every round, they end as if they had not been.

The presets name the paper's way; here tasks choose what they read, bounds give way, and children are stopped.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from experiment_examples import SMALL, Stopped, another_child

from bocl.errors import FolderError
from bocl.experiment.audit import audit
from bocl.experiment.config import load_config
from bocl.experiment.pick import pick
from bocl.experiment.run import run
from bocl.methods import reading
from bocl.methods.budget import GoalSettings
from bocl.methods.reward import RewardSettings
from bocl.methods.saving import load
from bocl.networks.growth import GrowthSettings
from bocl.records.journal import encode, read
from bocl.records.run_log import JOURNAL
from bocl.records.summary import summarise
from bocl.search.settings import SearchSettings


def ours(*overrides, **sections):
    """Return a small config in the default way."""
    config = load_config("digits", [*SMALL, "stream.tasks=3", "recipe.epochs=4", *overrides])
    plain = {"growth": GrowthSettings(), "reward": RewardSettings(), "goal": GoalSettings()}
    search = SearchSettings(trials=6, patience=6, round_size=4)
    return replace(config, **plain | {"search": search} | sections)


#: A network so small that wider is better for long, and a goal for which nothing is too dear.
WIDENED = {
    "goal": GoalSettings(budget=100_000, tolerance=0.0),
    "search": SearchSettings(trials=16, patience=16, round_size=4),
}


def timeless(value):
    if isinstance(value, list):
        return [timeless(item) for item in value]
    if isinstance(value, dict):
        return {name: timeless(item) for name, item in value.items() if "seconds" not in name}
    return value


def records(folder, kind):
    return [timeless(record) for record in read(folder / JOURNAL) if record["kind"] == kind]


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.safetensors")}


def check_resumed(config, tmp_path, stop_before, step=1):
    """Stop a run before every round, or every few; return its finished tasks."""
    whole = stop_before(-1)
    run(config, tmp_path / "whole")
    assert len(whole) > len(summarise(tmp_path / "whole").tasks)
    for most in range(1, len(whole), step):
        folder = tmp_path / f"{most}"
        before = stop_before(most)
        with pytest.raises(Stopped):
            run(config, folder)
        after = stop_before(-1)
        run(config, folder)
        assert before + after == whole, "no round is trained twice"
        for kind in ("round", "task"):
            assert records(folder, kind) == records(tmp_path / "whole", kind)
        assert files(folder) == files(tmp_path / "whole")
    return summarise(tmp_path / "whole").tasks


def test_a_run_that_chooses_what_it_reads_resumes_in_every_round(tmp_path, stop_before, monkeypatch):
    """The latest task is taken for the nearest, so that there is always one besides the first."""
    monkeypatch.setattr(reading, "nearest", lambda _network, _data, tasks: tasks[-1])
    monkeypatch.setattr(reading, "MOST_TO_READ", 10.0)
    tasks = check_resumed(ours(), tmp_path, stop_before)
    kinds = {trial.reads for task in tasks for trial in task.trials}
    assert kinds >= {"first", "near", "own"}, "or this shows less"
    assert any(trial.stopped for task in tasks for trial in task.trials), "or this shows less"
    assert len(audit(tmp_path / "whole").tasks) == 3
    for task in tasks[1:]:
        assert task.limit in ("tolerance", "budget", "bounds")
        assert task.bounds
        for read_task in task.reads_tasks:
            assert set(tasks[read_task].reads_tasks) <= set(task.reads_tasks)


def test_a_run_with_a_price_of_parameters_resumes_in_every_round(tmp_path, stop_before):
    tasks = check_resumed(ours(goal=GoalSettings(price=0.05)), tmp_path, stop_before, step=2)
    assert any(trial.stopped for task in tasks for trial in task.trials), "or this shows less"
    assert "price" in {task.limit for task in tasks}
    for trial in [trial for task in tasks for trial in task.trials if not trial.failed]:
        assert trial.reward == pytest.approx(trial.accuracy - 0.05 * trial.parameters / 1000)
    assert len(audit(tmp_path / "whole").tasks) == 3


def test_a_run_whose_bounds_give_way_resumes_in_every_round(tmp_path, stop_before):
    config = ours("network.arguments={inputs=64, hidden=[2, 2]}", "stream.tasks=2", **WIDENED)
    tasks = check_resumed(config, tmp_path, stop_before)
    (record,) = [record for record in records(tmp_path / "whole", "task") if record["index"] == 1]
    assert record["widened"] == tasks[1].widened > 0, "or this shows nothing"
    assert tuple(record["bounds"]) == tasks[1].bounds
    assert any(bound > 2 for bound in tasks[1].bounds)
    assert all(width <= bound for width, bound in zip(tasks[1].widths, tasks[1].bounds, strict=True))


def test_a_run_that_ends_a_task_with_all_samples_resumes_in_every_round(tmp_path, stop_before):
    config = ours("recipe.use_validation=true", "recipe.average=last", "stream.tasks=2")
    tasks = check_resumed(config, tmp_path, stop_before)
    purposes = [record["purpose"] for record in records(tmp_path / "whole", "round")]
    assert purposes.count("final") == len(tasks)
    audit(tmp_path / "whole")
    other = another_child(tasks[-1])
    pick(tmp_path / "whole", other.widths, reads=other.reads)
    audit(tmp_path / "whole")


@pytest.mark.parametrize(
    ("reads", "kind"),
    [("all", "bayesian"), ("first", "bayesian"), ("own", "bayesian"), ("own", "random"), ("first", "paper")],
)
def test_runs_that_read_what_they_are_told_resume(tmp_path, stop_before, reads, kind):
    search = SearchSettings(kind, trials=3, patience=3, warm_points=2, round_size=3)
    config = ours(growth=GrowthSettings(reads), search=search)
    tasks = check_resumed(config, tmp_path, stop_before, step=3)
    wanted = {"all": [(), (0,), (0, 1)], "first": [(), (0,), (0,)], "own": [(), (), ()]}[reads]
    assert [task.reads_tasks for task in tasks] == wanted
    audit(tmp_path / "whole")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    run(ours(), folder)
    return folder


def test_a_run_says_what_it_read_and_what_limited_it(finished):
    tasks = summarise(finished).tasks
    learner = load(finished, device="cpu")
    assert [growth.reads for growth in learner.network.growths] == [task.reads_tasks for task in tasks]
    assert [growth.widths for growth in learner.network.growths] == [task.widths for task in tasks]
    for task, record in zip(tasks[1:], records(finished, "task")[1:], strict=True):
        chosen = [trial for trial in task.trials if trial.widths == task.widths and not trial.failed]
        assert sum(task.parameters.values()) in [trial.parameters for trial in chosen]
        assert record["limit"] == task.limit != ""
    for entry in records(finished, "round"):
        assert len(entry["reads"]) == len(entry["widths"])


def test_another_child_can_be_picked_whatever_it_reads(finished, tmp_path):
    import shutil

    task = summarise(finished).tasks[-1]
    trained = [trial for trial in task.trials if not trial.failed]
    for number, trial in enumerate(trained):
        folder = shutil.copytree(finished, tmp_path / f"{number}")
        picked = pick(folder, trial.widths, reads=trial.reads, device="cpu").after
        assert (picked.widths, sum(picked.parameters.values())) == (trial.widths, trial.parameters)
        learner = load(folder, device="cpu")
        assert learner.network.growths[-1].reads == picked.reads_tasks == summarise(folder).tasks[-1].reads_tasks
        audit(folder, device="cpu")


def test_a_round_that_reads_something_else_is_refused(tmp_path, stop_before):
    config = ours("stream.tasks=2")
    run(config, tmp_path / "whole")
    first = sum(record["kind"] == "round" and record["task"] == 0 for record in read(tmp_path / "whole" / JOURNAL))
    stop_before(first + 1)  # in the second task, after its first round
    part = tmp_path / "part"
    with pytest.raises(Stopped):
        run(config, part)
    stop_before(-1)
    lines, head, changed = [], "0" * 64, read(part / JOURNAL)
    assert changed[-1]["kind"] == "round"
    assert [] in changed[-1]["reads"]
    changed[-1]["reads"] = [[0]] * len(changed[-1]["reads"])
    for record in changed:
        line, head = encode(record, head)
        lines.append(line)
    (part / JOURNAL).write_bytes(b"".join(lines))
    with pytest.raises(FolderError, match="round 1 of task 2 was trained with the tasks to read") as told:
        run(config, part)
    assert "\n" not in str(told.value)


def test_a_round_recorded_before_there_was_a_choice_is_one_that_read_all(tmp_path, stop_before, small):
    config = small("stream.tasks=3")
    stop_before(-1)
    run(config, tmp_path / "whole")
    stop_before(3)
    with pytest.raises(Stopped):
        run(config, tmp_path / "early")
    stop_before(-1)
    lines, head = [], "0" * 64
    for record in read(tmp_path / "early" / JOURNAL):
        early = {name: value for name, value in record.items() if name not in ("reads", "limit", "bounds", "widened")}
        line, head = encode(early, head)
        lines.append(line)
    (tmp_path / "early" / JOURNAL).write_bytes(b"".join(lines))
    tasks = run(config, tmp_path / "early")
    assert [task.reads_tasks for task in tasks] == [(), (0,), (0, 1)]
    x = torch.rand(5, 64, generator=torch.Generator().manual_seed(0))
    one, other = (load(tmp_path / name, device="cpu") for name in ("whole", "early"))
    assert all(torch.equal(one.network.predict(x, task), other.network.predict(x, task)) for task in range(3))

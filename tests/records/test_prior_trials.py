"""prior_trials.json: written by one run's records, read by another's searches, and nothing in it trusted."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path

import pytest

from bocl.errors import InputError
from bocl.records.prior_trials import PriorTrials, check_experience, fingerprint, read_prior_trials, write_prior_trials
from bocl.records.record import Experience, Trial

GROUPS = ("fc1", "fc2")
TASKS = (
    Experience(0.1, (2, 1), (Trial((0, 0), 0.5, 0, 0.5), Trial((2, 1), 0.7, 9, 0.68))),
    Experience(math.nan, (0, 0), (Trial((0, 0), 0.5, 0, 0.5), Trial((1, 1), math.nan, 5, math.nan))),
)


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "prior_trials.json"
    write_prior_trials(PriorTrials(1, TASKS, GROUPS), path)
    assert repr(read_prior_trials(path, GROUPS)) == repr(TASKS)  # NaN is equal to nothing
    assert fingerprint(path) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_early_file_names_no_groups(tmp_path: Path) -> None:
    path = tmp_path / "prior_trials.json"
    write_prior_trials(PriorTrials(1, TASKS, GROUPS), path)
    data = json.loads(path.read_text())
    del data["groups"]
    path.write_text(json.dumps(data))
    assert len(read_prior_trials(path, ["conv1", "fc1"])) == 2
    with pytest.raises(InputError, match=r"task 1 of 2: widths \(2, 1\) are for a network with 2 hidden .* has 1"):
        read_prior_trials(path, ["fc1"])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda data: data.update(format=2), "format 2"),
        (lambda data: data.pop("tasks"), "required key is missing"),
        (lambda data: data["tasks"][0].update(extra=1), "extra: unknown key"),
        (lambda data: data["tasks"][0]["trials"][0].update(widths=[-1, 0]), r"widths \(-1, 0\)"),
        (lambda data: data["tasks"][0]["trials"][0].update(widths=[1]), r"widths \(1,\)"),
        (lambda data: data["tasks"][0]["trials"][0].update(widths=[1.5, 0]), "widths"),
        (lambda data: data["tasks"][0]["trials"][0].update(accuracy=7.0), "accuracy 7.0"),
        (lambda data: data["tasks"][0]["trials"][0].update(accuracy="high"), "accuracy"),
        (lambda data: data["tasks"][0]["trials"][0].update(reward=None), "widths"),
        (lambda data: data["tasks"][1]["trials"][1].update(widths=[0, 0]), r"task 2 of 2: widths \(0, 0\) .* twice"),
        (lambda data: data["tasks"][0]["trials"][0].update(widths=[10**400, 0]), "not numbers of units"),
        (lambda data: data["tasks"][0].update(best=[-2, 1]), "not numbers of units"),
        (lambda data: data["tasks"][0].update(best=[3, 1]), r"widths \(3, 1\) were kept but never trained"),
        (lambda data: data["tasks"][0].update(difficulty=1.5), "difficulty is 1.5"),
        (lambda data: data["tasks"].clear(), "holds no task"),
        (lambda data: data.update(groups=["conv1", "fc1"]), "hidden groups conv1, fc1; this one has fc1, fc2"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, change: object, named: str) -> None:
    path = tmp_path / "prior_trials.json"
    write_prior_trials(PriorTrials(1, TASKS, GROUPS), path)
    data = json.loads(path.read_text())
    change(data)  # type: ignore[operator]
    path.write_text(json.dumps(data))
    with pytest.raises(InputError, match=named):
        read_prior_trials(path, GROUPS)


def test_children_of_the_same_widths_may_read_different_tasks(tmp_path: Path) -> None:
    trials = tuple(Trial((0, 0), 0.5, 10, 0.5, reads=kind) for kind in ("first", "own", "near", "all"))
    stopped = Trial((1, 0), math.nan, 20, math.nan, reads="first", rungs=(0.25, 0.5))
    tasks = (Experience(math.nan, (0, 0), (*trials, stopped)),)
    write_prior_trials(PriorTrials(1, tasks, GROUPS), tmp_path / "prior_trials.json")
    assert repr(read_prior_trials(tmp_path / "prior_trials.json", GROUPS)) == repr(tasks)
    twice = (Experience(0.1, (0, 0), (*trials, trials[0])),)
    with pytest.raises(InputError, match=r"widths \(0, 0\) are there twice"):
        check_experience(twice, 2, "prior_trials")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"^prior_trials \S+prior_trials.json cannot be read: No such file or directory; `[^;]*$"
    ):
        read_prior_trials(tmp_path / "prior_trials.json", GROUPS)


def test_a_learner_refuses_what_no_search_tried() -> None:
    from bocl.methods.bocl import BOCL
    from bocl.networks.architectures import mlp

    with pytest.raises(InputError, match=r"prior_trials, task 1 of 2: .* 2 hidden groups; this one has 1"):
        BOCL(mlp(8, [4]), prior_trials=TASKS)
    check_experience([Experience(0.1, (2, 1), ())], 2, "prior_trials")  # the earliest hold no trials


def test_a_run_carries_its_trials_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import sys

    from bocl.cli.main import main
    from bocl.experiment.build import build_method, build_network
    from bocl.experiment.config import load_config
    from bocl.experiment.run import run

    small = ["stream.tasks=2", "recipe.epochs=1", "search.trials=1", "search.kind=random"]
    run(load_config("digits", small), tmp_path / "run", device="cpu")
    monkeypatch.setattr(
        sys, "argv", ["bocl", "trials", str(tmp_path / "run"), "-o", str(tmp_path / "prior_trials.json")]
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert capsys.readouterr().out.startswith("5 children of 1 task written")
    config = load_config("digits", [*small, f"prior_trials={tmp_path / 'prior_trials.json'}"])
    learner = build_method(config, build_network(config.network), "cpu")
    (task,) = learner.prior_trials  # type: ignore[attr-defined]
    assert task.trials[0].widths == (0, 0)
    given = []

    def searcher(problem: object, settings: object) -> object:
        given.append(problem.history)  # type: ignore[attr-defined]
        raise InputError("seen enough")

    learner.searcher = searcher  # type: ignore[attr-defined]
    from bocl.experiment.build import build_stream

    stream = build_stream(config)
    learner.learn(stream[0])
    with pytest.raises(InputError, match="seen enough"):
        learner.learn(stream[1])
    assert given == [(task,)]
    other = load_config("digits", [f"prior_trials={tmp_path / 'prior_trials.json'}", "network.arguments.hidden=[8]"])
    with pytest.raises(InputError, match="hidden groups fc1, fc2; this one has fc1; take"):
        build_method(other, build_network(other.network), "cpu")

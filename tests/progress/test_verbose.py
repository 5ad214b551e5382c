"""The library shows what the command line shows, and events say how training goes."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

import bocl
from bocl.__main__ import main
from bocl.records.journal import read
from bocl.records.run_log import RunLog
from bocl.records.words import growth_words

QUICK = {"recipe": bocl.Recipe(epochs=2), "search": bocl.SearchSettings(trials=2, bounds=2, warm_points=1)}


def stream(*names: str):
    rng = np.random.default_rng(0)
    pairs = [(rng.normal(size=(60, 4)).astype(np.float32), rng.integers(2, size=60)) for _ in names]
    return bocl.from_arrays(pairs, names=names)


def without_times(text: str) -> list[str]:
    return [re.sub(r"  [0-9.]+ s$", "", line) for line in text.splitlines()]


def test_a_learner_shows_its_tasks_and_trials(capsys):
    learner, events = bocl.BOCL(bocl.mlp(4, [3]), **QUICK), []
    for task in stream("spring", "summer"):
        learned = learner.learn(task, events.append, verbose=True)
    out, err = capsys.readouterr()
    lines = without_times(err)
    assert out == ""
    assert re.fullmatch(r"task 1/1  spring  \(3\)  validation \d+\.\d\d %  \+23 parameters", lines[0])
    trials = [line for line in lines if line.startswith("task 2/2  trial ")]
    assert [line.split("  ")[1] for line in trials] == [f"trial {number}/3" for number in range(len(learned.trials))]
    accuracy = f"{100 * learned.validation_accuracy:.2f} %"
    added = f"+{learned.added_parameters} parameters  {len(learned.trials) - 1} trials"
    widths = ", ".join(map(str, learned.widths))
    assert lines[-2] == f"task 2/2  summer  ({widths})  validation {accuracy}  {added}"
    assert lines[-1] == f"{' ' * len('task 2/2')}  {growth_words(learned, 1)}"
    assert {type(event) for event in events} == {bocl.RoundStarted, bocl.EpochDone, bocl.TrialDone}


def test_showing_changes_nothing(capsys):
    shown, silent = (
        bocl.SN(bocl.mlp(4, [3]), **{"recipe": QUICK["recipe"]}),
        bocl.SN(bocl.mlp(4, [3]), recipe=QUICK["recipe"]),
    )
    (task,) = stream("spring")
    assert shown.learn(task, verbose=True) == silent.learn(task)
    assert torch.equal(shown.predict(task.train.raw, 0), silent.predict(task.train.raw, 0))
    assert capsys.readouterr().err.count("\n") == 1


def test_a_task_that_is_refused_is_refused_as_ever(capsys):
    with pytest.raises(bocl.InputError, match=r"learn\(\) takes a Task"):
        bocl.SN(bocl.mlp(4, [3])).learn("spring", verbose=True)
    assert capsys.readouterr().err == ""


def test_a_learner_of_ones_own_can_be_watched(capsys):
    class Mine(bocl.SN):
        name = "mine"

    Mine(bocl.mlp(4, [3]), recipe=QUICK["recipe"]).learn(stream("spring")[0], verbose=True)
    assert capsys.readouterr().err.startswith("task 1/1  spring  (3)  validation ")


def test_an_open_run_shows_what_the_command_line_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.savez("spring.npz", x=rng.normal(size=(60, 4)).astype(np.float32), y=rng.integers(2, size=60))
    monkeypatch.setattr(
        "sys.argv", ["bocl", "learn", "run", "spring.npz", "--set", "recipe.epochs=2", "--device", "cpu"]
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None)
    wanted = without_times(capsys.readouterr().err)
    assert wanted[0] == "bocl on own tasks, seed 0 → run"
    assert any("  spring  (" in line for line in wanted)
    opened = bocl.open("again", device="cpu", recipe=bocl.Recipe(epochs=2))
    events = []
    opened.learn_file("spring.npz", callback=events.append, verbose=True)
    shown = without_times(capsys.readouterr().err)
    assert shown == [wanted[0].replace("→ run", "→ again"), *wanted[1:]]
    assert isinstance(events[0], bocl.TaskStarted)
    assert events[-1] == bocl.TaskDone(opened.records[0])
    opened.learn(stream("summer"), verbose=True)
    shown = capsys.readouterr().err.splitlines()
    assert "  summer  (" in shown[-2]
    assert shown[-1].strip() == growth_words(opened.records[1], 1)


def test_events_carry_the_losses_and_accuracies_on_record(tmp_path):
    opened, events = bocl.open(tmp_path / "run", bocl.mlp(4, [3]), device="cpu", **QUICK), []
    opened.learn(stream("spring", "summer"), events.append)
    path = tmp_path / "run" / "journal.jsonl"
    rounds = RunLog.of(read(path), path).rounds[1]
    fits = [fit for entry in rounds for fit in entry.fits]
    trials = [event for event in events if isinstance(event, bocl.TrialDone)]
    assert [(event.trial.accuracy, event.loss) for event in trials] == [(fit.accuracy, fit.loss) for fit in fits]
    last = [event for event in events if isinstance(event, bocl.EpochDone) and event.done == event.total]
    assert [loss for event in last[1:] for loss in event.losses] == [fit.loss for fit in fits]


def test_with_patience_every_epoch_has_an_accuracy():
    learner, events = bocl.SN(bocl.mlp(4, [3]), recipe=bocl.Recipe(epochs=3, patience=3)), []
    learned = learner.learn(stream("spring")[0], events.append)
    accuracies = [event.accuracies for event in events if isinstance(event, bocl.EpochDone)]
    assert [len(each) for each in accuracies] == [1, 1, 1]
    assert max(accuracies) == (learned.validation_accuracy,)

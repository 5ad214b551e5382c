"""Tasks of the user's own: as streams of every kind, and one at a time; killed, resumed, audited, changed."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import own_tasks
import pytest
import torch
from experiment_examples import another_child
from own_tasks import COLUMNS, KINDS, NAMES, SETTINGS, samples, write_csv, write_task
from typer.testing import CliRunner

import bocl
from bocl.cli.main import app
from bocl.errors import ConfigError, DataError, FolderError, InputError
from bocl.experiment.audit import audit
from bocl.experiment.config import config_with, load_config
from bocl.experiment.pick import pick
from bocl.experiment.run import run
from bocl.records.events import RoundStarted, TaskStarted
from bocl.records.journal import read
from bocl.records.run_log import JOURNAL
from bocl.records.summary import summarise

OWN = ("npz", "csv", "parts", "function")
TIMES = {"seconds", "training_seconds", "time"}


class Stopped(BaseException):
    """What stops a run."""


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def learnt(folder: Path) -> dict[str, object]:
    """Return all that a run came to: its files and its records, but for times and sessions."""
    found: dict[str, object] = {name: data for name, data in content(folder).items() if name != JOURNAL}
    records = [record for record in read(folder / JOURNAL) if record["kind"] != "start"]
    return found | {"records": json.dumps(_timeless(records), sort_keys=True)}


def _timeless(value):
    if isinstance(value, list):
        return [_timeless(item) for item in value]
    if isinstance(value, dict):
        return {name: _timeless(item) for name, item in value.items() if name not in TIMES}
    return value


@pytest.fixture
def own(tmp_path):
    """Return a function from a kind of data to a config with a stream of it."""

    def make(kind, *overrides):
        if kind == "function":
            name = "own_tasks:stream_of_own"
        else:
            for number in range(3):
                write_task(tmp_path / "data", number, kind)
            name = str(tmp_path / "data")
        return config_with([f"stream={name}", *SETTINGS, *overrides])

    return make


def command(*words: object, code: int = 0) -> str:
    found = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert found.exit_code == code, found.output
    return found.output


@pytest.mark.parametrize("kind", OWN)
def test_an_own_stream_is_stopped_resumed_to_the_same_bits_and_goes_through_every_command(tmp_path, own, kind):
    config = own(kind)
    assert config.stream.tasks is None
    run(config, tmp_path / "whole")

    def stop(event):
        if isinstance(event, RoundStarted):
            rounds.append(event)
        if len(rounds) in (2, 5):
            rounds.append(event)
            raise Stopped

    rounds = []
    for _ in range(2):
        with pytest.raises(Stopped):
            run(config, tmp_path / "stopped", callback=stop)
    records = run(config, tmp_path / "stopped")
    assert learnt(tmp_path / "stopped") == learnt(tmp_path / "whole")
    assert len(records) == 3
    if kind != "function":
        assert tuple(record.name for record in records) == NAMES
    assert summarise(tmp_path / "whole").finished

    trust = ["--trust"] if kind == "function" else []
    folder = tmp_path / "stopped"
    for words in (["show"], ["pareto", "--task", 3], ["audit", *trust], ["tasks"]):
        command(words[0], folder, *words[1:])
    found = audit(folder, trust=bool(trust))
    assert [task.accuracy for task in found.tasks] == [record.row[-1] for record in records]
    assert not found.left_out
    command("report", folder, "-o", tmp_path / "page.html")
    command("trials", folder, "-o", tmp_path / "trials.json")
    other = another_child(records[-1])
    command("pick", folder, "--widths", ",".join(map(str, other.widths)), *trust)
    assert summarise(folder).tasks[-1].widths == other.widths
    command("audit", folder, *trust)
    learner = bocl.load(folder)
    x, y = samples(0)
    assert learner.score(x, y, 0) > 0.6
    assert learner.classes(0) == KINDS


@pytest.mark.parametrize("kind", ["npz", "csv"])
def test_a_run_extended_three_times_in_three_processes_is_one_run_over_the_same_stream(tmp_path, own, kind):
    config = own(kind)
    run(config, tmp_path / "whole")
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    for number in range(3):
        place = tmp_path / "data" / f"{NAMES[number]}.{kind}"
        words = ["learn", str(tmp_path / "grown"), str(place), *sets]
        subprocess.run([sys.executable, "-m", "bocl", *words], check=True, capture_output=True)
    assert learnt(tmp_path / "grown") == learnt(tmp_path / "whole")
    assert [task.accuracy for task in audit(tmp_path / "grown").tasks] == [
        task.accuracy for task in audit(tmp_path / "whole").tasks
    ]


def test_a_task_that_comes_later_needs_only_its_own_data(tmp_path):
    places = [write_task(tmp_path / "data", number, "csv") for number in range(3)]
    opened = bocl.open(tmp_path / "run", bocl.mlp(4, [6]), recipe=bocl.Recipe(epochs=2))
    opened.learn_file(places[0])
    places[0].unlink()
    opened.learn_file(places[1])
    first, second = opened.records
    assert second.row[0] == first.row[0]
    found = opened.audit()
    assert [task.accuracy for task in found.tasks] == [None, second.row[1]]
    assert str(places[0]) in found.left_out
    write_task(tmp_path / "data", 0, "csv")
    assert [task.accuracy for task in opened.audit().tasks] == list(second.row)
    shutil.move(tmp_path / "data", tmp_path / "moved")
    assert opened.audit().left_out.count("is not there") == 2
    assert not opened.audit(data=str(tmp_path / "moved")).left_out
    (tmp_path / "moved" / places[0].name).unlink()
    with (tmp_path / "moved" / places[1].name).open("a") as file:
        file.write("1,2,3,4,oak\n")
    with pytest.raises(DataError, match=r"b summer\.csv has changed since task 'b summer' was learnt"):
        opened.audit(data=str(tmp_path / "moved"))


@pytest.mark.parametrize("kind", OWN)
def test_the_same_command_again_is_the_same_run(tmp_path, own, kind):
    name = own(kind).stream.name
    words = ["run", "digits", "--out", tmp_path / "runs", "--set", f"stream={name}", "--set", "stream.tasks=2"]
    words += [word for setting in SETTINGS for word in ("--set", setting)]
    command(*words)
    before = content(tmp_path / "runs")
    command(*words)
    assert content(tmp_path / "runs") == before
    at = words.index("stream.tasks=2")
    for _ in range(2):
        command(*words[: at - 1], *words[at + 1 :], "--out", tmp_path / "all")
    assert len(summarise(tmp_path / "all" / "bocl-seed0").tasks) == 3


def test_every_entry_of_a_folder_is_validated(tmp_path, own):
    own("csv")
    words = ["validate", "digits", *(word for setting in SETTINGS for word in ("--set", setting))]
    command(*words, "--set", f"stream={tmp_path / 'data'}")
    inputs, labels = samples(1)
    np.savez(tmp_path / "data" / "z.npz", x=inputs[:, :3], y=labels)
    with pytest.raises(DataError, match=r"task 'z' has samples of shape \(3,\)"):
        command(*words, "--set", f"stream={tmp_path / 'data'}")


class TestRefused:
    @pytest.fixture
    def begun(self, tmp_path, own):
        config = own("csv")

        def stop(event):
            if isinstance(event, TaskStarted) and event.index == 1:
                raise Stopped

        with pytest.raises(Stopped):
            run(config, tmp_path / "run", callback=stop)
        return config, tmp_path / "run", tmp_path / "data"

    def test_a_changed_file_by_name(self, begun):
        config, folder, data = begun
        with (data / f"{NAMES[0]}.csv").open("a") as file:
            file.write("1,2,3,4,oak\n")
        before = content(folder)
        with pytest.raises(FolderError, match=r"a spring\.csv has changed since task 1, 'a spring', was begun"):
            run(config, folder)
        with pytest.raises(DataError, match=r"a spring\.csv has changed since task 'a spring' was learnt"):
            audit(folder)
        assert content(folder) == before

    def test_a_task_in_the_place_of_another(self, begun):
        config, folder, data = begun
        (data / f"{NAMES[0]}.csv").rename(data / "z.csv")
        before = content(folder)
        with pytest.raises(FolderError, match=r"task 1 of .* is 'a spring', not 'b summer'"):
            run(config, folder)
        assert content(folder) == before

    def test_a_task_that_is_gone(self, begun):
        config, folder, data = begun
        for path in data.iterdir():
            path.unlink()
        before = content(folder)
        with pytest.raises(DataError, match="is empty; give it an entry per task"):
            run(config, folder)
        assert content(folder) == before

    def test_another_input_shape(self, tmp_path):
        opened = bocl.open(tmp_path / "run", recipe=bocl.Recipe(epochs=1))
        opened.learn_file(write_task(tmp_path / "data", 0, "csv"))
        before = content(tmp_path / "run")
        x, y = samples(1)
        np.savez(tmp_path / "wide.npz", x=np.hstack([x, x]), y=y)
        with pytest.raises(
            DataError, match=r"task 'wide' has samples of shape \(8,\), but the tasks before have \(4,\)"
        ):
            opened.learn_file(tmp_path / "wide.npz")
        assert content(tmp_path / "run") == before

    def test_a_repeated_name(self, tmp_path):
        opened = bocl.open(tmp_path / "run", recipe=bocl.Recipe(epochs=1))
        opened.learn_file(write_task(tmp_path / "data", 0, "csv"), name="spring")
        before = content(tmp_path / "run")
        with pytest.raises(DataError, match="has learnt a task 'spring' already"):
            opened.learn_file(write_task(tmp_path / "data", 1, "csv"), name="spring")
        assert content(tmp_path / "run") == before

    def test_the_same_task_again_changes_nothing(self, tmp_path):
        place = write_task(tmp_path / "data", 0, "csv")
        command("learn", tmp_path / "run", place, "--set", "recipe.epochs=1")
        before = content(tmp_path / "run")
        command("learn", tmp_path / "run", place)
        assert content(tmp_path / "run") == before

    def test_another_task_while_one_is_unfinished(self, tmp_path):
        search = bocl.SearchSettings(kind="random", trials=3, round_size=1)
        opened = bocl.open(tmp_path / "run", bocl.mlp(4, [6]), recipe=bocl.Recipe(epochs=1), search=search)
        places = [write_task(tmp_path / "data", number, "csv") for number in range(3)]
        opened.learn_file(places[0])

        def stop(event):
            if isinstance(event, RoundStarted) and event.trial > 1:
                raise Stopped

        with pytest.raises(Stopped):
            opened.learn_file(places[1], callback=stop)
        with pytest.raises(FolderError, match=r"task 'b summer' of .* is unfinished; .* from .*b summer\.csv"):
            opened.learn_file(places[2])
        opened.learn_file(places[1])

    def test_columns_in_another_order(self, tmp_path):
        opened = bocl.open(tmp_path / "run", recipe=bocl.Recipe(epochs=1))
        opened.learn_file(write_task(tmp_path / "data", 0, "csv"))
        (tmp_path / "other.csv").write_text("mass,width,age,height,label\n" + "1,2,3,4,a\n2,3,4,5,b\n" * 9)
        with pytest.raises(DataError, match="has the columns mass, width, age, height, but the tasks before have them"):
            opened.learn_file(tmp_path / "other.csv")

    @pytest.mark.parametrize("name", ["", " "])
    def test_a_name_that_is_none(self, tmp_path, name):
        with pytest.raises(DataError, match="the task has no name"):
            bocl.open(tmp_path / "run").learn_file(write_task(tmp_path / "data", 0, "csv"), name=name)

    def test_two_entries_of_one_name(self, tmp_path, own):
        config = own("csv")
        write_task(tmp_path / "data", 0, "npz")
        with pytest.raises(DataError, match="two tasks are called 'a spring'"):
            run(config, tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_more_tasks_than_there_are(self, own, tmp_path):
        with pytest.raises(ConfigError, match=r"stream\.tasks is 4, but .* has 3 tasks"):
            run(own("csv", "stream.tasks=4"), tmp_path / "run")

    def test_a_budget_for_all_of_an_unknown_number(self, own, tmp_path):
        with pytest.raises(ConfigError, match=r"give their number with stream\.tasks"):
            run(own("csv", "goal.total_budget=5000"), tmp_path / "run")

    @pytest.mark.parametrize(
        ("stream", "wanted"),
        [
            ("nowhere:stream", "stream: cannot import 'nowhere'"),
            ("own_tasks:nothing", "stream: 'own_tasks' has no function 'nothing'"),
            ("os:getcwd", "stream: what os:getcwd returns must be a stream"),
            ("own_tasks:samples", "stream: own_tasks:samples failed"),
        ],
    )
    def test_a_function_that_makes_no_stream(self, tmp_path, stream, wanted):
        with pytest.raises(ConfigError, match=re.escape(wanted)):
            run(load_config("digits", [f"stream={stream}", *SETTINGS]), tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_a_received_run_runs_no_stream_of_its_maker(self, tmp_path, own, monkeypatch):
        run(own("function"), tmp_path / "run")
        monkeypatch.setattr(own_tasks, "stream_of_own", lambda: pytest.fail("it ran"))
        found = audit(tmp_path / "run")
        assert found.left_out == "the stream is code, which --trust lets run"
        record = summarise(tmp_path / "run").tasks[-1]
        other = another_child(record).widths
        with pytest.raises(InputError, match="but the stream is code, which --trust lets run"):
            pick(tmp_path / "run", other)


def test_a_pick_needs_the_data_of_its_own_task_only(tmp_path):
    search = bocl.SearchSettings(kind="random", trials=2, bounds=2)
    opened = bocl.open(tmp_path / "run", bocl.mlp(4, [6]), recipe=bocl.Recipe(epochs=1), search=search)
    for number in range(2):
        shutil.copy(write_task(tmp_path / "data", number, "csv"), tmp_path / "month.csv")  # written anew every month
        opened.learn_file(tmp_path / "month.csv", name=NAMES[number])
    last = opened.records[-1]
    other = next(trial for trial in last.trials if not trial.failed and trial.widths != last.widths)
    assert pick(tmp_path / "run", other.widths, reads=other.reads).after.row[0] == last.row[0]


class TestOpen:
    def test_arrays_are_learnt_resumed_and_answered(self, tmp_path):
        data = [samples(number) for number in range(2)]
        streams = [bocl.from_arrays([pair], names=[name]) for pair, name in zip(data, NAMES, strict=False)]
        options = {
            "recipe": bocl.Recipe(epochs=12, learning_rate=1e-2),
            "search": bocl.SearchSettings(kind="random", trials=2, bounds=2),
        }
        whole = bocl.open(tmp_path / "whole", bocl.mlp(4, [6]), **options)
        for stream in streams:
            whole.learn(stream)

        def stop(event):
            if isinstance(event, RoundStarted) and event.purpose == "search":
                raise Stopped

        stopped = bocl.open(tmp_path / "stopped", bocl.mlp(4, [6]), **options)
        stopped.learn(streams[0])
        with pytest.raises(Stopped):
            stopped.learn(streams[1], stop)
        again = bocl.open(tmp_path / "stopped")  # the network is that of the run
        again.learn(streams[1])
        assert learnt(tmp_path / "stopped") == learnt(tmp_path / "whole")
        again.learn(streams[1])  # learnt already
        assert [about.name for about in again.seen] == list(NAMES[:2])
        assert again.classes(NAMES[0]) == KINDS
        x, y = data[0]
        assert torch.equal(again.predict(x, NAMES[0]), whole.learner.predict(x, 0))
        assert again.score(x, y, NAMES[0]) > 0.6
        assert torch.allclose(again.predict_proba(x, 0).sum(1), torch.ones(len(x)))
        assert set(again.predict_labels(x, 1)) <= set(KINDS)
        assert "was given as arrays" in again.audit().left_out
        assert [task.accuracy for task in again.audit(stream=streams[1]).tasks] == [None, again.records[1].row[1]]
        with pytest.raises(DataError, match="samples of task 'a spring' are not those it was learnt from"):
            again.audit(stream=bocl.from_arrays([samples(9)], names=[NAMES[0]]))
        assert repr(again) == f"<OpenRun {tmp_path / 'stopped'}: bocl, learnt 'a spring', 'b summer'>"

    def test_other_samples_under_a_name_that_is_taken_are_refused(self, tmp_path):
        opened = bocl.open(tmp_path / "run", bocl.mlp(4, [6]), recipe=bocl.Recipe(epochs=1))
        opened.learn(bocl.from_arrays([samples(0)], names=["spring"]))
        with pytest.raises(DataError, match="has learnt a task 'spring' already"):
            opened.learn(bocl.from_arrays([samples(1)], names=["spring"]))

    def test_other_settings_and_networks_are_refused(self, tmp_path):
        opened = bocl.open(tmp_path / "run", bocl.mlp(4, [6]), recipe=bocl.Recipe(epochs=1))
        opened.learn(bocl.from_arrays([samples(0)], names=["spring"]))
        with pytest.raises(FolderError, match="was begun with seed = 0, not 1"):
            bocl.open(tmp_path / "run", seed=1)
        other = bocl.open(tmp_path / "run", bocl.mlp(4, [7]))
        with pytest.raises(FolderError, match="holds a model of another network"):
            other.learn(bocl.from_arrays([samples(1)], names=["summer"]))

    def test_a_task_alone_is_refused_with_what_to_give(self, tmp_path):
        opened = bocl.open(tmp_path / "run", bocl.mlp(4, [6]))
        with pytest.raises(InputError, match=r"learn\(\) takes a stream, .* got Task"):
            opened.learn(bocl.from_arrays([samples(0)])[0])

    def test_a_method_that_forgets_needs_all_its_data(self, tmp_path):
        places = [write_task(tmp_path / "data", number, "csv") for number in range(2)]
        opened = bocl.open(tmp_path / "run", bocl.mlp(4, [6]), method="sn", recipe=bocl.Recipe(epochs=1))
        opened.learn_file(places[0])
        opened.learn_file(places[1])
        assert len(opened.records[1].row) == 2
        arrays = bocl.open(tmp_path / "arrays", bocl.mlp(4, [6]), method="sn", recipe=bocl.Recipe(epochs=1))
        arrays.learn(bocl.from_arrays([samples(0)], names=["spring"]))
        with pytest.raises(DataError, match="samples of task 'spring' are needed, because the method changes earlier"):
            arrays.learn(bocl.from_arrays([samples(1)], names=["summer"]))


@pytest.mark.parametrize(
    ("shape", "network"),
    [((4,), "mlp"), ((3, 9, 9), "convnet"), ((2, 7), "mlp"), ((1, 3, 3, 3), "mlp")],
)
def test_a_network_that_suits_the_data_is_chosen(tmp_path, shape, network):
    draw = np.random.default_rng(0)
    np.savez(tmp_path / "task.npz", x=draw.normal(size=(40, *shape)), y=np.arange(40) % 2)
    opened = bocl.open(tmp_path / "run", recipe=bocl.Recipe(epochs=1))
    opened.learn_file(tmp_path / "task.npz")
    assert opened.config.network.build == network
    assert summarise(tmp_path / "run").config["network"]["build"] == network


def test_a_stream_given_as_an_object_is_on_record(tmp_path, small):
    stream = bocl.from_arrays([samples(number) for number in range(2)])
    config = load_config("digits", SETTINGS)
    records = bocl.run(config, tmp_path, stream=stream)
    assert bocl.run(config, tmp_path, stream=stream) == records
    assert audit(tmp_path).left_out == "the stream was given as an object"
    assert [task.accuracy for task in audit(tmp_path, stream=stream).tasks] == list(records[-1].row)
    with pytest.raises(InputError, match="made from other data"):
        audit(tmp_path, stream=bocl.from_arrays([samples(5), samples(6)]))


class TestPredict:
    @pytest.fixture
    def folder(self, tmp_path):
        write_task(tmp_path / "data", 0, "csv")
        command("learn", tmp_path / "run", tmp_path / "data" / f"{NAMES[0]}.csv", "--set", "recipe.epochs=2")
        return tmp_path / "run"

    def test_labels_and_probabilities_are_written_whatever_the_order_of_columns(self, folder, tmp_path):
        inputs, _ = samples(0)
        with (tmp_path / "new.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["note", *reversed(COLUMNS)])
            rows.writerows(["x", *reversed(row)] for row in inputs.tolist())
        command("predict", folder, tmp_path / "new.csv", "--task", NAMES[0], "-o", tmp_path / "out.csv")
        with (tmp_path / "out.csv").open(newline="") as file:
            found = list(csv.DictReader(file))
        learner = bocl.load(folder)
        assert [row["label"] for row in found] == learner.predict_labels(inputs, 0)
        wanted = learner.predict_proba(inputs, 0)
        for kind, column in zip(KINDS, wanted.T.tolist(), strict=True):
            assert [float(row[f"p({kind})"]) for row in found] == pytest.approx(column, abs=1e-6)
        command(
            "predict", folder, tmp_path / "new.csv", "--task", 1, "-o", tmp_path / "out.csv"
        )  # once more, by number

    @pytest.mark.parametrize(
        ("task", "wanted"),
        [
            ("spring", "no task 'spring' has been learnt"),
            ("2", "--task 2: .* has learnt tasks 1 to 1"),
            ("0", "--task 0: .* 1 to 1"),
        ],
    )
    def test_a_task_that_was_not_learnt_is_refused(self, folder, tmp_path, task, wanted):
        with pytest.raises(InputError, match=wanted):
            command("predict", folder, tmp_path / "data" / f"{NAMES[0]}.csv", "--task", task, "-o", tmp_path / "o.csv")
        assert not (tmp_path / "o.csv").exists()

    def test_a_task_that_is_called_by_a_year_is_found_by_it(self, tmp_path):
        shutil.copy(write_task(tmp_path / "data", 0, "csv"), tmp_path / "2024.csv")
        command("learn", tmp_path / "run", tmp_path / "2024.csv", "--set", "recipe.epochs=1")
        for task in (2024, 1):
            out = command(
                "predict", tmp_path / "run", tmp_path / "2024.csv", "--task", task, "-o", tmp_path / "out.csv"
            )
            assert "of task '2024'" in out

    def test_a_missing_column_is_refused(self, folder, tmp_path):
        (tmp_path / "new.csv").write_text("height,width,mass\n1,2,3\n")
        with pytest.raises(DataError, match="has no feature column 'age'"):
            command("predict", folder, tmp_path / "new.csv", "--task", NAMES[0], "-o", tmp_path / "out.csv")

    def test_a_file_of_somebody_elses_is_not_overwritten(self, folder, tmp_path):
        (tmp_path / "out.csv").write_text("mine")
        with pytest.raises(FolderError, match="is not a file of predictions"):
            command(
                "predict", folder, tmp_path / "data" / f"{NAMES[0]}.csv", "--task", NAMES[0], "-o", tmp_path / "out.csv"
            )

    def test_a_word_that_is_a_formula_stays_a_word(self, tmp_path):
        inputs, labels = samples(0)
        write_csv(tmp_path / "task.csv", inputs, [f"={label}" for label in labels])
        command("learn", tmp_path / "run", tmp_path / "task.csv", "--set", "recipe.epochs=1")
        command("predict", tmp_path / "run", tmp_path / "task.csv", "--task", "task", "-o", tmp_path / "out.csv")
        with (tmp_path / "out.csv").open(newline="") as file:
            assert {row["label"][:2] for row in csv.DictReader(file)} == {"'="}

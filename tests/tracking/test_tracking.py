"""Runs in TensorBoard and MLflow: every value once, whatever happened to the run in between."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

import bocl
from bocl.__main__ import main
from bocl.errors import FolderError, InputError, WorkError
from bocl.records.journal import encode, read, read_with_tail
from bocl.records.run_log import JOURNAL, RunLog
from bocl.tracking import track as tracking
from bocl.tracking.points import read_points

OLD = Path(__file__).parents[1] / "fixtures" / "run-format-2"
NAMES = ["spring", "summer: hot/dry"]


def stream():
    rng = np.random.default_rng(0)
    pairs = [(rng.normal(size=(60, 4)).astype(np.float32), rng.integers(2, size=60)) for _ in NAMES]
    return bocl.from_arrays(pairs, names=NAMES)


class Stop:
    """Stops a run when its second task has trained a round."""

    def __init__(self) -> None:
        self.rounds = 0

    def __call__(self, event: object) -> None:
        self.rounds += isinstance(event, bocl.RoundStarted)
        if self.rounds == 3:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return the folder of a run that was stopped in its second task, and of the same run when it is finished."""
    place = tmp_path_factory.mktemp("runs")
    search = bocl.SearchSettings(trials=3, bounds=2, warm_points=1, children_at_once=1)
    opened = bocl.open(place / "mine", bocl.mlp(4, [3]), device="cpu", recipe=bocl.Recipe(epochs=1), search=search)
    with pytest.raises(KeyboardInterrupt):
        opened.learn(stream(), Stop())
    shutil.copytree(place / "mine", place / "stopped")
    opened.learn(stream())
    return place / "stopped", place / "mine"


@pytest.fixture
def run(tmp_path, runs):
    """Return a run that is stopped in its second task, and a function that resumes it."""
    shutil.copytree(runs[0], tmp_path / "run")

    def resume() -> None:
        shutil.rmtree(tmp_path / "run")
        shutil.copytree(runs[1], tmp_path / "run")

    return tmp_path / "run", resume


def log_of(folder: Path) -> RunLog:
    return RunLog.of(read(folder / JOURNAL), folder / JOURNAL)


def test_the_points_of_a_run_are_those_on_record(runs):
    found = read_points(runs[1])
    values = {(point.name, point.step): point.value for point in found.points}
    assert len(values) == len(found.points)
    log = log_of(runs[1])
    first, second = log.tasks
    assert values["accuracy/average", 2] == fmean(second.row)
    assert [values["accuracy/1 spring", step] for step in (1, 2)] == [first.row[0], second.row[0]]
    assert values["accuracy/2 summer_ hot_dry", 2] == second.row[1]
    assert values["validation/average", 2] == fmean(second.validation_row)
    assert values["parameters/stored", 2] == second.stored
    assert values["parameters/added", 2] == sum(second.parameters.values())
    assert (values["seconds/learning", 1], values["seconds/training", 1]) == (first.seconds, first.training_seconds)
    fits = [fit for entry in log.rounds[1] for fit in entry.fits]
    assert [values["search/task 2/accuracy", step] for step in range(len(fits))] == [fit.accuracy for fit in fits]
    assert [values["search/task 2/loss", step] for step in range(len(fits))] == [fit.loss for fit in fits]
    assert values["base/task 1/loss", 0] == log.rounds[0][0].fits[0].loss
    assert (found.facts, found.finished) == ({"method": "bocl", "seed": "0", "stream": "own tasks"}, True)


def test_the_points_of_a_run_only_grow(runs):
    stopped, finished = map(read_points, runs)
    assert (stopped.identity, stopped.finished) == (finished.identity, False)
    assert stopped.points == finished.points[: len(stopped.points)]
    assert 0 < len(stopped.points) < len(finished.points)


def test_a_pick_has_points_of_its_own(tmp_path, runs):
    shutil.copytree(runs[1], tmp_path / "run")
    path = tmp_path / "run" / JOURNAL
    lines, _ = read_with_tail(path)
    task = lines[-1].record
    kept = {name: task[name] for name in ("widths", "validation_row", "parameters", "stored")}
    named = {"canaries": "canaries/task-02-pick-1.safetensors", "checkpoint": "checkpoints/task-02-pick-1/model.json"}
    proof = {**task["proof"], **{name: {**task["proof"][name], "file": file} for name, file in named.items()}}
    record = {"kind": "pick", "task": 1, "number": 1, **kept, "row": [0.25, 0.75], "proof": proof}
    with path.open("ab") as journal:
        journal.write(encode(record, lines[-1].sha256)[0])
    before, after = read_points(runs[1]).points, read_points(tmp_path / "run").points
    assert after[: len(before)] == before
    picked = {point.name: (point.step, point.value) for point in after[len(before) :]}
    assert picked["pick 1/accuracy/average"] == (2, 0.5)
    assert picked["pick 1/accuracy/1 spring"] == (2, 0.25)


def tensorboard_values(logs: Path) -> list[tuple[str, int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (folder,) = logs.iterdir()
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return [(tag, event.step, event.value) for tag in events.Tags()["scalars"] for event in events.Scalars(tag)]


def mlflow_values(uri: str) -> list[tuple[str, int, float]]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(uri)
    (found,) = client.search_runs([client.get_experiment_by_name("bocl").experiment_id])
    history = (client.get_metric_history(found.info.run_id, key) for key in found.data.metrics)
    return [(metric.key, metric.step, metric.value) for metrics in history for metric in metrics]


def check_each_once(values: list[tuple[str, int, float]], folder: Path) -> None:
    wanted = sorted((point.name, point.step) for point in read_points(folder).points)
    assert sorted((name, step) for name, step, _ in values) == wanted
    found = {(name, step): value for name, step, value in values}
    for point in read_points(folder).points:
        assert found[point.name, point.step] == pytest.approx(point.value)


@pytest.mark.extras("tensorboard")
@pytest.mark.filterwarnings("default")  # of the library's own
def test_tensorboard_has_every_value_once_after_a_resume(tmp_path, run):
    folder, resume = run
    logs = tmp_path / "logs"
    first = bocl.track(folder, tensorboard=logs)
    check_each_once(tensorboard_values(logs), folder)
    assert bocl.track(folder, tensorboard=logs) == 0
    resume()
    folder = folder.rename(tmp_path / "moved")
    second = bocl.track(folder, tensorboard=logs)
    check_each_once(tensorboard_values(logs), folder)
    assert first + second == len(read_points(folder).points)
    (file, *_) = sorted(next(logs.iterdir()).iterdir())
    file.write_bytes(file.read_bytes()[:-30])  # as a crash may leave it
    assert bocl.track(folder, tensorboard=logs) > 0
    assert bocl.track(folder, tensorboard=logs) == 0


@pytest.mark.extras("tensorboard")
def test_runs_of_one_name_do_not_mix(tmp_path, runs):
    for place in ("a", "b"):
        shutil.copytree(OLD if place == "a" else runs[1], tmp_path / place / "run")
        bocl.track(tmp_path / place / "run", tensorboard=tmp_path / "logs")
    assert sorted(path.name[:4] for path in (tmp_path / "logs").iterdir()) == ["run-", "run-"]
    assert bocl.track(tmp_path, tensorboard=tmp_path / "logs") == 0


@pytest.mark.extras("mlflow", "sqlalchemy", "alembic")
@pytest.mark.filterwarnings("default")  # of the library's own
def test_mlflow_has_every_value_once_after_a_resume(tmp_path, run, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow.tracking import MlflowClient

    folder, resume = run
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    first = bocl.track(folder, mlflow=uri)
    check_each_once(mlflow_values(uri), folder)
    assert bocl.track(folder, mlflow=uri) == 0
    resume()
    assert bocl.track(folder, mlflow=uri) == len(read_points(folder).points) - first
    check_each_once(mlflow_values(uri), folder)
    client = MlflowClient(uri)
    (found,) = client.search_runs([client.get_experiment_by_name("bocl").experiment_id])
    assert found.data.params == read_points(folder).facts
    assert (found.info.run_name, found.info.status) == ("run", "FINISHED")


def test_a_tracker_that_fails_is_told_and_the_run_is_as_it_was(tmp_path, run, monkeypatch):
    folder, _ = run
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def fails(uri, name, tracked):
        raise RuntimeError("no\nroute")

    monkeypatch.setattr(tracking, "feed_mlflow", fails)
    with pytest.raises(WorkError) as caught:
        bocl.track(folder, mlflow="http://localhost:1")
    assert str(caught.value) == (
        "MLflow at http://localhost:1 failed (RuntimeError: no route); the run is as it was, and the next call adds "
        "the rest"
    )
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_what_cannot_be_tracked_is_refused(tmp_path, run, monkeypatch):
    folder, _ = run
    with pytest.raises(InputError, match="no tracker is given; name the folder of TensorBoard's logs, or MLflow's"):
        bocl.track(folder)
    with pytest.raises(FolderError, match="nowhere: there is no such folder"):
        bocl.track(tmp_path / "nowhere", mlflow="http://localhost:1")
    for module, extra in (("mlflow.tracking", "mlflow"), ("tensorboard.compat.proto.event_pb2", "tensorboard")):
        monkeypatch.setitem(sys.modules, module, None)
        monkeypatch.setitem(sys.modules, module.partition(".")[0], None)
        with pytest.raises(InputError, match=rf"which needs the extra '{extra}'; pip install 'bocl\[{extra}\]'"):
            bocl.track(folder, **{extra: str(tmp_path / "logs")})


def command(monkeypatch, *words: object) -> int:
    monkeypatch.setattr("sys.argv", ["bocl", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code or 0


def test_the_command_follows_a_run_and_survives_its_tracker(run, monkeypatch, capsys):
    folder, resume = run
    fed, pauses = [], []

    def feed(uri, name, tracked):
        new = len(tracked.points) - sum(fed)
        if len(pauses) == 1:
            raise ConnectionError("gone")
        fed.append(new)
        return new

    def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == 1:
            resume()
        if len(pauses) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(tracking, "feed_mlflow", feed)
    assert command(monkeypatch, "track", folder, "--mlflow", "uri") == 0
    assert capsys.readouterr().out == f"{folder}: {fed[0]} new values\n"
    monkeypatch.setattr("time.sleep", sleep)
    assert command(monkeypatch, "track", folder, "--mlflow", "uri", "--follow") == 130
    out, err = capsys.readouterr()
    assert out == f"{folder}: {fed[2]} new values\n"
    assert err.startswith("bocl: MLflow at uri failed (ConnectionError: gone); ")
    assert command(monkeypatch, "track", folder) == 2

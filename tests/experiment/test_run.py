"""Runs: the same seed gives the same run, a run begun goes on, another config is refused."""

from __future__ import annotations

import hashlib
import json
from contextlib import nullcontext
from dataclasses import replace

import pytest
from experiment_examples import SMALL

from bocl.errors import DataError, FolderError
from bocl.experiment.config import load_config
from bocl.experiment.grid import run_grid
from bocl.experiment.pick import pick
from bocl.experiment.run import run
from bocl.method_table import METHODS
from bocl.methods.bocl import BOCL
from bocl.methods.saving import load
from bocl.methods.sn import SN
from bocl.records.events import ignore_events
from bocl.records.journal import BEGINNING, encode, read
from bocl.records.prior_trials import fingerprint, prior_trials_of, write_prior_trials
from bocl.records.summary import JOURNAL, summarise
from bocl.tasks.permuted import PermutedStream

TIMES = {"seconds", "training_seconds", "time"}


def without_times(value):
    """Return a record without its times, however deep they lie."""
    if isinstance(value, list):
        return [without_times(item) for item in value]
    if isinstance(value, dict):
        return {name: without_times(item) for name, item in value.items() if name not in TIMES}
    return value


def journal(folder):
    return [without_times(record) for record in read(folder / JOURNAL)]


def weights(folder):
    return [file.read_bytes() for file in sorted(folder.glob("checkpoints/*/weights-*.safetensors"))]


class Killed(BaseException):
    """What stops a run in these tests, as a signal would."""


def kill_at(event_name, number):
    """Return a listener that raises at the n-th event of a kind."""
    seen = 0

    def callback(event):
        nonlocal seen
        seen += type(event).__name__ == event_name
        if type(event).__name__ == event_name and seen == number:
            raise Killed

    return callback


def test_two_runs_of_a_config_differ_in_times_alone(tmp_path, small):
    for name in ("a", "b"):
        run(small(), tmp_path / name)
    assert journal(tmp_path / "a") == journal(tmp_path / "b")
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    for record in read(tmp_path / "a" / JOURNAL):
        assert without_times(record) != record, "every record is timed"


def test_another_seed_gives_another_run(tmp_path, small):
    run(small(), tmp_path / "a")
    run(small("seed=1"), tmp_path / "b")
    assert weights(tmp_path / "a") != weights(tmp_path / "b")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("event", [("RoundStarted", 2), ("TaskDone", 1), ("EpochDone", 2)])
def test_a_stopped_run_ends_as_if_it_had_never_stopped(tmp_path, small, method, event):
    config = small(f"method={method}", "stream.tasks=3")
    run(config, tmp_path / "whole")
    with pytest.raises(Killed):
        run(config, tmp_path / "stopped", callback=kill_at(*event))
    run(config, tmp_path / "stopped")
    tasks = [record for record in journal(tmp_path / "stopped") if record["kind"] == "task"]
    assert tasks == [record for record in journal(tmp_path / "whole") if record["kind"] == "task"]
    assert weights(tmp_path / "stopped") == weights(tmp_path / "whole")


@pytest.fixture(scope="module")
def prior_trials(tmp_path_factory):
    """Return the file of what a small run tried."""
    folder = tmp_path_factory.mktemp("before")
    run(load_config("digits", [*SMALL, "seed=5"]), folder / "run")
    write_prior_trials(prior_trials_of([summarise(folder / "run")]), folder / "prior_trials.json")
    return folder / "prior_trials.json"


def test_a_run_resumes_with_the_prior_trials_it_began_with_only(tmp_path, small, prior_trials):
    file, folder = tmp_path / "prior_trials.json", tmp_path / "run"
    whole = prior_trials.read_bytes()
    file.write_bytes(whole)
    config = small(f"prior_trials={file}", "stream.tasks=3")
    with pytest.raises(Killed):
        run(config, folder, callback=kill_at("TaskDone", 2))
    assert read(folder / JOURNAL)[0]["prior_trials"] == hashlib.sha256(whole).hexdigest()
    before = (folder / JOURNAL).read_bytes()
    data = json.loads(whole)
    data["tasks"][0]["trials"][1]["accuracy"] /= 2
    file.write_text(json.dumps(data))
    with pytest.raises(
        FolderError, match=r"prior_trials.json is not the file of prior trials that .*journal.jsonl began with"
    ) as caught:
        run(config, folder)
    assert "\n" not in str(caught.value)
    file.unlink()
    with pytest.raises(DataError, match=r"prior_trials .*prior_trials.json cannot be read: No such file"):
        run(config, folder)
    assert (folder / JOURNAL).read_bytes() == before
    task = summarise(folder).tasks[-1]
    pick(folder, next(trial.widths for trial in task.trials if trial.widths != task.widths))  # it needs no search
    file.write_bytes(whole)
    assert len(run(config, folder)) == 3


def test_a_run_begun_before_prior_trials_were_recorded_resumes(tmp_path, small, prior_trials):
    config = small(f"prior_trials={prior_trials}", "stream.tasks=3")
    run(config, tmp_path / "whole")
    with pytest.raises(Killed):
        run(config, tmp_path / "early", callback=kill_at("TaskDone", 2))
    path, lines, head = tmp_path / "early" / JOURNAL, b"", BEGINNING
    for record in read(path):
        if record["kind"] == "start":
            del record["prior_trials"]
        line, head = encode(record, head)
        lines += line
    path.write_bytes(lines)
    run(config, tmp_path / "early")
    starts = [record for record in read(path) if record["kind"] == "start"]
    assert [start.get("prior_trials") for start in starts] == [None, fingerprint(prior_trials)]
    assert weights(tmp_path / "early") == weights(tmp_path / "whole")


def test_a_finished_run_is_left_alone(tmp_path, small):
    first = run(small(), tmp_path)
    before = (tmp_path / JOURNAL).read_bytes()
    assert run(small(), tmp_path) == first
    assert (tmp_path / JOURNAL).read_bytes() == before


def test_a_folder_of_another_config_is_refused_and_untouched(tmp_path, small):
    run(small(), tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(FolderError, match=r"another config \(recipe.epochs: 1 there, 2 here\).*--out"):
        run(small("recipe.epochs=2"), tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(("method", "other"), [("rcl", "search.least_gain=0.5"), ("sn", "reward.alpha=0.5")])
def test_settings_of_other_methods_may_change_while_a_run_goes_on(tmp_path, small, method, other):
    wanted = (f"method={method}", "stream.tasks=3")
    run(small(*wanted), tmp_path / "whole")
    with pytest.raises(Killed):
        run(small(*wanted), tmp_path / "stopped", callback=kill_at("TaskDone", 2))
    run(small(*wanted, other), tmp_path / "stopped")
    assert weights(tmp_path / "stopped") == weights(tmp_path / "whole")


def test_a_folder_with_something_else_in_it_is_refused_and_untouched(tmp_path, small):
    (tmp_path / "thesis.tex").write_text("all my work")
    with pytest.raises(FolderError, match="not a run"):
        run(small(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_in_place_of_the_folder_is_refused(tmp_path, small):
    (tmp_path / "file").write_text("x")
    with pytest.raises(FolderError, match="is a file"):
        run(small(), tmp_path / "file")


def test_a_run_forgets_nothing_and_records_what_it_did(tmp_path, small):
    config = small("stream.tasks=3", "recipe.epochs=3", "search.kind=random")
    records = run(config, tmp_path)
    for task in range(3):
        assert len({record.row[task] for record in records[task:]}) == 1, "test accuracy moved"
    summary = summarise(tmp_path)
    assert summary.figures()["backward_transfer"] == 0.0
    assert summary.figures()["forgetting"] == 0.0
    assert summary.groups == ("fc1", "fc2")
    learner = load(tmp_path)
    assert isinstance(learner, BOCL)
    assert sum(learner.parameters().values()) == records[-1].stored == summary.figures()["parameters"]
    assert sum(sum(record.parameters.values()) for record in records) == records[-1].stored
    for record in records[1:]:
        kept = next(trial for trial in record.trials if trial.widths == record.widths)
        assert kept.parameters == sum(record.parameters.values())
        assert kept.reward == max(trial.reward for trial in record.trials)
    json.dumps(summary.as_json(), allow_nan=False)


SHARED = 64 * 6 + 6 + 6 * 5 + 5  # parameters of the small network without its head


@pytest.mark.parametrize(
    ("method", "numbers"),
    [
        *(("sn", [0, 0]), ("ewc", [2 * SHARED] * 2), ("gem", [7 * 65, 14 * 65]), ("joint", [1293 * 65, 2586 * 65])),
        *(("pc", [SHARED] * 2), ("cab", [65**2 + 7**2] * 2)),
    ],
)
def test_what_a_method_keeps_besides_its_parameters_is_recorded(tmp_path, small, method, numbers):
    records = run(small(f"method={method}", "gem.memories=7"), tmp_path)
    assert [record.extra_numbers for record in records] == numbers
    assert summarise(tmp_path).figures()["extra_numbers"] == numbers[-1]


def test_what_the_steps_of_a_method_were_about_is_recorded(tmp_path, small):
    first, second = run(small("method=den", "den.drift=0"), tmp_path)
    assert first.units == {}
    assert second.units.keys() == {"selected", "pruned", "copied"}
    assert summarise(tmp_path).tasks[1].units == second.units
    expanded = zip(second.widths, second.units["pruned"], second.units["copied"], strict=True)
    assert [added + pruned - copied for added, pruned, copied in expanded] == [10, 10]


def test_methods_of_one_seed_see_the_same_tasks(small):
    from bocl.experiment.build import build_stream

    one, other = (build_stream(replace(small(), method=method)) for method in ("bocl", "sn"))
    assert one[1].train.raw.equal(other[1].train.raw)


@pytest.mark.real_data
@pytest.mark.parametrize("preset", ["mnist-small", "cifar-small"])
def test_the_presets_on_real_data_learn(tmp_path, preset, real_data):
    """One task and a single epoch: enough to show that data, network and recipe of a preset fit together."""
    from bocl.experiment.config import load_config

    (record,) = run(
        load_config(preset, ["stream.tasks=1", "recipe.epochs=1", "method=independent"]),
        tmp_path,
        data=str(real_data),
    )
    assert record.row[0] > (0.9 if preset.startswith("mnist") else 0.2)


def test_other_data_than_the_run_began_with_is_refused(tmp_path, small, monkeypatch):
    config = small("stream.tasks=2", "method=sn")
    monkeypatch.setattr(SN, "learn", stopping(SN.learn, after=1))
    with pytest.raises(Killed):
        run(config, tmp_path, device="cpu")
    monkeypatch.undo()
    before = (tmp_path / JOURNAL).read_bytes()
    monkeypatch.setattr(PermutedStream, "fingerprint", lambda _stream: "other")
    with pytest.raises(FolderError, match=r"journal\.jsonl was made from other data"):
        run(config, tmp_path, device="cpu")
    assert (tmp_path / JOURNAL).read_bytes() == before


def stopping(learn, after):
    """Return ``learn`` for the first tasks, and what stops a run after them."""
    left = [after]

    def learn_or_stop(self, *arguments, **options):
        if not left[0]:
            raise Killed
        left[0] -= 1
        return learn(self, *arguments, **options)

    return learn_or_stop


def test_a_folder_of_other_settings_is_told_before_any_run_of_a_grid(tmp_path, small):
    run(small("stream.tasks=1", "method=sn", "seed=1"), tmp_path / "sn-seed1", device="cpu")
    grid = [(small("method=sn", f"seed={seed}"), tmp_path / f"sn-seed{seed}") for seed in (0, 1)]
    with pytest.raises(FolderError, match=r"sn-seed1/journal\.jsonl was made with another config"):
        run_grid(grid, device="cpu", watch=lambda _config, _folder: nullcontext(ignore_events))
    assert not (tmp_path / "sn-seed0").exists()

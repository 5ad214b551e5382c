"""Studies: what they expand to, how they are refused, and that their runs are made once."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from bocl.engines.run_process import RunProcesses
from bocl.engines.studies import run_jobs
from bocl.errors import ConfigError, FolderError, WorkError
from bocl.experiment.config import load_config
from bocl.experiment.grid import plan
from bocl.experiment.run import run
from bocl.experiment.study import jobs, load_study
from bocl.records.journal import Journal
from bocl.records.summary import summarise_all

OPTIONS = {"data": None, "command": "bocl study"}
QUICK = ["stream.tasks=2", "recipe.epochs=1", "search.kind=random", "search.trials=1", "search.warm_points=1"]

MINE = """# What this is for
on = ["digits"]
seeds = [3, 4]

[[run]]
method = "sn"

[[run]]
name = "dear"
set = ["reward.alpha=0.1"]

[[run]]
method = "fixed"
on = ["mnist-small"]
"""


def make_jobs(wanted, out, *, workers=1, **options):
    return run_jobs(wanted, out, RunProcesses(["cpu"] * workers), **options)


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(MINE)
    return str(path)


def test_a_study_is_every_run_on_every_preset_with_every_seed(mine):
    found = [(job.preset, job.name, job.method, job.seed) for job in jobs([load_study(mine)])]
    assert found == [
        *(("digits", "sn", "sn", seed) for seed in (3, 4)),
        *(("digits", "dear", "bocl", seed) for seed in (3, 4)),
        *(("mnist-small", "fixed", "fixed", seed) for seed in (3, 4)),
    ]
    assert str(jobs([load_study(mine)])[2].run_place) == "digits/dear/bocl-seed3"


def test_presets_names_seeds_and_settings_can_be_given(mine):
    study = [load_study(mine)]
    here = {(job.preset, job.name) for job in jobs(study, on=["mnist-small"])}
    assert here == {("mnist-small", name) for name in ("sn", "dear", "fixed")}
    assert {job.name for job in jobs(study, on=["digits"])} == {"sn", "dear"}, "`fixed` is about another preset"
    assert {job.name for job in jobs(study, names=["dear"])} == {"dear"}
    assert {job.seed for job in jobs(study, seeds=[7])} == {7}
    assert jobs(study, names=["dear"], overrides=["seed=9"])[0].overrides == ("reward.alpha=0.1", "seed=9")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('on = ["digits"]\nrun = []', "no runs"),
        ('on = ["digits"]\n[[run]]\n[[run]]\nmethod = "bocl"', "two runs of the study are called 'bocl'"),
        ('on = ["digits"]\n[[run]]\nmethod = "bolc"', "run"),
        ('on = ["digit"]\n[[run]]', "unknown preset 'digit'"),
        ('on = ["digits"]\n[[run]]\nset = ["reward.alfa=1"]', "reward.alfa"),
        ("[[run]]", "on"),
    ],
)
def test_a_study_that_makes_no_sense_is_refused_before_anything_runs(tmp_path, text, named):
    path = tmp_path / "study.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=named):
        jobs([load_study(str(path))])


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../../x", "/tmp/x", "a/b", "a\\\\b", "a\\u0007b", "a\\u202eb", "a\\nb", "x" * 300]
)
def test_a_run_s_name_is_that_of_one_folder(tmp_path, name):
    (tmp_path / "study.toml").write_text(f'on = ["digits"]\n[[run]]\nname = "{name}"')
    with pytest.raises(ConfigError, match="a run's name is that of its folder; give it another"):
        load_study(str(tmp_path / "study.toml"))


def test_a_null_character_in_a_study_is_refused(tmp_path):
    for line in ('on = ["a\\u0000.toml"]', 'on = ["digits"]\n"\\u0000" = 1'):
        (tmp_path / "study.toml").write_text(f"{line}\n[[run]]")
        with pytest.raises(ConfigError, match="a null character"):
            load_study(str(tmp_path / "study.toml"))


def test_runs_on_a_config_file_stay_in_their_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place in ("far/away/mine.toml", "up.toml", "other/mine.toml", "far/...toml"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("network.arguments = {inputs = 64, hidden = [4]}")
    (tmp_path / "far" / "away").joinpath("study.toml").write_text("on = []\n[[run]]")
    study = [load_study("far/away/study.toml")]

    def places(*on):
        return [str(job.run_place) for job in jobs(study, on=on)]

    assert places(str(tmp_path / "far/away/mine.toml")) == ["mine/bocl/bocl-seed0"]
    assert places("far/../up.toml") == ["up/bocl/bocl-seed0"]
    with pytest.raises(ConfigError, match="have one name, and so one folder; rename one of them"):
        places("far/away/mine.toml", "other/mine.toml")
    with pytest.raises(ConfigError, match=r"'\.\.' stands for another folder"):
        places("far/...toml")
    with pytest.raises(ConfigError, match=r"'\.\.' stands for another folder"):
        plan("far/...toml")
    assert plan("far/...toml", out="there")[0][1] == Path("there/bocl-seed0")


def test_its_processes_execute_nothing_in_the_current_folder(mine, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("typer", "torch", "triton"):
        (tmp_path / f"{name}.py").write_text("open('executed', 'w')")
    wanted = jobs([load_study(mine)], names=["sn"], seeds=[3], overrides=QUICK)
    assert make_jobs(wanted, tmp_path / "out", workers=1, records=None, tell=print, **OPTIONS) == 0
    assert not (tmp_path / "executed").exists()


def test_unknown_names_are_told(mine):
    with pytest.raises(ConfigError, match=r"nowhere\.toml: there is no such file"):
        load_study("nowhere.toml")
    with pytest.raises(ConfigError, match="no run 'deer'"):
        jobs([load_study(mine)], names=["deer"])
    with pytest.raises(ConfigError, match="no run is left"):
        jobs([load_study(mine)], on=["digits"], names=["fixed"])


def test_runs_are_made_once_and_their_journals_kept(mine, tmp_path):
    wanted = jobs([load_study(mine)], names=["sn", "dear"], seeds=[3], overrides=QUICK)
    told: list[str] = []

    def make():
        return make_jobs(
            wanted,
            tmp_path / "out",
            workers=2,
            records=tmp_path / "kept",
            data=None,
            command="bocl study",
            tell=told.append,
        )

    assert make() == 0
    assert sorted(path.name for path in (tmp_path / "kept" / "digits").iterdir()) == [
        "dear-seed-3.jsonl",
        "sn-seed-3.jsonl",
    ]
    journal = tmp_path / "out" / "digits" / "dear" / "bocl-seed3" / "journal.jsonl"
    before = journal.read_bytes()
    assert len(told) == 2
    assert all("ACC" in line and "seed 3" in line for line in told)
    assert make() == 0
    assert told[2:] == [f"2 of 2 runs already in {tmp_path / 'kept'}"]
    assert journal.read_bytes() == before


def test_what_the_records_hold_is_not_made_again_elsewhere_unless_it_differs(mine, tmp_path):
    """The journals alone are enough to go on with on another machine."""
    told: list[str] = []
    options = {
        "workers": 1,
        "records": tmp_path / "kept",
        "data": None,
        "command": "bocl study",
        "tell": told.append,
    }
    wanted = jobs([load_study(mine)], names=["sn"], seeds=[3, 4], overrides=QUICK)
    make_jobs(wanted[:1], tmp_path / "one", **options)
    told.clear()
    make_jobs(wanted, tmp_path / "other", **options)
    assert told[0] == f"1 of 2 runs already in {tmp_path / 'kept'}"
    assert told[1].startswith("1/1  digits  sn  seed 4")
    told.clear()
    other_price = jobs([load_study(mine)], names=["sn"], seeds=[3], overrides=[*QUICK, "reward.alpha=0.5"])
    make_jobs(other_price, tmp_path / "third", **options)
    assert told == [f"1 of 1 run already in {tmp_path / 'kept'}"], "which no run of sn depends on"
    told.clear()
    longer = jobs([load_study(mine)], names=["sn"], seeds=[3], overrides=[*QUICK, "recipe.batch_size=48"])
    make_jobs(longer, tmp_path / "third", **options)
    assert told[0].startswith("1/1  digits  sn  seed 3")
    parts = [json.loads(line) for line in (tmp_path / "kept" / "parts.ndjson").read_text().splitlines()]
    assert [part["finished"] for part in parts] == [1, 1, 1]
    assert all(part["seconds"] > 0 and part["workers"] == 1 and part["versions"]["torch"] for part in parts)


def test_a_run_whose_journal_is_archived_is_not_made_again(mine, tmp_path):
    wanted = jobs([load_study(mine)], names=["sn"], seeds=[3], overrides=QUICK)
    told: list[str] = []
    options = {"workers": 1, "records": tmp_path / "kept", "tell": told.append, **OPTIONS}
    make_jobs(wanted, tmp_path / "out", **options)
    with tarfile.open(tmp_path / "kept" / "digits.tar.xz", "w:xz") as archive:
        archive.add(tmp_path / "kept" / "digits" / "sn-seed-3.jsonl", "sn-seed-3.jsonl")
    shutil.rmtree(tmp_path / "kept" / "digits")
    told.clear()
    make_jobs(wanted, tmp_path / "other", **options)
    assert told == [f"1 of 1 run already in {tmp_path / 'kept'}"]
    other = jobs([load_study(mine)], names=["sn"], seeds=[3], overrides=[*QUICK, "recipe.batch_size=48"])
    make_jobs(other, tmp_path / "third", **options)
    assert (tmp_path / "kept" / "digits" / "sn-seed-3.jsonl").exists(), "a new journal is loose"
    (now,) = summarise_all([tmp_path / "kept"])
    assert now.config["recipe"]["batch_size"] == 48, "and takes the place of the one in the archive"


def test_what_a_study_says_of_a_run_is_in_its_record(tmp_path):
    (tmp_path / "two.toml").write_text(
        'on = ["digits"]\n[[run]]\nmethod = "sn"\nheadline = true\n'
        '[[run]]\nmethod = "sn"\nname = "slow"\nset = ["recipe.learning_rate=1e-4"]'
    )
    study = load_study(str(tmp_path / "two.toml"))
    options = {"workers": 2, "records": tmp_path / "kept", "tell": print, **OPTIONS}
    assert make_jobs(jobs([study], overrides=QUICK), tmp_path / "out", **options) == 0
    slow, usual = sorted(summarise_all([tmp_path / "kept"]), key=lambda run: run.config["recipe"]["learning_rate"])
    assert (usual.headline, slow.headline) == (True, False)
    assert {session.shares_device for run in (usual, slow) for session in run.sessions} == {2}


def test_a_run_that_fails_is_told_and_the_others_go_on(mine, tmp_path):
    wanted = jobs([load_study(mine)], names=["sn", "dear"], seeds=[3], overrides=QUICK)
    (tmp_path / "out" / "digits" / "sn" / "sn-seed3").mkdir(parents=True)
    (tmp_path / "out" / "digits" / "sn" / "sn-seed3" / "mine.txt").write_text("not a run")
    told: list[str] = []
    failed = make_jobs(
        wanted,
        tmp_path / "out",
        workers=1,
        records=None,
        data=None,
        command="bocl study",
        tell=told.append,
    )
    assert failed == 1
    assert "sn-seed3" in next(line for line in told if "  sn  " in line)
    assert "ACC" in next(line for line in told if "  dear  " in line)


def test_stopped_its_runs_stop_too(mine, tmp_path):
    words = ["study", mine, "--only", "dear", "--set", "recipe.epochs=200", "--out", str(tmp_path / "out")]
    command = [sys.executable, "-m", "bocl", *words, "--device", "cpu"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as study:
        journal = tmp_path / "out" / "digits" / "dear" / "bocl-seed3" / "journal.jsonl"
        deadline = time.monotonic() + 60
        while not journal.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        study.send_signal(signal.SIGTERM)
        _, said = study.communicate(timeout=60)
    assert study.returncode == 143
    assert "run the same command again" in said
    with Journal.open(journal):  # which a process that went on would hold
        pass


HELD = """
import time
from pathlib import Path
from bocl.experiment.store import RunStore
from bocl.networks.architectures import mlp as network

keep_round = RunStore.keep_round

def and_wait(self, *arguments):
    keep_round(self, *arguments)
    while Path("hold").exists():
        time.sleep(0.02)

if Path("hold").exists():
    RunStore.keep_round = and_wait
"""


def test_killed_its_runs_end_too_and_are_resumed_to_the_same_bits(tmp_path, monkeypatch):
    (tmp_path / "two.toml").write_text('on = ["digits"]\nseeds = [3, 4]\n[[run]]\nmethod = "bocl"')
    (tmp_path / "held.py").write_text(HELD)  # a network whose runs wait after their first round
    (tmp_path / "hold").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    settings = [*QUICK, 'network.build="held:network"']
    words = ["study", "two.toml", "--out", "out", "--workers", "2", "--device", "cpu"]
    command = [sys.executable, "-m", "bocl", *words, *(word for each in settings for word in ("--set", each))]
    folders = {seed: tmp_path / "out" / "digits" / "bocl" / f"bocl-seed{seed}" for seed in (3, 4)}
    study = subprocess.Popen(command, start_new_session=True)
    try:
        assert soon(lambda: all(any(folder.glob("rounds/*/*")) for folder in folders.values()))
        study.kill()
        study.wait()
        assert soon(lambda: all(map(has_ended, folders.values())))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(study.pid, signal.SIGKILL)
    (tmp_path / "hold").unlink()
    subprocess.run(command, check=True, capture_output=True)
    for seed, folder in folders.items():
        run(load_config("digits", [*settings, f"seed={seed}"]), tmp_path / f"whole-{seed}", device="cpu")
        weights, whole = (
            [path.read_bytes() for path in sorted(place.rglob("*.safetensors"))]
            for place in (folder, tmp_path / f"whole-{seed}")
        )
        assert weights == whole


def soon(so: Callable[[], bool]) -> bool:
    """Wait until it is so, for a minute at most."""
    deadline = time.monotonic() + 60
    while not so() and time.monotonic() < deadline:
        time.sleep(0.05)
    return so()


def has_ended(folder: Path) -> bool:
    """Whether no process holds a run any more."""
    try:
        Journal.open(folder / "journal.jsonl").close()
    except FolderError:
        return False
    return True


def test_several_studies_at_once_make_shared_runs_once(tmp_path, mine):
    path = tmp_path / "other.toml"
    path.write_text('on = ["digits"]\nseeds = [4, 5]\n[[run]]\nmethod = "sn"')
    shared = jobs([load_study(mine), load_study(str(path))], names=["sn"])
    assert [job.seed for job in shared] == [3, 4, 5]
    path.write_text('on = ["digits"]\nseeds = [3]\n[[run]]\nname = "dear"\nset = ["reward.alpha=0.2"]')
    with pytest.raises(ConfigError, match="two studies have a run 'dear' on digits that differs; rename one of them"):
        jobs([load_study(mine), load_study(str(path))])


def test_runs_that_are_timed_share_no_device(tmp_path):
    (tmp_path / "timed.toml").write_text('on = ["digits"]\nalone = true\n[[run]]\nmethod = "sn"')
    command = [sys.executable, "-m", "bocl", "study", "timed.toml", "--out", "out", "--workers", "2"]
    refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    said = "bocl: timed.toml measures how long runs take on a device of their own; leave out --workers\n"
    assert (refused.returncode, refused.stderr) == (2, said)
    assert not (tmp_path / "out").exists()


def test_parts_that_cannot_be_written_are_told_before_the_work(mine, tmp_path):
    wanted = jobs([load_study(mine)], names=["sn"], seeds=[3], overrides=QUICK)
    (tmp_path / "parts.ndjson").mkdir()
    options = {"workers": 1, "tell": print, **OPTIONS}
    with pytest.raises(WorkError, match=r"parts\.ndjson: cannot be written"):
        make_jobs(wanted, tmp_path / "out", records=tmp_path, **options)
    assert not (tmp_path / "out").exists()


def test_a_record_without_test_scores_is_not_enough_where_they_are_wanted(mine, tmp_path):
    told: list[str] = []
    options = {"workers": 1, "tell": told.append, **OPTIONS}
    for curve in ("false", "true", "false"):
        wanted = jobs([load_study(mine)], names=["sn"], seeds=[3], overrides=[*QUICK, f"test_curve={curve}"])
        make_jobs(wanted, tmp_path / curve, records=tmp_path / "kept", **options)
    assert [line.split("  ")[0] for line in told[:2]] == ["1/1", "1/1"]
    assert told[2].startswith("1 of 1 run already")


def test_a_finished_run_of_other_settings_is_not_taken_for_this_one(mine, tmp_path):
    options = {"records": tmp_path / "kept", "tell": print, **OPTIONS}
    made, longer = (
        jobs([load_study(mine)], names=["sn"], seeds=[3], overrides=[*QUICK, *more])
        for more in ([], ["recipe.batch_size=48"])
    )
    make_jobs(made, tmp_path / "out", **{**options, "records": None})
    with pytest.raises(FolderError, match=r"made with another config \(recipe.batch_size: .*; give another folder"):
        make_jobs(longer, tmp_path / "out", **options)
    assert not (tmp_path / "kept").exists()


def test_no_engine_is_asked_for_what_is_finished(mine, tmp_path):
    told: list[str] = []
    asked: list[str] = []
    options = {"records": None, "tell": told.append, **OPTIONS}
    wanted = jobs([load_study(mine)], names=["sn"], overrides=QUICK)
    make_jobs(wanted[:1], tmp_path / "out", **options)

    class Noting(RunProcesses):
        def __call__(self, orders, ended):
            asked.extend(order.title for order in orders)

    run_jobs(wanted, tmp_path / "out", Noting(["cpu"]), **options)
    assert asked == ["digits  sn  seed 4"]
    assert [line.split("  ACC ")[0] for line in told] == ["1/1  digits  sn  seed 3", "1/2  digits  sn  seed 3"]


@pytest.mark.parametrize("kept", [0, 100])
def test_a_record_that_was_cut_short_is_made_again(mine, tmp_path, kept):
    options = {"records": tmp_path / "kept", "tell": print, **OPTIONS}
    wanted = jobs([load_study(mine)], names=["sn"], seeds=[3], overrides=QUICK)
    make_jobs(wanted, tmp_path / "out", **options)
    record = tmp_path / "kept/digits/sn-seed-3.jsonl"
    whole = record.read_bytes()
    record.write_bytes(whole[:kept])
    assert make_jobs(wanted, tmp_path / "out", **options) == 0
    assert record.read_bytes() == whole


def test_a_record_that_cannot_be_written_is_its_run_s_failure_and_the_others_go_on(mine, tmp_path):
    told: list[str] = []
    (tmp_path / "kept/digits/sn-seed-3.jsonl").mkdir(parents=True)
    wanted = jobs([load_study(mine)], names=["sn"], overrides=QUICK)
    assert make_jobs(wanted, tmp_path / "out", records=tmp_path / "kept", tell=told.append, **OPTIONS) == 1
    assert "sn-seed-3.jsonl: cannot be written: Is a directory" in told[0]
    assert [path.name for path in (tmp_path / "kept/digits").iterdir() if path.is_file()] == ["sn-seed-4.jsonl"]


def test_a_record_is_whole_or_not_there(mine, tmp_path, monkeypatch):
    """As on a disk that is full: the file that was begun is gone."""
    wanted = jobs([load_study(mine)], names=["sn"], seeds=[3], overrides=QUICK)
    make_jobs(wanted, tmp_path / "out", records=None, tell=print, **OPTIONS)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        assert make_jobs(wanted, tmp_path / "out", records=tmp_path / "kept", tell=print, **OPTIONS) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert list((tmp_path / "kept/digits").iterdir()) == []

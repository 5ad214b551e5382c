"""``bocl run`` and ``bocl study`` on several devices: the bits of one process, and nobody is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from engine_examples import LONG, SMALL, assert_same_run, helpers_that_answer, rounds, small, soon

from bocl.engines.orders import RunOrder
from bocl.engines.run_process import RunProcess, command, runs_code
from bocl.experiment.run import run
from bocl.records.journal import read
from bocl.records.run_log import JOURNAL

SETTINGS = [word for setting in (*SMALL, LONG) for word in ("--set", setting)]
STUDY = """
on = ["digits"]
seeds = [0]

[[run]]
method = "bocl"

[[run]]
name = "other"
set = ["reward.alpha=0.01"]
"""
STUDY_RUNS = {"bocl/bocl-seed0": (), "other/bocl-seed0": ("reward.alpha=0.01",)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Make runs in this process: two of a study, and one in two parts."""
    place = tmp_path_factory.mktemp("whole")
    for name, overrides in STUDY_RUNS.items():
        run(small(LONG, *overrides), place / name, device="cpu")
    run(small(LONG, "search.parts=2"), place / "parts", device="cpu")
    return place


@pytest.fixture
def study(tmp_path):
    """Write a study of two runs; return the words that make it in two processes."""
    (tmp_path / "study.toml").write_text(STUDY)
    return ["study", "study.toml", "--out", "work", "--records", "records", *SETTINGS, "--devices", "cpu,cpu"]


def under_way(folder: Path) -> list[int]:
    """Return the processes that make runs or train parts for a command that was given in this folder."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"bocl.engines." in (place / "cmdline").read_bytes() and (place / "cwd").readlink() == folder:
                found.append(int(place.name))
    return found


def once_under_way(folder: Path, act: Callable[[list[int]], object]) -> Callable[[], None]:
    """Do something with the processes of a study once a run has finished a round; return what waits for that."""

    def wait() -> None:
        soon(lambda: any(rounds(folder / "work/digits" / name) for name in STUDY_RUNS))
        act(under_way(folder))

    thread = threading.Thread(target=wait)
    thread.start()
    return thread.join


def sessions(folder: Path) -> int:
    return sum(record["kind"] == "start" for record in read(folder / JOURNAL))


def test_a_run_on_two_devices_is_that_of_one_process_in_two_parts(bocl, tmp_path, whole, monkeypatch):
    helpers = helpers_that_answer(monkeypatch)
    code, _, err = bocl("run", "digits", *SETTINGS, "--devices", "cpu,cpu", "--out", "runs")
    assert code == 0, err
    assert len(set(helpers)) == 1
    assert len(helpers) >= 2  # for two tasks with a search
    assert_same_run(tmp_path / "runs/bocl-seed0", whole / "parts")
    assert under_way(tmp_path) == []


def test_a_run_keeps_the_parts_that_it_began_with(bocl, tmp_path, whole):
    one = ["run", "digits", *SETTINGS, "--set", "stream.tasks=1", "--out", "runs"]
    assert bocl(*one, "--device", "cpu")[0] == 0
    assert bocl(*one, "--set", "stream.tasks=2", "--devices", "cpu,cpu")[0] == 2  # another stream is another run
    code, _, err = bocl(*one, "--devices", "cpu,cpu")
    assert code == 0
    assert "the rounds of this run are trained in 1 part; no more devices than that have work" in err
    assert read(tmp_path / "runs/bocl-seed0" / JOURNAL)[0]["config"]["search"]["parts"] == 1


def test_more_devices_than_a_round_has_children_are_told(bocl):
    words = ["run", "digits", *SETTINGS, "--set", "stream.tasks=1", "--set", "search.round_size=2", "--out", "runs"]
    code, _, err = bocl(*words, "--devices", "cpu,cpu,cpu")
    assert code == 0
    assert "trained in 2 parts; no more devices than that have work" in err


def test_runs_of_a_grid_on_two_devices_are_those_of_one_process(bocl, tmp_path, whole):
    run(small(LONG, "seed=1"), tmp_path / "alone", device="cpu")
    code, out, err = bocl("run", "digits", *SETTINGS, "--seeds", "0,1", "--devices", "cpu,cpu", "--out", "runs")
    assert code == 0
    assert sorted(line[3:] for line in err.splitlines()) == ["  bocl  seed 0  finished", "  bocl  seed 1  finished"]
    assert "runs in runs" in out
    assert_same_run(tmp_path / "runs/bocl-seed0", whole / "bocl/bocl-seed0")
    assert_same_run(tmp_path / "runs/bocl-seed1", tmp_path / "alone")


def test_a_run_of_a_grid_that_fails_is_told_and_the_others_go_on(bocl, tmp_path):
    words = ["run", "digits", *SETTINGS, "--set", "stream.tasks=1", "--seeds", "0,1", "--out", "runs"]
    (tmp_path / "runs/bocl-seed0").mkdir(parents=True)
    (tmp_path / "runs/bocl-seed0/rounds").touch()  # where a folder has to be
    code, out, err = bocl(*words, "--devices", "cpu,cpu")
    assert code == 1
    assert "bocl-seed0 is not a run" in err
    assert "bocl  seed 1  finished" in err
    assert "bocl: 1 of 2 runs failed:" in err
    assert "runs/bocl-seed1" in out


def test_a_study_that_is_stopped_leaves_nobody_and_goes_on_in_one_process(bocl, tmp_path, whole, study):
    main_thread = threading.main_thread().ident
    stopped = once_under_way(tmp_path, lambda _: signal.pthread_kill(main_thread, signal.SIGINT))
    code, out, err = bocl(*study)
    stopped()
    assert (code, out, err) == (130, "", "bocl: stopped; run the same command again to resume\n")
    assert under_way(tmp_path) == []
    assert bocl(*study[:-2], "--device", "cpu")[0] == 0
    assert 2 in [sessions(tmp_path / "work/digits" / name) for name in STUDY_RUNS]
    for name in STUDY_RUNS:
        assert_same_run(tmp_path / "work/digits" / name, whole / name)
    assert len(list((tmp_path / "records/digits").iterdir())) == 2


def test_no_process_outlives_a_command_that_is_killed_and_it_goes_on(bocl, tmp_path, whole):
    words = ["run", "digits", *SETTINGS, "--devices", "cpu,cpu", "--out", "runs"]
    command = [sys.executable, "-P", "-m", "bocl", *words]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as asked:
        soon(lambda: rounds(tmp_path / "runs/bocl-seed0") and under_way(tmp_path))
        asked.kill()
    soon(lambda: not under_way(tmp_path))
    assert bocl(*words)[0] == 0
    assert sessions(tmp_path / "runs/bocl-seed0") == 2
    assert_same_run(tmp_path / "runs/bocl-seed0", whole / "parts")


def test_a_process_of_a_study_that_is_killed_costs_its_run_a_round(bocl, tmp_path, whole, study):
    killed = once_under_way(tmp_path, lambda processes: os.kill(processes[0], signal.SIGKILL))
    code, out, err = bocl(*study)
    killed()
    assert code == 1
    assert sum("  killed by SIGKILL; run the same command again to resume" in line for line in out.splitlines()) == 1
    assert err == "bocl: 1 of 2 runs failed\n"
    assert bocl(*study)[0] == 0
    for name in STUDY_RUNS:
        assert_same_run(tmp_path / "work/digits" / name, whole / name)


@pytest.fixture
def started(monkeypatch):
    """Note every start of a process that makes runs."""
    found, start = [], RunProcess._start
    monkeypatch.setattr(RunProcess, "_start", lambda process: (found.append(process), start(process))[1])
    return found


def test_processes_that_share_a_device_make_run_after_run(bocl, tmp_path, whole, study, started):
    assert bocl(*study, "--seeds", "0,1")[0] == 0
    assert len(started) == 2
    for name, overrides in STUDY_RUNS.items():
        assert_same_run(tmp_path / "work/digits" / name, whole / name)
        run(small(LONG, "seed=1", *overrides), tmp_path / "alone" / name, device="cpu")
        assert_same_run(tmp_path / "work/digits" / name.replace("seed0", "seed1"), tmp_path / "alone" / name)
    assert under_way(tmp_path) == []


def test_a_process_ends_with_a_run_that_fails_or_has_its_device_to_itself(bocl, tmp_path, study, started):
    (tmp_path / "study.toml").write_text(STUDY.replace("reward.alpha=0.01", "recipe.learning_rate=1e30"))
    words = [*study, "--seeds", "0,1", "--set", "stream.tasks=1"]
    assert bocl(*words)[0] == 1
    assert len(started) in (2, 3)  # two runs fail, in one process or in two
    started.clear()
    alone = ["--device", "cpu", "--seeds", "2,3", "--only", "bocl", "--set", "stream.tasks=1"]
    assert bocl(*study[:-2], *alone)[0] == 0
    assert len(started) == 2


def test_the_users_code_is_told_from_ours(tmp_path):
    assert not runs_code(RunOrder.of("ours", small(), tmp_path))
    for theirs in ("stream.name=package.module:tasks", "network.build=package.module:network"):
        assert runs_code(RunOrder.of("theirs", small(theirs), tmp_path))


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL; run the same command again"),
        ("print('made', flush=True)", "failed"),
    ],
)
def test_a_process_that_gives_no_answer_is_not_waited_for(tmp_path, code, told):
    process = RunProcess([sys.executable, "-c", code])
    assert process.make(RunOrder.of("a run", small(), tmp_path)).startswith(told)
    process.stop()
    process.wait()
    assert process.make(RunOrder.of("a run", small(), tmp_path)) == "stopped"


def test_a_process_that_is_killed_between_two_orders_is_started_anew(tmp_path):
    process = RunProcess(command("cpu"))
    orders = [RunOrder.of("a run", small(f"seed={seed}"), tmp_path / str(seed), shares_device=2) for seed in range(2)]
    assert process.make(orders[0]) == ""
    process._process.kill()
    process._process.wait()
    assert process.make(orders[1]) == ""
    process.stop()
    process.wait()


@pytest.mark.gpu
def test_two_processes_that_share_the_gpu_come_to_the_bits_of_one(bocl, tmp_path):
    run(small(LONG, "search.parts=2"), tmp_path / "parts", device="cuda:0")
    assert bocl("run", "digits", *SETTINGS, "--devices", "cuda:0,cuda:0", "--out", "runs")[0] == 0
    assert_same_run(tmp_path / "runs/bocl-seed0", tmp_path / "parts")
    words = ["--seeds", "1,2,3", "--devices", "cuda:0,cuda:0", "--out", "grid"]
    assert bocl("run", "digits", *SETTINGS, *words)[0] == 0
    for seed in (1, 3):  # the third run is the second of its process
        run(small(LONG, f"seed={seed}"), tmp_path / f"alone/{seed}", device="cuda:0")
        assert_same_run(tmp_path / f"grid/bocl-seed{seed}", tmp_path / f"alone/{seed}")


def test_the_reason_of_a_process_is_told_whatever_it_says_when_it_ends():
    said = "bocl: no data\nx.py:1: UserWarning: a leak\n  warnings.warn("
    for says, told in ((said, "no data"), ("its end", "its end")):
        process = RunProcess([sys.executable, "-c", f"raise SystemExit({says!r})"])
        assert process.make(RunOrder.of("a run", small(LONG), Path("nowhere"))) == told
        process.stop()
        process.wait()


# -- wrong options ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--devices 2", "--devices 2: give `all`, or names separated by commas, such as cuda:0,cuda:1"),
        ("--devices cpu,", "unknown device ''; use auto, cpu, cuda or cuda:N"),
        ("--devices cpu,cpu --device cpu", "--device and --devices are different ways to say where"),
        ("--devices cpu,cpu --engine ray", "--devices are of this machine, and --engine ray has its own"),
        ("--devices cpu,cpu --at-once 2", "--at-once is about one GPU; leave it out with --devices"),
        ("--engine slurm --at-once 2", "--at-once is about one GPU; leave it out with --devices and --engine"),
        ("--engine rai", "there is no engine 'rai' (did you mean 'ray'?)"),
        ("--address auto", "--address is that of a Ray cluster; add --engine ray"),
        ("--engine slurm --address auto", "--address is that of a Ray cluster; add --engine ray"),
        ("--slurm time=1", "--slurm is for a cluster with Slurm; add --engine slurm"),
        ("--mixed-devices", "--mixed-devices allows devices of different types; add --devices or --engine ray"),
        ("--workers 2", "--workers are those of an engine; add --engine ray or slurm, or use --devices"),
    ],
)
def test_options_that_make_no_sense_are_refused_in_one_line(bocl, tmp_path, words, told):
    code, out, err = bocl("run", "digits", *words.split())
    assert (code, out) == (2, "")
    assert told in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("engine", "module"), [("ray", "ray"), ("slurm", "submitit")])
def test_an_engine_that_is_not_installed_is_named(bocl, tmp_path, monkeypatch, engine, module):
    monkeypatch.setitem(sys.modules, module, None)
    code, _, err = bocl("run", "digits", "--engine", engine)
    assert code == 2
    assert f"needs the extra '{engine}'; pip install 'bocl[{engine}]'" in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def gpus(monkeypatch):
    """Let PyTorch say that there are three GPUs, of two types."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Old" if device.index == 2 else "New")


@pytest.mark.parametrize("names", ["cuda:0,cuda:1,cuda:2", "cuda:0,cuda:2", "cuda:0,cpu"])
def test_devices_of_different_types_are_refused_unless_they_are_allowed(bocl, gpus, names):
    from bocl.training.device import resolve_devices

    code, _, err = bocl("run", "digits", "--devices", names)
    assert code == 2
    assert f"--devices {names} are of different types (" in err
    assert "name devices of one type, or allow it with --mixed-devices" in err
    assert ",".join(map(str, resolve_devices(names, mixed=True))) == names


def test_gpus_of_one_type_are_taken(gpus):
    from bocl.training.device import resolve_devices

    assert list(map(str, resolve_devices("all", mixed=True))) == ["cuda:0", "cuda:1", "cuda:2"]
    assert list(map(str, resolve_devices("cuda:0, cuda:1"))) == ["cuda:0", "cuda:1"]
    assert list(map(str, resolve_devices("cuda:0,cuda:0"))) == ["cuda:0", "cuda:0"]

"""Runs as elements of an array job: the same bits as in one process, requeued, killed, and waited for again."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from engine_examples import (
    LONG,
    StoppedHere,
    assert_same_run,
    make,
    make_whole,
    order,
    rounds,
    small,
    soon,
    stop_after,
    told,
)
from slurm_stand_in import put_slurm_in

from bocl.engines.orders import RunOrder
from bocl.engines.slurm import SlurmArray, minutes_of
from bocl.errors import InputError, WorkError
from bocl.experiment.run import run
from bocl.records.journal import read
from bocl.records.run_log import JOURNAL
from test_docs import ROOT, run_transcripts

pytestmark = [pytest.mark.clusters, pytest.mark.usefixtures("quick")]


@pytest.fixture
def quick(monkeypatch):
    import submitit

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(submitit.LocalJob, "_results_timeout_s", 1)  # seconds: the disk here is not shared


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Put a stand-in for Slurm on the path."""
    monkeypatch.setenv("PATH", f"{put_slurm_in(tmp_path / 'slurm-itself')}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "slurm-itself"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make_whole(tmp_path_factory.mktemp("whole"), LONG, seed_0="seed=0", seed_1="seed=1")


def local(tmp_path: Path) -> SlurmArray:
    return SlurmArray(tmp_path / "slurm", {"time": "30"}, "cpu", None, cluster="local")


def elements(folder: Path) -> list[int]:
    """Return the processes that make the runs in a folder."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (place / "cmdline").read_bytes().split(b"\0")
            if b"submitit.core._submit" in words and str(folder).encode() in b" ".join(words):
                found.append(int(place.name))
    return found


def meanwhile(work):
    """Do something in a thread, once a run is under way; return what waits for it."""
    thread = threading.Thread(target=work)
    thread.start()
    return thread.join


def test_runs_are_those_of_one_process(tmp_path, whole):
    orders = [order(tmp_path / f"seed_{seed}", LONG, f"seed={seed}") for seed in (0, 1)]
    assert make(local(tmp_path), orders) == {"seed_0": "", "seed_1": ""}
    for seed in (0, 1):
        assert_same_run(tmp_path / f"seed_{seed}", whole / f"seed_{seed}")


def test_an_element_whose_time_is_nearly_over_is_requeued_and_goes_on(tmp_path, whole):
    folder = tmp_path / "seed_0"

    def send():
        soon(lambda: rounds(folder) >= 1)
        (element,) = elements(tmp_path)
        os.kill(element, signal.SIGUSR2)

    sent = meanwhile(send)
    assert make(local(tmp_path), [order(folder, LONG, "seed=0")]) == {"seed_0": ""}
    sent()
    assert sum(record["kind"] == "start" for record in read(folder / JOURNAL)) == 2
    assert_same_run(folder, whole / "seed_0")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_element_that_is_killed_is_told_and_the_same_command_goes_on(tmp_path, whole, number):
    folder = tmp_path / "seed_0"

    def kill():
        soon(lambda: rounds(folder) >= 1)
        (element,) = elements(tmp_path)
        os.kill(element, number)

    killed = meanwhile(kill)
    ended = make(local(tmp_path), [order(folder, LONG, "seed=0")])
    killed()
    assert "gave no result" in ended["seed_0"]
    assert "\n" not in ended["seed_0"]
    at_first = told(folder)
    assert make(local(tmp_path), [order(folder, LONG, "seed=0")]) == {"seed_0": ""}
    assert told(folder)[: len(at_first)] == at_first  # nothing of it was made twice
    assert_same_run(folder, whole / "seed_0")


def test_who_stops_waiting_finds_the_runs_again(tmp_path, whole, slurm):
    orders = [order(tmp_path / f"seed_{seed}", LONG, f"seed={seed}") for seed in (0, 1)]

    def stop():
        soon(lambda: all(rounds(Path(order.folder)) >= 1 for order in orders))
        signal.raise_signal(signal.SIGINT)

    sent = meanwhile(stop)
    with pytest.raises(KeyboardInterrupt, match=r"stopped waiting; 2 runs go on under Slurm: .*`scancel 1`"):
        make(SlurmArray(tmp_path / "slurm", {}, "cpu", None), orders)
    sent()
    assert make(SlurmArray(tmp_path / "slurm", {}, "cpu", None), orders) == {"seed_0": "", "seed_1": ""}
    assert len(list((slurm / "state").iterdir())) == 2  # none was asked for twice
    for seed in (0, 1):
        assert_same_run(tmp_path / f"seed_{seed}", whole / f"seed_{seed}")
        assert sum(record["kind"] == "start" for record in read(tmp_path / f"seed_{seed}" / JOURNAL)) == 1
    make(SlurmArray(tmp_path / "slurm", {}, "cpu", None), orders)
    assert len(list((slurm / "state").iterdir())) == 2  # and nothing for what is finished


def test_options_are_those_of_sbatch(tmp_path, slurm):
    options = {"partition": "gpu", "time": "1-2:30", "gres": "gpu:1"}
    orders = [order(tmp_path / f"seed_{seed}", "method=sn", "stream.tasks=1", f"seed={seed}") for seed in (0, 1)]
    make(SlurmArray(tmp_path / "slurm", options, "cpu", 1), orders)
    script = (slurm / "script").read_text()
    assert all(f"#SBATCH --{name}={value}\n" in script for name, value in options.items())
    assert "#SBATCH --array=0-1%1\n" in script
    assert "#SBATCH --signal=USR2@90\n" in script
    with pytest.raises(InputError, match=r"the job was not taken: sbatch: error: invalid partition .*: nowhere$"):
        make(SlurmArray(tmp_path / "slurm", {"partition": "nowhere"}, "cpu", 1), [order(tmp_path / "other")])


def test_the_command_waits_for_what_it_asked_for(bocl, tmp_path, slurm):
    words = ["run", "digits", "--methods", "sn", "--set", "stream.tasks=1", "--set", "recipe.epochs=1", "--out", "runs"]
    code, out, err = bocl(*words, "--engine", "slurm", "--slurm", "time=10", "--slurm", "partition=gpu")
    assert code == 0, err
    assert err == "1/1  sn  seed 0  finished\n"
    assert "runs/sn-seed0" in out
    assert "#SBATCH --partition=gpu\n" in (slurm / "script").read_text()


def test_the_commands_of_the_guide_run(tmp_path, monkeypatch, slurm):
    monkeypatch.chdir(tmp_path)
    assert run_transcripts(ROOT / "docs/guides/many-runs.md", "slurm") == 1
    assert len(list((tmp_path / "runs/slurm").rglob(JOURNAL))) == 2


def test_what_is_wrong_with_a_single_run_is_told_in_one_line(bocl, tmp_path, slurm):
    (tmp_path / "empty").mkdir()
    code, out, err = bocl("run", "permuted-mnist", "--data", "empty", "--engine", "slurm", "--device", "cpu")
    assert (code, out) == (1, "")
    assert "train-images-idx3-ubyte.gz" in err
    assert len(err.splitlines()) == 1


def test_what_is_wrong_with_the_runs_of_an_array_is_told_for_each(tmp_path):
    bad = RunOrder.of("bad", small("stream.name=permuted-mnist"), tmp_path / "bad", data=str(tmp_path))
    ended = make(local(tmp_path), [bad, order(tmp_path / "good", "stream.tasks=1")])
    assert ended["good"] == ""
    assert "train-images-idx3-ubyte.gz" in ended["bad"]


SIGNALLED = """
import os, signal
from pathlib import Path
from bocl.methods import parts
from bocl.networks.architectures import mlp as network

place, grow_part = Path(__file__).with_name("send"), parts.grow_part

def grow_and_send(*arguments):
    children = grow_part(*arguments)
    if place.exists():
        place.unlink()
        os.kill(os.getpid(), signal.SIGUSR2)
    return children

parts.grow_part = grow_and_send
"""


@pytest.mark.parametrize("minutes", [5, 30])
def test_an_element_from_which_nothing_new_came_ends_unless_it_had_little_of_its_time(tmp_path, monkeypatch, minutes):
    """The signal comes in the middle of a round; half an hour is not over yet, of five minutes it would be."""
    (tmp_path / "signalled.py").write_text(SIGNALLED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.syspath_prepend(tmp_path)
    settings = ["stream.tasks=2", "network.build='signalled:network'"]
    run(small(*settings), tmp_path / "whole", device="cpu")
    folder = tmp_path / "run"
    with pytest.raises(StoppedHere):
        run(small(*settings), folder, device="cpu", callback=stop_after(1))
    before = told(folder)
    (tmp_path / "send").touch()
    engine = SlurmArray(tmp_path / "slurm", {"time": str(minutes)}, "cpu", None, cluster="local")
    ended = make(engine, [order(folder, *settings)])
    assert not (tmp_path / "send").exists()
    if minutes == 5:
        assert ended == {"run": "no record within the time limit of 5 minutes; give a longer --slurm time=…"}
        assert told(folder) == before
        assert make(engine, [order(folder, *settings)]) == {"run": ""}
    else:
        assert ended == {"run": ""}
    assert_same_run(folder, tmp_path / "whole")


@pytest.fixture
def asks(monkeypatch):
    """Let engines ask for nothing, and note for how much they would have; return that."""
    asked = []

    def ask(_, orders):
        asked.append(len(orders))
        jobs = [SimpleNamespace(job_id=f"7_{len(asked)}{place}") for place in range(len(orders))]
        return {order.folder: job for order, job in zip(orders, jobs, strict=True)}

    monkeypatch.setattr(SlurmArray, "_ask", ask)
    return asked


def test_what_slurm_has_no_record_of_yet_is_not_asked_for_again(tmp_path, slurm, asks):
    orders = [order(tmp_path / f"seed_{seed}", f"seed={seed}") for seed in (0, 1, 2)]
    engine = SlurmArray(tmp_path / "slurm", {}, "cpu", None)
    made = engine._jobs_of(orders)
    again = engine._jobs_of(orders)  # the stand-in knows no job
    assert {key: job.job_id for key, job in again.items()} == {key: job.job_id for key, job in made.items()}
    assert asks == [3]
    assert (slurm / "asked").read_text() == "sacct\n"  # for all of them
    jobs = tmp_path / "slurm/jobs.json"
    os.utime(jobs, (0, 0))
    engine._jobs_of(orders)
    assert asks == [3, 3]  # it has forgotten them by now


def test_a_signal_while_runs_are_asked_for_loses_none(tmp_path, slurm, asks, monkeypatch):
    ask = SlurmArray._ask

    def ask_and_stop(*arguments):
        signal.raise_signal(signal.SIGINT)
        return ask(*arguments)

    monkeypatch.setattr(SlurmArray, "_ask", ask_and_stop)
    with pytest.raises(KeyboardInterrupt):
        SlurmArray(tmp_path / "slurm", {}, "cpu", None)._jobs_of([order(tmp_path / "run")])
    assert json.loads((tmp_path / "slurm/jobs.json").read_text()) == {str(tmp_path / "run"): "7_10"}


def test_two_commands_in_one_folder_keep_what_each_asked_for(tmp_path, slurm, asks, monkeypatch):
    ask, inside = SlurmArray._ask, []

    def ask_slowly(*arguments):
        inside.append(True)
        time.sleep(1)  # for the other, if it may
        found = ask(*arguments)
        inside.pop()
        assert not inside
        return found

    monkeypatch.setattr(SlurmArray, "_ask", ask_slowly)
    engine = SlurmArray(tmp_path / "slurm", {}, "cpu", None)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(engine._jobs_of, [[order(tmp_path / name)] for name in ("one", "other")]))
    assert len(json.loads((tmp_path / "slurm/jobs.json").read_text())) == 2


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "slurm").mkdir()
    engine = local(tmp_path)
    (tmp_path / "slurm").rmdir()
    (tmp_path / "slurm").touch()
    with pytest.raises(WorkError, match="slurm: cannot be written: "):
        make(engine, [order(tmp_path / "run")])


def test_what_slurm_could_not_do_is_refused_in_one_line(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="--slurm array=…: bocl sets it itself"):
        SlurmArray(tmp_path, {"array": "1-3"}, "cpu", None)
    with pytest.raises(InputError, match="--slurm time=soon: give minutes, HOURS:MINUTES:SECONDS or DAYS-HOURS"):
        SlurmArray(tmp_path, {"time": "soon"}, "cpu", None, cluster="local")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"there is no srun here; .* or leave it out to make the runs on this machine"):
        SlurmArray(tmp_path, {}, "cpu", None)


@pytest.mark.parametrize(
    ("said", "minutes"),
    [("90", 90), ("90:01", 91), ("4:00:00", 240), ("2-0", 2880), ("1-2:30", 1590), ("1-2:30:01", 1591), ("0:30", 1)],
)
def test_time_limits_are_read_as_sbatch_reads_them(said, minutes):
    assert minutes_of(said) == minutes

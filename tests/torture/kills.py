"""Kill whatever writes at any moment, do the same again, and see that nothing had happened.

A child dies by SIGKILL, from its own hand before (or halfway through) the n-th call that changes the folder, or from
its parent's at a random moment. Then the same command is given again in the same folder, and compared: weights,
canaries and records but their times with those of a run that nobody disturbed; nothing acknowledged is lost, nothing is
recorded twice. A save leaves the old model or the new one, never neither.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
from cases import Case, Group, check
from commands import call, from_python, run_words, told
from forks import Mishap, Work, every_kill, in_a_fork
from states import all_it_learnt, outcome

from bocl.errors import FolderError
from bocl.experiment.grid import plan
from bocl.experiment.run import run
from bocl.method_table import METHODS
from bocl.methods.method import Learner
from bocl.methods.saving import load, save
from bocl.records.events import Event, TaskDone
from bocl.records.journal import read
from bocl.records.run_log import JOURNAL
from bocl.records.summary import summarise
from bocl.widths import Widths

SETTINGS = (
    "stream.tasks=3",
    "network.arguments={inputs=64, hidden=[6, 5]}",
    "recipe.epochs=1",
    "recipe.batch_size=256",
    "search.trials=3",
    "search.patience=2",
    "search.warm_points=2",
    "search.bounds=3",
    "gem.memories=4",
)
FEWER = 50  # kills at calls of a method that is not bocl
STUDY = """# three runs that share a worker or two
on = ["digits"]
[[run]]
method = "bocl"
[[run]]
method = "fixed"
[[run]]
method = "sn"
"""


def groups() -> list[Group]:
    """Return all of it: at least a thousand kills."""
    others = [name for name in METHODS if name != "bocl"]
    return [
        Group("bocl", partial(of_runs, "bocl", "0", most=None, random_moments=60), few=6),
        *(Group(name, partial(of_runs, name, "0", most=FEWER, random_moments=6)) for name in others),
        Group("grid of 4", partial(of_runs, "bocl,sn", "0,1", most=40, random_moments=20)),
        Group("pick", of_picks, few=3),
        Group("learn", of_learning, few=2),
        *(Group(f"save of {name}", partial(of_saves, name), few=3 * (name == "bocl")) for name in METHODS),
        Group("study", of_studies),
    ]


# Runs and grids.


def lines_of(folders: Sequence[Path]) -> int:
    """Return how many records the journals of runs hold, as far as they are there."""
    return sum(len(read(folder / JOURNAL)) for folder in folders if (folder / JOURNAL).exists())


def of_runs(methods: str, seeds: str, place: Path, *, most: int | None, random_moments: int) -> Iterator[Case]:
    """Kill a run, or a grid of them, at calls and at random moments; every other time twice."""
    draw = random.Random(f"{methods} {seeds}")
    folders = [place / "killed" / f"{method}-seed{seed}" for method in methods.split(",") for seed in seeds.split(",")]
    whole, command = (run_words(methods, SETTINGS, place / name, seeds) for name in ("whole", "killed"))
    code, _, said = call(*run_words(methods, SETTINGS, place / "warm-up", seeds))  # what libraries do once is done here
    check(code == 0, said)
    began = time.perf_counter()
    undisturbed = in_a_fork(partial(told, *whole))
    seconds = time.perf_counter() - began
    check(undisturbed.code == 0, f"it fails even if nobody disturbs it: {undisturbed.said}")
    wanted = outcome([place / "whole" / folder.name for folder in folders])

    def kill(*mishaps: Mishap) -> Mapping[str, int]:
        shutil.rmtree(place / "killed", ignore_errors=True)
        deaths = 0
        for mishap in mishaps:
            had = lines_of(folders)
            ended = in_a_fork(partial(told, *command), mishap)
            check(ended.code == 0 or ended.killed, f"it ended with {ended.code}: {ended.said}")
            found = lines_of(folders)
            promised = range(had + ended.promised, had + ended.promised + 2)
            check(found in promised, f"{had} lines were there and {ended.promised} promised, now there are {found}")
            deaths += ended.killed
        before = {folder: (folder / JOURNAL).read_bytes() for folder in folders if (folder / JOURNAL).exists()}
        again = in_a_fork(partial(told, *command))
        check(again.code == 0, f"started again, it ended with {again.code}: {again.said}")
        for folder, old in before.items():
            kept = (folder / JOURNAL).read_bytes().startswith(old[: old.rfind(b"\n") + 1])
            check(kept, "what the journal held was changed")
        check(outcome(folders) == wanted, "it came to something else")
        return {"kills of grids" if "," in methods else "kills of runs": deaths}

    calls = list(every_kill(undisturbed.calls))
    for mishap in calls if most is None else draw.sample(calls, min(most, len(calls))):
        yield Case(str(mishap), partial(kill, mishap))
    for number in range(random_moments):
        moments = [Mishap(after=draw.uniform(0, seconds)) for _ in range(1 + number % 2)]
        yield Case(", then ".join(map(str, moments)), partial(kill, *moments))


# Tasks that come one at a time.


def of_learning(place: Path) -> Iterator[Case]:
    """Kill one of three `bocl learn` in a row, give it again, and let the others follow."""
    draw = random.Random("learn")
    sets = [
        word
        for setting in (*SETTINGS[2:], "network={build='mlp', arguments={inputs=4, hidden=[6, 5]}}")
        for word in ("--set", setting)
    ]
    for number in range(3):
        inputs = np.random.default_rng(number).normal(size=(60, 4))
        np.savez(place / f"task-{number}.npz", x=inputs, y=inputs.argmax(axis=1))

    def learn(folder: str, number: int) -> Work:
        return partial(told, "learn", str(place / folder), str(place / f"task-{number}.npz"), *sets, "--device", "cpu")

    for number in range(3):
        learn("warm-up", number)()
    undisturbed = [in_a_fork(learn("whole", number)) for number in range(3)]
    check(
        all(ended.code == 0 for ended in undisturbed), f"it fails undisturbed: {[ended.said for ended in undisturbed]}"
    )
    wanted = outcome([place / "whole"])

    def kill(killed: int, mishap: Mishap) -> Mapping[str, int]:
        shutil.rmtree(place / "killed", ignore_errors=True)
        deaths = 0
        for number in range(3):
            if number == killed:
                ended = in_a_fork(learn("killed", number), mishap)
                check(ended.code == 0 or ended.killed, f"it ended with {ended.code}: {ended.said}")
                deaths += ended.killed
            again = in_a_fork(learn("killed", number))
            check(again.code == 0, f"it ended with {again.code}: {again.said}")
        check(outcome([place / "killed"]) == wanted, "it came to something else")
        return {"kills of learn": deaths}

    cases = [(number, mishap) for number in (0, 1) for mishap in every_kill(undisturbed[number].calls)]
    for number, mishap in draw.sample(cases, min(FEWER, len(cases))):
        yield Case(f"task {number}, {mishap}", partial(kill, number, mishap))


# Picks.


def of_picks(place: Path) -> Iterator[Case]:
    """Kill a pick after the second of three tasks, make it again, and let the run go on from there."""
    folder, widths, pick, begin_again = ready_to_pick(place)
    go_on = partial(told, *run_words("bocl", SETTINGS, folder.parent))

    def end() -> str:
        ended = in_a_fork(go_on)
        check(ended.code == 0, f"the run gone on with ended with {ended.code}: {ended.said}")
        check(summarise(folder).tasks[1].widths == widths, "the pick was lost")
        return outcome([folder])

    def kill(mishap: Mishap) -> Mapping[str, int]:
        begin_again()
        had = lines_of([folder])
        ended = in_a_fork(pick, mishap)
        check(ended.killed, f"the pick ended with {ended.code}: {ended.said}")
        found = lines_of([folder]) - had
        check(ended.promised <= found <= ended.promised + 1, f"{ended.promised} lines were promised, {found} are there")
        again = in_a_fork(pick)
        check(again.code == 0, f"the pick cannot be made again: {again.said}")
        check(end() == wanted, "it came to something else")
        return {"kills of picks": 1}

    calls = in_a_fork(pick).calls
    wanted = end()
    for mishap in every_kill(calls):
        yield Case(f"a pick, {mishap}", partial(kill, mishap))


def ready_to_pick(place: Path) -> tuple[Path, Widths, Work, Callable[[], None]]:
    """Return a run's folder, the widths of another child of its second task, what picks it, and what begins again."""
    two_tasks, folder = stopped_after(2, place / "two tasks"), place / "case" / "bocl-seed0"
    task = summarise(two_tasks).tasks[-1]
    widths = next(trial.widths for trial in task.trials if not trial.failed and trial.widths != task.widths)

    def begin_again() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(two_tasks, folder)

    begin_again()
    pick = partial(told, "pick", str(folder), "--widths", ",".join(map(str, widths)), "--device", "cpu")
    return folder, widths, pick, begin_again


def stopped_after(tasks: int, place: Path) -> Path:
    """Return the folder of a run of bocl that was stopped when so many tasks were finished."""
    ((config, folder),) = plan("digits", SETTINGS, methods=["bocl"], seeds=[0], out=str(place), device="cpu")

    def stop(event: Event) -> None:
        if isinstance(event, TaskDone) and event.record.index + 1 == tasks:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        run(config, folder, device="cpu", callback=stop)
    return folder


# Saves.


def of_saves(method: str, place: Path) -> Iterator[Case]:
    """Kill a save into a folder with an older model, and one into a new folder."""
    code, _, said = call(*run_words(method, ("stream.tasks=2", *SETTINGS[1:]), place / "runs", "0,1"))
    check(code == 0, said)
    old, new = (load(place / "runs" / f"{method}-seed{seed}", device="cpu") for seed in (0, 1))
    for begun in (old, None):
        yield from _of_one_save(begun, new, place / "model")


def _of_one_save(old: Learner | None, new: Learner, folder: Path) -> Iterator[Case]:
    allowed = {all_it_learnt(new)} | ({all_it_learnt(old)} if old else set())
    saves = partial(from_python, partial(save, new, folder))

    def begin_again() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        if old:
            save(old, folder)

    def kill(mishap: Mishap) -> Mapping[str, int]:
        begin_again()
        ended = in_a_fork(saves, mishap)
        check(ended.killed, f"the save ended with {ended.code}: {ended.said}")
        try:
            check(all_it_learnt(load(folder, device="cpu")) in allowed, "it is neither the old model nor the new one")
        except FolderError as error:
            check(old is None, f"neither model can be loaded: {error}")
        check(saves() == (0, ""), "it cannot be saved again")
        check(sorted(path.name for path in folder.iterdir()) == names, "files of the killed save are left")
        check(all_it_learnt(load(folder, device="cpu")) == all_it_learnt(new), "it was saved, and something else loads")
        return {"kills of saves": 1}

    begin_again()
    calls = in_a_fork(saves).calls
    names = sorted(path.name for path in folder.iterdir())
    what = f"a save {'over an older one' if old else 'into a new folder'}"
    for mishap in every_kill(calls):
        yield Case(f"{what}, {mishap}", partial(kill, mishap))


# Studies.


def of_studies(place: Path) -> Iterator[Case]:
    """Kill a study's parent, or a worker, or all of them; make the study again until it is whole."""
    draw = random.Random("study")
    (place / "study.toml").write_text(STUDY)
    sets = [word for setting in SETTINGS for word in ("--set", setting)]

    def begin(name: str) -> subprocess.Popen[bytes]:
        words = ["study", str(place / "study.toml"), "--out", str(place / name), "--workers", "2", "--device", "cpu"]
        return subprocess.Popen(
            [sys.executable, "-m", "bocl", *words, *sets, "--records", str(place / f"{name} records")],
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def folders(name: str) -> list[Path]:
        return [place / name / "digits" / method / f"{method}-seed0" for method in ("bocl", "fixed", "sn")]

    def kept(name: str) -> bool:
        """Whether the records hold the journal of every run as it is."""
        kept = [place / f"{name} records" / "digits" / f"{path.parent.name}-seed-0.jsonl" for path in folders(name)]
        pairs = zip(folders(name), kept, strict=True)
        return all(record.is_file() and record.read_bytes() == (run / JOURNAL).read_bytes() for run, record in pairs)

    began = time.perf_counter()
    check(begin("whole").wait() == 0, "the study fails even if nobody disturbs it")
    seconds = time.perf_counter() - began
    wanted = outcome(folders("whole"))

    def kill(*moments: tuple[str, float]) -> Mapping[str, int]:
        for name in ("killed", "killed records"):
            shutil.rmtree(place / name, ignore_errors=True)
        deaths = 0
        for whom, after in moments:
            parent = begin("killed")
            time.sleep(after)
            deaths += _kill(whom, parent)
            _wait_for_all(parent)
        again = begin("killed")
        check(again.wait() == 0, f"started again, it ended with {again.returncode}")
        check(outcome(folders("killed")) == wanted, "it came to something else")
        check(kept("killed"), "its records are not those of its runs")
        return {"kills of studies": deaths}

    for number in range(30):
        whom = ("the parent", "a worker", "all")[number % 3]
        moments = [(whom, draw.uniform(0.2, 1) * seconds) for _ in range(1 + number % 2)]
        yield Case(", then ".join(f"{who} after {after:.2f} s" for who, after in moments), partial(kill, *moments))


def _kill(whom: str, parent: subprocess.Popen[bytes]) -> int:
    """Kill a study's parent, one of its workers, or all; return how many of them that were."""
    workers = _children(parent.pid)
    victims = {"the parent": [parent.pid], "a worker": workers[:1], "all": [parent.pid, *workers]}[whom]
    killed = 0
    for victim in victims:
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
            killed += parent.poll() is None or victim != parent.pid
    return killed


def _children(parent: int) -> list[int]:
    with suppress(OSError):
        return [int(word) for word in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    return []


def _wait_for_all(parent: subprocess.Popen[bytes]) -> None:
    """Wait until nobody of a study is left: a worker may still finish its record."""
    parent.wait()
    with suppress(ProcessLookupError):
        while True:
            os.killpg(parent.pid, 0)
            time.sleep(0.05)

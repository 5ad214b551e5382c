"""Do things to one folder in random order, and predict after each what must be there.

A sequence runs, kills, stops, fills the disk, picks, audits, loads, asks for what must be refused, and copies the
folder, until the run is finished and audited. The oracle is what runs that nobody disturbed came to. It knows every
record and every model in advance; only a kill leaves it a choice: a line that was written and not yet synced may be
there.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cases import Case, Group, check
from commands import audit, from_python, load_it, run_words, show, told
from forks import NOTHING, Ended, Mishap, in_a_fork
from kills import SETTINGS
from states import changes, history, outcome, snapshot

from bocl.experiment.config import Config
from bocl.experiment.grid import plan
from bocl.experiment.run import run
from bocl.records.events import Event, TaskDone
from bocl.records.journal import read
from bocl.records.run_log import JOURNAL
from bocl.records.summary import summarise

TASKS = 3
SEQUENCES = 40  # of each method
STEPS = 20  # before it is run to its end
ENDS = {"kill": (0, -9), "half": (0, -9), "SIGINT": (0, 130), "SIGTERM": (0, 143)}
Widths = tuple[int, ...]
Picks = tuple[tuple[int, Widths], ...]  # the picks made so far, each with the number of its task from 0


def groups() -> list[Group]:
    """Return all of it."""
    methods = ("bocl", "rcl", "fixed", "den", "gem")
    return [Group(name, partial(of_one_folder, name), few=2 * (name == "bocl")) for name in methods]


@dataclass(frozen=True)
class Future:
    """What a run comes to with certain picks, each made as soon as its task is finished.

    records   all of them, without times and sessions
    models    a hash of what the learner knew after so many records, where a task or a pick ends there
    outcome   a hash of the folder at the end
    """

    records: list[Any]
    models: dict[int, str]
    outcome: str


class Oracle:
    """Knows the future of every run, because it has run them all before."""

    def __init__(self, place: Path, method: str) -> None:
        self.place, self.method = place, method
        self._futures: dict[Picks, Future] = {}

    def future(self, picks: Picks) -> Future:
        """Return what a run with these picks comes to."""
        if picks not in self._futures:
            self._futures[picks] = self._run(picks)
        return self._futures[picks]

    def config(self) -> Config:
        """Return the settings of all of them."""
        return plan("digits", SETTINGS, methods=[self.method], device="cpu")[0][0]

    def _run(self, picks: Picks) -> Future:
        shutil.rmtree(self.place / "future", ignore_errors=True)
        folder = self.place / "future" / f"{self.method}-seed0"
        models = {}
        for task in range(TASKS):
            _until(task, partial(run, self.config(), folder, device="cpu"))
            models[len(history(folder))] = load_it(folder).found
            for _, widths in (made for made in picks if made[0] == task):
                ended = in_a_fork(_pick(folder, widths))
                check(ended.code == 0, f"a pick that nobody disturbs ended with {ended.code}: {ended.said}")
                models[len(history(folder))] = load_it(folder).found
        return Future(history(folder), models, outcome([folder]))


class _Stop(BaseException):
    """What stops a run between two tasks."""


def _until(task: int, go_on: Callable[..., object]) -> None:
    def stop(event: Event) -> None:
        if isinstance(event, TaskDone) and event.record.index == task:
            raise _Stop

    try:
        go_on(callback=stop)
    except _Stop:
        return


def _pick(folder: Path, widths: Widths) -> Callable[[], tuple[int, str]]:
    return partial(told, "pick", str(folder), "--widths", ",".join(map(str, widths)), "--device", "cpu")


class Sequence:
    """One folder, what is done to it, and what is known of it.

    picks   that were made
    known   how many of the future's records are in the journal; starts are not among them
    """

    def __init__(self, place: Path, oracle: Oracle, seed: int) -> None:
        self.place, self.oracle = place, oracle
        self.draw = random.Random(f"{oracle.method} {seed}")
        self.folder = place / f"{oracle.method}-seed0"
        self.picks: Picks = ()
        self.known = 0
        self.done: list[str] = []
        self.figures: Counter[str] = Counter()

    @property
    def future(self) -> Future:
        """What the run would come to from here."""
        return self.oracle.future(self.picks)

    def play(self) -> Mapping[str, int]:
        """Do a number of things, then run to the end."""
        shutil.rmtree(self.place, ignore_errors=True)
        steps = {
            self.finish_a_task: 3,
            self.kill_a_run: 4,
            self.stop_a_run: 3,
            self.fill_the_disk: 2,
            self.pick: 4,
            self.kill_a_pick: 2,
            self.be_refused: 2,
            self.look: 3,
            self.move: 1,
        }
        try:
            for _ in range(STEPS):
                (step,) = self.draw.choices(list(steps), list(steps.values()))
                step()
                self.compare()
            self.end()
        except Exception as error:
            raise AssertionError(f"{' → '.join(self.done)}: {type(error).__name__}: {error}") from error
        return {"sequences": 1, "steps": len(self.done), **self.figures}

    # What is done.

    def finish_a_task(self) -> None:
        """Run until the next task is finished, and stop there."""
        self.done.append("run to the end of a task")
        before, old = self._lines(), self._journal()
        task = self._last_task()["index"] + 1 if self._last_task() else 0
        go_on = partial(run, self.oracle.config(), self.folder, device="cpu")
        ended = in_a_fork(partial(from_python, partial(_until, task, go_on)))
        check(ended.code == 0, f"it ended with {ended.code}: {ended.said}")
        self._grown(ended, before, old)
        check(self._between_tasks(), "it stopped somewhere else")

    def kill_a_run(self) -> None:
        """Kill a run at one of its calls, or halfway through a write."""
        self._run(Mishap(self.draw.choice(("kill", "half")), self._some_call()), "runs killed")

    def stop_a_run(self) -> None:
        """Stop a run by a signal; what it writes just then is written to its end."""
        self._run(Mishap(self.draw.choice(("SIGINT", "SIGTERM")), self._some_call()), "runs stopped")

    def fill_the_disk(self) -> None:
        """Let a run meet a disk that fails."""
        self._run(Mishap(self.draw.choice(("full", "partly full", "read-only")), self._some_call()), "disks failed")

    def _some_call(self) -> int:
        return 1 + int(self.draw.expovariate(1 / 14))

    def _run(self, mishap: Mishap, counts: str) -> None:
        self.done.append(f"run, {mishap}")
        before, old = self._lines(), self._journal()
        ended = in_a_fork(partial(told, *run_words(self.oracle.method, SETTINGS, self.place)), mishap)
        allowed = ENDS.get(mishap.kind, (0, 1, 2))
        check(ended.code in allowed, f"it ended with {ended.code}: {ended.said}")
        self._grown(ended, before, old, mishap)
        if ended.code == 0:
            check(self.known == len(self.future.records), "it ended before all was done")
        else:
            self.figures[counts] += 1

    def _grown(self, ended: Ended, before: list[Any], old: bytes, mishap: Mishap = NOTHING) -> None:
        """Find out how far a session came: as far as it was promised, unless it could not take back its last line."""
        lines = self._lines()
        check(self._journal().startswith(old[: old.rfind(b"\n") + 1]), "a line of the journal was changed")
        added = lines[len(before) :]
        unsynced = len(added) - ended.promised
        may_stay = ended.killed or mishap.kind == "read-only"
        check(unsynced == 0 or (unsynced == 1 and may_stay), f"{ended.promised} lines promised, {len(added)} added")
        starts = [record["kind"] for record in added].count("start")
        check(starts == bool(added), f"a session added {len(added)} records, {starts} of them its start")
        lonely = len(added) == 1 and bool(before)
        failed = mishap.kind in ("full", "partly full", "read-only")
        check(not lonely or ended.killed or failed, "a session was recorded that added nothing")
        self.known += len(added) - starts

    def pick(self) -> None:
        """Pick another child, or the one it has, or one that was never trained; the oracle says which is refused."""
        self._pick_one(NOTHING)

    def kill_a_pick(self) -> None:
        """Kill a pick at one of its calls."""
        self._pick_one(Mishap("kill", self.draw.randint(1, 30)))

    def _pick_one(self, mishap: Mishap) -> None:
        task = self._last_task()
        trained = [tuple(trial["widths"]) for trial in task["trials"]] if task else []
        now = tuple(self._last_widths()) if task else ()
        widths = self.draw.choice([*sorted(set(trained))[:4], (99, 99)])
        self.done.append(f"pick {widths}, {mishap}" if mishap.at else f"pick {widths}")
        before, old, was = self._lines(), self._journal(), self._snapshot()
        ended = in_a_fork(_pick(self.folder, widths), mishap)
        if task is None or not self._between_tasks() or widths not in trained:
            check(ended.code == 2 or ended.killed, f"a pick that must be refused ended with {ended.code}: {ended.said}")
            self._unchanged(was)
            self.figures["refusals"] += 1
            return
        if widths == now:
            check(ended.code == 0, f"a pick of what it has ended with {ended.code}: {ended.said}")
            check(self._lines() == before, "a pick of what it has was recorded")
            return
        check(ended.code in ((0, -9) if mishap.at else (0,)), f"it ended with {ended.code}: {ended.said}")
        had = self.known
        self._grown(ended, before, old)
        check(ended.killed or self.known == had + 1, "the pick is not recorded")
        if self.known > had:
            self.picks = (*self.picks, (task["index"], widths))
        self.figures["picks killed" if ended.killed else "picks"] += 1

    def be_refused(self) -> None:
        """Ask for a run of other settings in this folder."""
        self.done.append("a run of other settings")
        was = self._snapshot()
        words = run_words(self.oracle.method, (*SETTINGS, "recipe.epochs=2"), self.place)
        if not self._lines():
            return
        ended = in_a_fork(partial(told, *words))
        check(ended.code == 2 and "recipe.epochs" in ended.said, f"it ended with {ended.code}: {ended.said}")
        self._unchanged(was)
        self.figures["refusals"] += 1

    def look(self) -> None:
        """Show, audit and load it."""
        self.done.append("show, audit, load")
        was = self._snapshot()
        begun, learnt = bool(self._lines()), bool(self._last_task())
        shown, audited, loaded = show(self.folder), audit(self.folder), load_it(self.folder)
        self._unchanged(was)
        check(shown.code == (0 if begun else 2), f"show: {shown}")
        check(audited.code == (0 if learnt else audited.code and 2), f"audit: {audited}")
        check(loaded.code == (0 if learnt else 2), f"load: {loaded}")
        if learnt:
            ends = max(end for end in self.future.models if end <= self.known)
            check(loaded.found == self.future.models[ends], "another model is loaded")
        self.figures["looks"] += 1

    def move(self) -> None:
        """Copy the folder, and go on with the copy."""
        self.done.append("copied")
        if self.folder.exists():
            shutil.copytree(self.folder, self.place / "copy")
            shutil.rmtree(self.folder)
            (self.place / "copy").rename(self.folder)

    def end(self) -> None:
        """Let the run end, and compare all of it."""
        self._run(NOTHING, "")
        self.compare()
        check(outcome([self.folder]) == self.future.outcome, "it came to something else")
        self.look()

    # What is known.

    def compare(self) -> None:
        """Compare the journal with what the oracle knows."""
        now = history(self.folder) if self._lines() else []
        check(now == self.future.records[: self.known], "the journal holds something else than the oracle says")

    def _journal(self) -> bytes:
        return (self.folder / JOURNAL).read_bytes() if (self.folder / JOURNAL).exists() else b""

    def _lines(self) -> list[Any]:
        return read(self.folder / JOURNAL) if (self.folder / JOURNAL).exists() else []

    def _snapshot(self) -> dict[str, Any]:
        return snapshot(self.place) if self.place.exists() else {}

    def _unchanged(self, was: dict[str, Any]) -> None:
        changed = changes(was, self._snapshot())
        check(not changed, f"it changed: {', '.join(changed)}")

    def _last_task(self) -> Any:
        tasks = [record for record in self.future.records[: self.known] if record["kind"] == "task"]
        return tasks[-1] if tasks else None

    def _last_widths(self) -> Widths:
        return summarise(self.folder).tasks[-1].widths

    def _between_tasks(self) -> bool:
        return bool(self.known) and self.future.records[self.known - 1]["kind"] in ("task", "pick")


def of_one_folder(method: str, place: Path) -> Iterator[Case]:
    """Yield sequences, each from a seed of its own."""
    oracle = Oracle(place, method)
    for seed in range(SEQUENCES):
        yield Case(f"sequence {seed} of {method}", Sequence(place / "sequence", oracle, seed).play)

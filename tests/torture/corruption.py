"""Damage every file of a run or a model in every way, and see that nothing answers wrongly, and no refusal changes it.

Of every damaged copy, each command either gives what the whole one gives, or refuses with exit code 1 or 2 and one line
that names a damaged file. One that can do without it may say so in such lines. None raises anything else, hangs, or
answers differently. A journal cut at a record is the journal of an earlier moment: it may be shown as such, and run to
the same end.

A command that only reads changes nothing: no byte, name, link, mode or time. Nor does one that refuses. Nobody touches
what a link leads to.
"""

from __future__ import annotations

import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from cases import Case, Group, check
from commands import Answer, audit, call, from_python, load_it, pareto, pick, report, run_again, run_words, show, trials
from damages import OUTSIDE, Damage, damages, files_of, remove
from states import Entry, all_it_learnt, changes, snapshot

from bocl.errors import FolderError, InputError, WorkError
from bocl.experiment.audit import audit as check_audit
from bocl.experiment.grid import plan, run_grid
from bocl.method_table import METHODS
from bocl.methods.saving import load, save
from bocl.records.events import Callback, Event, RoundStarted, TaskStarted
from bocl.records.journal import read
from bocl.records.run_log import JOURNAL
from bocl.records.summary import summarise

SETTINGS = (
    "stream.tasks=3",
    "network.arguments={inputs=64, hidden=[4, 3]}",
    "recipe.epochs=1",
    "recipe.batch_size=512",
    "search.kind=random",
    "search.trials=3",
    "search.round_size=1",
    "search.bounds=2",
    "gem.memories=4",
)
SECONDS = 60  # after which a command hangs
STORES = {"bocl": 250, **{name: 110 for name in METHODS if name != "bocl"}}  # damages of a finished run of each method
FEW = {"bocl": 16, "sn": 8, "gem": 8}
Command = Callable[[Path], Answer]


class Stopped(BaseException):
    """What stops a run inside its last task."""


class Hung(BaseException):
    """A command that does not end."""


def groups() -> list[Group]:
    """Return all of it: at least two thousand damages."""
    finished = [
        Group(f"finished, {name}", partial(of_runs, name, most), few=FEW.get(name, 0)) for name, most in STORES.items()
    ]
    models = [Group(f"model, {name}", partial(of_models, name, 60)) for name in ("bocl", "den", "gem", "pgn")]
    return [
        *finished,
        Group("stopped in a task", partial(of_runs, "bocl", 250, finish=stop_in_the_last_task), few=16),
        Group("picked", partial(of_runs, "bocl", 200, finish=pick_after_all), few=8),
        replace(models[0], few=8),
        *models[1:],
        Group("every length", every_length),
    ]


# The judge.


class Judge:
    """Damages copies of a folder, one after another, and judges what the commands make of them.

    readers  commands that never change anything
    writers  commands that change the folder, unless they refuse
    """

    def __init__(self, place: Path, whole: Path, readers: dict[str, Command], writers: dict[str, Command]) -> None:
        self.place, self.whole = place, whole
        self.readers, self.writers = readers, writers
        self.wanted: dict[str, Answer] = {}
        for name, command in {**readers, **writers}.items():
            self.wanted[name] = command(self.copy())
            said = self.wanted[name].said
            check(not said or self.wanted[name].code == 2, f"{name} of what nobody damaged says {said!r}")

    def copy(self) -> Path:
        """Put a fresh copy in a place that is the same for all, so that what is said can be compared."""
        case = self.place / "case"
        remove(case)
        (case / OUTSIDE).mkdir(parents=True)
        (case / OUTSIDE / "model.json").write_text("of somebody else")
        return shutil.copytree(self.whole, case / self.whole.name)

    def judge(self, damage: Damage) -> Mapping[str, int]:
        """Do one damage and let every command see it."""
        folder = self.copy()
        damage.do(folder)
        figures: Counter[str] = Counter()
        faults: list[str] = []
        earlier = self._is_cut(folder)
        for name, command in {**self.readers, **self.writers}.items():
            if name in self.writers:
                damage.do(folder := self.copy())
            before = snapshot(folder.parent)
            try:
                with _watched():
                    answer = command(folder)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # whatever a command raises but on purpose is a traceback to its user
                faults.append(f"{name}: {type(error).__name__}: {error}")
                continue
            fault = self._fault(name, answer, damage, folder, earlier)
            fault = fault or self._changed(name, answer, before, snapshot(folder.parent), folder.name)
            faults += [f"{name}: {fault}"] if fault else []
            figures[_outcome(answer, self.wanted[name], damage)] += 1
        check(not faults, "; ".join(faults))
        return {"damages": 1, "commands": figures.total(), **figures}

    def _fault(self, name: str, answer: Answer, damage: Damage, folder: Path, earlier: bool) -> str:
        """Return what is wrong with an answer, or nothing."""
        wanted = self.wanted[name]
        lines = answer.said.splitlines()
        may_be_named = [part for place in damage.names for part in _named(place)]
        if damage.forged or earlier:
            may_be_named.append(str(folder))
        if answer.code not in (0, 1, 2):
            return f"exit code {answer.code}"
        if any(not line.startswith("bocl: ") for line in lines) or (answer.code and len(lines) != 1):
            return f"not one line: {answer.said!r}"
        if answer != wanted and not all(any(part in line for part in may_be_named) for line in lines):
            return f"names no damaged file: {answer.said!r}"
        if answer.code:
            return ""
        if damage.forged:
            return "not found" if damage.shows and name == "audit" else ""
        if answer.found == wanted.found:
            return ""
        known = name not in ("show", "audit") or _is_earlier(answer.found, wanted.found)
        if earlier and known and name not in ("load", "run"):
            return ""
        return f"another answer: {str(answer.found)[:300]}"

    def _is_cut(self, folder: Path) -> bool:
        """Whether the journal is that of an earlier moment."""
        try:
            now, then = read(folder / JOURNAL), read(self.whole / JOURNAL)
        except FolderError:
            return False
        return len(now) < len(then) and then[: len(now)] == now

    def _changed(
        self, name: str, answer: Answer, before: dict[str, Entry], after: dict[str, Entry], folder: str
    ) -> str:
        """Return what a command changed though it must not, or nothing."""
        changed = changes(before, after)
        if name in self.writers and answer.code == 0:
            changed = [change for change in changed if not change.startswith(folder)]
        return f"exit code {answer.code}, and it changed: {', '.join(changed)}" if changed else ""


def _outcome(answer: Answer, wanted: Answer, damage: Damage) -> str:
    if answer.code:
        return "refused"
    return "the same" if answer.found == wanted.found else "as forged" if damage.forged else "an earlier moment"


def _is_earlier(found: Any, wanted: Any) -> bool:
    """Whether what is found is what a journal of fewer records says: fewer tasks, or fewer records audited."""
    if isinstance(found, dict):
        return not found["finished"] and found["tasks"] == wanted["tasks"][: len(found["tasks"])]
    return str(found).split(" records, ")[0].rpartition(" ")[0] == str(wanted).split(" records, ")[0].rpartition(" ")[0]


def _named(place: str) -> list[str]:
    """Return how a refusal may name a file: by its place or its folder; a journal, also by what it no longer fits."""
    if place == JOURNAL:
        return [place, "checkpoints/", "canaries/", "rounds/"]
    return [place, Path(place).parent.as_posix()] if "/" in place else [place]


@contextmanager
def _watched() -> Iterator[None]:
    """Raise Hung in what does not end."""

    def hung(_number: int, _frame: FrameType | None) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, hung)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# Runs, in every state.


def of_runs(method: str, most: int, place: Path, *, finish: Callable[[Path], None] | None = None) -> Iterator[Case]:
    """Damage a run of a method; ``finish`` brings it to another state than that of a finished one."""
    whole, donor = (place / "runs" / f"{method}-seed{seed}" for seed in (0, 1))
    (finish or _run)(whole)
    _run(donor)
    readers = {"show": show, "audit": audit, "load": load_it, "pareto": pareto, "report": report, "trials": trials}
    tried = [trial for trial in summarise(whole).tasks[-1].trials if not trial.failed]
    others = [trial.widths for trial in tried if not trial.failed and trial.widths != summarise(whole).tasks[-1].widths]
    writers = {
        "pick": partial(pick, widths=others[0] if others else None),
        "run": partial(run_again, settings=SETTINGS),
    }
    judge = Judge(place, whole, readers, writers)
    yield from _sampled(judge, donor, most)


def _sampled(judge: Judge, donor: Path, most: int) -> Iterator[Case]:
    draw = random.Random(str(judge.whole.name))
    every = list(damages(judge.whole, donor, draw))
    for damage in draw.sample(every, min(most, len(every))):
        yield Case(f"{damage.kind}: {damage.what}", partial(judge.judge, damage))


def _run(folder: Path) -> None:
    method, _, seed = folder.name.partition("-seed")
    code, _, said = call(*run_words(method, SETTINGS, folder.parent, seed))
    check(code == 0, said)


def pick_after_all(folder: Path) -> None:
    """Run to the end, then pick another child for the last task."""
    _run(folder)
    last = summarise(folder).tasks[-1]
    widths = next(trial.widths for trial in last.trials if not trial.failed and trial.widths != last.widths)
    check(pick(folder, widths).code == 0, "the pick fails")


def stop_in_the_last_task(folder: Path) -> None:
    """Run until the third round of the third task is about to begin."""
    grid = plan("digits", SETTINGS, out=str(folder.parent), device="cpu")
    with suppress(Stopped):
        run_grid(grid, device="cpu", watch=lambda _config, _folder: nullcontext(_stop_in_the_last_task()))
    kinds = [record["kind"] for record in read(folder / JOURNAL)]
    check(kinds.count("task") == 2 and kinds[-2:] == ["round", "round"], f"it was not stopped: {kinds}")


def _stop_in_the_last_task() -> Callback:
    task = rounds = 0

    def callback(event: Event) -> None:
        nonlocal task, rounds
        if isinstance(event, TaskStarted):
            task, rounds = event.index, 0
        rounds += isinstance(event, RoundStarted)
        if (task, rounds) == (2, 3):
            raise Stopped

    return callback


# Models.


def of_models(method: str, most: int, place: Path) -> Iterator[Case]:
    """Damage a model saved from the library; load it, and save another one over it."""
    whole, donor = place / "models" / "one", place / "models" / "other"
    learners = []
    for seed, folder in enumerate((whole, donor)):
        run = place / "runs" / f"{method}-seed{seed}"
        _run(run)
        learners.append(load(run, device="cpu"))
        save(learners[-1], folder)

    def save_over(folder: Path) -> Answer:
        code, said = from_python(lambda: save(learners[1], folder))
        return Answer(code, said, None if code else all_it_learnt(load(folder, device="cpu")))

    yield from _sampled(Judge(place, whole, {"load": load_it}, {"save": save_over}), donor, most)


# Every length.


def every_length(place: Path) -> Iterator[Case]:
    """Cut every file of a run at every length, for the one command that reads it."""
    run = place / "runs" / "sn-seed0"
    _run(run)
    for name in files_of(run):
        yield Case(f"{name} at every length", partial(_cut, run, name))


def _cut(run: Path, place: str) -> Mapping[str, int]:
    wanted = summarise(run)
    data = (run / place).read_bytes()
    wrong = []
    try:
        for length in range(len(data)):
            (run / place).write_bytes(data[:length])
            try:
                if place == JOURNAL:
                    found = summarise(run)
                    whole = found.torn_bytes == length - data.rfind(b"\n", 0, length) - 1
                    if not (whole and found.tasks == replace(wanted, folder=run).tasks[: len(found.tasks)]):
                        wrong.append(f"cut to {length}: shown as {found}")
                    continue
                if "canaries" in place:
                    check_audit(run, device="cpu", with_accuracy=False)
                else:
                    load(run, device="cpu")
                wrong.append(f"cut to {length}: not found")
            except (InputError, WorkError) as error:
                if not any(part in str(error) for part in _named(place)):
                    wrong.append(f"cut to {length}: {error}")
    finally:
        (run / place).write_bytes(data)
    check(not wrong, "; ".join(wrong[:5]))
    return {"cuts": len(data)}

"""Damage every file of a run in every way, and see that nothing answers wrongly.

python tests/torture/corruption.py             all of it, a few thousand damages
python tests/torture/corruption.py --short     a sample, for the test suite

Of every damaged copy, ``bocl show``, ``audit``, ``load`` and ``run`` either give what the whole run gives, or refuse
with exit code 1 or 2 and one line that names a damaged file. None raises anything else, hangs, answers
differently, or touches what lies outside the run. A journal cut at a record is the journal of an earlier moment: it
may be shown as such, and run to the same end.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from damages import Damage, damages, files_of, remove
from kills import timeless
from typer.main import get_command

import bocl.cli.main as command_line
from bocl.errors import InputError, WorkError
from bocl.experiment.audit import audit as check_audit
from bocl.experiment.grid import plan, run_grid
from bocl.methods.saving import load
from bocl.records.events import Callback, Event, RoundStarted, TaskStarted, ignore_events
from bocl.records.journal import read
from bocl.records.run_log import JOURNAL
from bocl.records.summary import summarise

SETTINGS = (
    "stream.tasks=3",
    "network.arguments={inputs=64, hidden=[4, 3]}",
    "recipe.epochs=1",
    "recipe.batch_size=512",
    "search.kind=random",
    "search.trials=2",
    "search.warm_points=2",
    "search.bounds=2",
    "gem.memories=4",
)
SECONDS = 60  # after which a command hangs
MOST, FEW = 2000, 60  # damages of those generated that are done, and in the short version


class Stopped(BaseException):
    """What stops a run inside its last task."""


class Hung(BaseException):
    """A command that does not end."""


@dataclass(frozen=True)
class Answer:
    """What a command did: its exit code, what it said, and what it found, where it found something."""

    code: int
    said: str
    found: Any = None


def words_of(method: str, seed: int = 0) -> list[str]:
    """Return the arguments of ``bocl run``, without its folder."""
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    return ["run", "digits", *settings, "--methods", method, "--seeds", str(seed), "--device", "cpu", "--json"]


def call(*words: str) -> tuple[int, str, str]:
    """Call the command line in this process: exit code, standard output, standard error."""
    out, err = io.StringIO(), io.StringIO()
    before = sys.argv, list(sys.path), os._exit
    sys.argv = ["bocl", *words]
    os._exit = _escaped
    try:
        with redirect_stdout(out), redirect_stderr(err):
            command_line.main()
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue(), err.getvalue()
    finally:
        sys.argv, sys.path[:], os._exit = before
    raise AssertionError("the command line did not exit")


def _escaped(code: int) -> None:
    raise AssertionError(f"an OSError reached the end of the command line: {sys.exception()!r}")


@contextmanager
def watched() -> Iterator[None]:
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


def show(folder: Path) -> Answer:
    """Call ``bocl show``, as a table and as JSON."""
    table = call("show", str(folder))
    code, out, err = call("show", str(folder), "--json")
    assert (code, err) == (table[0], table[2]), "the table and the JSON disagree"
    return Answer(code, err, timeless(json.loads(out)[0]) if code == 0 else None)


def audit(folder: Path) -> Answer:
    """Call ``bocl audit``."""
    code, out, err = call("audit", str(folder), "--device", "cpu")
    return Answer(code, err, out if code == 0 else None)


def load_it(folder: Path) -> Answer:
    """Call ``bocl.load``, and hash all it has learnt."""
    try:
        state = load(folder, device="cpu").state()
    except (InputError, WorkError) as error:
        return Answer(2, f"bocl: {error}\n")
    digest = hashlib.sha256(json.dumps(state.facts, sort_keys=True).encode())
    for name, tensor in sorted(state.tensors.items()):
        digest.update(name.encode() + tensor.numpy().tobytes())
    return Answer(0, "", digest.hexdigest())


def run_again(folder: Path) -> Answer:
    """Call ``bocl run`` as the run was called; what is found is its results, and the records of its tasks."""
    method, _, seed = folder.name.partition("-seed")
    code, out, err = call(*words_of(method, int(seed)), "--out", str(folder.parent))
    last = "".join(err.splitlines(keepends=True)[-1:])
    if code:
        return Answer(code, last)
    records = [timeless(record) for record in read(folder / JOURNAL) if record["kind"] in ("task", "round")]
    return Answer(0, "", (timeless(json.loads(out)[0]), records))


COMMANDS = {"show": show, "audit": audit, "load": load_it, "run": run_again}


class Judge:
    """Damages copies of runs, one after another, and judges what the commands make of them.

    counts    damages by kind
    outcomes  answers by command and what they were
    wrong     what must not be
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self.counts: Counter[str] = Counter()
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.wrong: list[str] = []

    def copy(self, run: Path) -> Path:
        """Put a fresh copy of a run in a place that is the same for all, so that what is said can be compared."""
        remove(self.place / "case")
        return shutil.copytree(run, self.place / "case" / run.name)

    def learn(self, run: Path) -> dict[str, Answer]:
        """Return what the commands make of a run that nobody damaged."""
        folder = self.copy(run)
        wanted = {name: command(folder) for name, command in COMMANDS.items()}
        assert all(answer.code == 0 and not answer.said for answer in wanted.values()), wanted
        return wanted

    def judge(self, run: Path, damage: Damage, wanted: dict[str, Answer]) -> None:
        """Do one damage and let every command see it."""
        folder = self.copy(run)
        damage.do(folder)
        self.counts[damage.kind] += 1
        for name, command in COMMANDS.items():
            try:
                with watched():
                    answer = command(folder)
                fault = self.fault(name, answer, wanted[name], damage, folder)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # whatever a command raises but on purpose is a traceback to its user
                answer, fault = None, f"{type(error).__name__}: {error}"
            if fault:
                self.wrong.append(f"{run.parent.name}: {damage.kind}: {damage.what}: {name}: {fault}")
            self.outcomes[name, _outcome(answer, wanted[name], damage) if answer and not fault else "wrong"] += 1

    def fault(self, name: str, answer: Answer, wanted: Answer, damage: Damage, folder: Path) -> str:
        """Return what is wrong with an answer, or nothing."""
        lines = answer.said.splitlines()
        if answer.code:
            if answer.code not in (1, 2):
                return f"exit code {answer.code}"
            if len(lines) != 1 or not lines[0].startswith("bocl: "):
                return f"not one line: {answer.said!r}"
            wanted_names = (
                [str(folder)] if damage.forged else [part for place in damage.names for part in _named(place)]
            )
            return "" if any(part in lines[0] for part in wanted_names) else f"names no damaged file: {answer.said!r}"
        if lines and not (JOURNAL in damage.names and len(lines) == 1 and "its last record is unfinished" in lines[0]):
            return f"said {answer.said!r}"
        if damage.forged:
            return "not found" if damage.shows and name == "audit" else ""
        earlier = JOURNAL in damage.names and name in ("show", "audit")  # what it was one record ago
        if answer.found == wanted.found or (earlier and _is_earlier(answer.found, wanted.found)):
            return ""
        return f"another answer: {str(answer.found)[:300]}"


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


# The runs.


def make_runs(place: Path) -> dict[str, Path]:
    """Make finished runs of three methods, one stopped inside its last task, and a donor: {name: folder}."""
    made = {}
    for name, method, seed in (
        *(("bocl", "bocl", 0), ("sn", "sn", 0), ("gem", "gem", 0)),
        *(("stopped", "bocl", 0), ("donor", "bocl", 1)),
    ):
        grid = plan("digits", SETTINGS, methods=[method], seeds=[seed], out=str(place / name), device="cpu")
        callback = stop_in_the_last_task() if name == "stopped" else ignore_events
        with suppress(Stopped):
            run_grid(grid, device="cpu", watch=lambda _config, _folder, callback=callback: nullcontext(callback))
        made[name] = grid[0][1]
    return made


def stop_in_the_last_task() -> Callback:
    """Return a listener that stops a run before the third round of its third task."""
    heard: list[Event] = []

    def callback(event: Event) -> None:
        if isinstance(event, TaskStarted):
            heard.clear()
        heard.append(event)
        rounds = sum(isinstance(event, RoundStarted) for event in heard)
        if rounds == 3 and isinstance(heard[0], TaskStarted) and heard[0].index == 2:
            raise Stopped

    return callback


def truncate_at_every_length(run: Path, judge: Judge) -> int:
    """Cut every file of a run at every length, for the one command that reads it; return how many cuts that were."""
    wanted = summarise(run)
    cuts = 0
    for place in files_of(run):
        folder = judge.copy(run)
        wanted_here = replace(wanted, folder=folder)
        data = (folder / place).read_bytes()
        for length in range(len(data)):
            (folder / place).write_bytes(data[:length])
            cuts += 1
            try:
                if place == JOURNAL:
                    found = summarise(folder)
                    whole = found.torn_bytes == length - data.rfind(b"\n", 0, length) - 1
                    if not (whole and found.tasks == wanted_here.tasks[: len(found.tasks)]):
                        judge.wrong.append(f"{place} cut to {length}: shown as {found}")
                    continue
                if "canaries" in place:
                    check_audit(folder, device="cpu", with_accuracy=False)
                else:
                    load(folder, device="cpu")
                judge.wrong.append(f"{place} cut to {length}: not found")
            except (InputError, WorkError) as error:
                if not any(part in str(error) for part in _named(place)):
                    judge.wrong.append(f"{place} cut to {length}: {error}")
    return cuts


def main(short: bool) -> int:
    """Damage, judge, and print the figures."""
    torch.set_num_threads(1)
    command_line.app = get_command(command_line.app)  # built once, not for every call
    draw = random.Random(0)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        judge = Judge(Path(place))
        runs = make_runs(Path(place) / "runs")
        donor = runs.pop("donor")
        wanted = {name: judge.learn(run) for name, run in runs.items()}
        assert wanted["stopped"]["run"] == wanted["bocl"]["run"], "the stopped run ends as the other"
        cases = [(name, damage) for name, run in runs.items() for damage in damages(run, donor, draw)]
        for name, damage in draw.sample(cases, FEW if short else MOST):
            judge.judge(runs[name], damage, wanted[name])
        cuts = 0 if short else truncate_at_every_length(runs["sn"], judge)
    print(f"{judge.counts.total()} damages of {len(cases)}, and {cuts} more cuts: every file of a run at every length")
    for kind, count in judge.counts.most_common():
        print(f"  {count:5} {kind}")
    for name in COMMANDS:
        print(f"  {name}:", ", ".join(f"{n} {what}" for (of, what), n in judge.outcomes.most_common() if of == name))
    print(f"{len(judge.wrong)} wrong", *judge.wrong, sep="\n")
    print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr)
    return 1 if judge.wrong else 0


if __name__ == "__main__":
    sys.exit(main(short="--short" in sys.argv[1:]))

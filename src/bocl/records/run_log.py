"""A run's journal as typed records: every field is checked, and that the records can have come in this order.

    start           a session began: settings, versions, machine, data, trials of other runs
    out-of-memory   a round is tried again with fewer children at once
    round           children were trained; their file is there
    task            a task is finished; its checkpoint is there
    pick            another child took the place of the one kept for the last finished task; its checkpoint is there

The chain of hashes does not make these checks needless: whoever can write the file can write hashes too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from bocl.checks import Natural, PositiveInt
from bocl.errors import DamagedError, InputError
from bocl.records.earlier import upgrade
from bocl.records.files import read_stored
from bocl.records.identity import lasting_settings
from bocl.records.journal import FORMAT, READABLE
from bocl.records.record import GivenTask, PickRecord, Proof, RoundRecord, Sha256, StoredFile, TaskRecord
from bocl.settings import parse_value
from bocl.widths import Widths

JOURNAL = "journal.jsonl"
LAST = "last"  # an empty file in the last checkpoint: once it is gone, a later task was finished


def checkpoint_place(task: int, pick: int = 0) -> str:
    """Return the place of the learner after a task, or after a pick for it, in the run's folder."""
    return f"checkpoints/{_task_name(task, pick)}"


def round_place(task: int, number: int) -> str:
    """Return the place of a round's file."""
    return f"rounds/task-{task + 1:02d}/round-{number:03d}.safetensors"


def canaries_place(task: int, pick: int = 0) -> str:
    """Return the place of a task's canaries."""
    return f"canaries/{_task_name(task, pick)}.safetensors"


def _task_name(task: int, pick: int) -> str:
    # A pick has places of its own: until its record is written, the files before it count.
    return f"task-{task + 1:02d}" + (f"-pick-{pick}" if pick else "")


@dataclass(frozen=True)
class Start:
    """A session: what it ran, and on what.

    config         all settings, as JSON values
    digest         of the settings
    groups         names of the hidden groups, in the order of widths
    versions       of bocl, its commit, Python and the libraries
    data           fingerprint of the data
    machine        device, its name, system, threads
    node           name of the host, for people; "" in early records
    shares_device  how many runs shared it; if more than one, times are not the run's own
    time           when it began, for people
    prior_trials   sha256 of the file its searches start from; "" without one, and in early records
    headline       whether its study lets it stand for its method; None in records that do not say
    given          the user's own tasks, where the stream is made of such; later sessions may add to them
    base           sha256 of the pretrained weights that tasks grow from; "" without such, and in early records
    base_stored    how many parameters these are
    """

    format: int
    config: dict[str, Any]
    digest: str
    groups: tuple[str, ...]
    versions: dict[str, str]
    data: str
    machine: dict[str, Any]
    shares_device: int
    time: str
    prior_trials: Sha256 | Literal[""] = ""
    headline: bool | None = None
    given: tuple[GivenTask, ...] = ()
    base: Sha256 | Literal[""] = ""
    base_stored: Natural = 0
    node: str = ""

    @property
    def tasks(self) -> int:
        """How many tasks there are to learn, as far as the session knew."""
        return int(self.config["stream"]["tasks"] or len(self.given))


@dataclass(frozen=True)
class _Halving:
    """A note that memory ran out."""

    task: int
    round: int
    children_at_once: PositiveInt


@dataclass
class RunLog:
    """What a journal says, one record after another.

    starts     every session
    tasks      every finished task, as the last pick left it
    proofs     of every finished task
    learnt_in  the session in which each task was finished, or last picked for
    rounds     of every task, in order
    halvings   (task, round) → children at once, after memory ran out
    picks      task → how often another child was picked for it
    lines      of the journal, by now
    prior_trials  sha256 of the file that searches start from; "" where none is recorded
    """

    path: Path
    starts: list[Start] = field(default_factory=list)
    tasks: list[TaskRecord] = field(default_factory=list)
    proofs: list[Proof] = field(default_factory=list)
    learnt_in: list[Start] = field(default_factory=list)
    rounds: dict[int, list[RoundRecord]] = field(default_factory=dict)
    halvings: dict[tuple[int, int], int] = field(default_factory=dict)
    picks: dict[int, int] = field(default_factory=dict)
    lines: int = 0
    prior_trials: str = ""
    _settings: dict[str, Any] = field(default_factory=dict, repr=False)  # that all sessions share

    @staticmethod
    def of(records: Iterable[Mapping[str, Any]], path: Path) -> RunLog:
        """Read records in order; refuse the first that cannot come there."""
        log = RunLog(path)
        for record in records:
            log.take(record)
        return log

    @property
    def checkpoint(self) -> str:
        """The place of the learner after the last finished task, in the run's folder."""
        return self.proofs[-1].checkpoint.file.removesuffix("/model.json")

    @property
    def begun(self) -> int:
        """How many tasks are finished, or have a round that later sessions must follow."""
        return len(self.tasks) + (len(self.tasks) in self.rounds)

    @property
    def early(self) -> bool:
        """Whether the last task was finished by an earlier version, whose last checkpoint is the only one."""
        return self.learnt_in[-1].format < 4

    @property
    def checkpoints(self) -> list[StoredFile]:
        """The model.json of every checkpoint that makes the learner, from a whole one on."""
        whole = max((task for task, proof in enumerate(self.proofs) if not proof.partial), default=0)
        return [proof.checkpoint for proof in self.proofs[whole:]]

    @property
    def files(self) -> list[StoredFile]:
        """Every file that records name and that is still needed; a model.json stands for its checkpoint."""
        done = len(self.tasks)
        rounds = [entry.weights for task in (done - 1, done) for entry in self.rounds.get(task, [])]
        return [*(proof.canaries for proof in self.proofs), *self.checkpoints, *rounds]

    def take(self, record: Mapping[str, Any]) -> None:
        """Take in the next record, or raise DamagedError naming its line and what is wrong with it."""
        content = upgrade(record)
        content.pop("kind", None)
        kind = record.get("kind")
        try:
            match kind:
                case "start":
                    self._start(content)
                case _ if not self.starts:
                    raise InputError("the first record must be a start")
                case "round":
                    self._round(parse_value(RoundRecord, content, "round"))
                case "task":
                    proof = parse_value(Proof, content.pop("proof", None), "task.proof")
                    self._task(parse_value(TaskRecord, content, "task"), proof)
                case "pick":
                    proof = parse_value(Proof, content.pop("proof", None), "pick.proof")
                    self._pick(parse_value(PickRecord, content, "pick"), proof)
                case "out-of-memory":
                    self._halving(parse_value(_Halving, content, "out-of-memory"))
                case _:
                    raise InputError(f"its kind is {kind!r}; known are start, round, task, pick and out-of-memory")
        except InputError as error:
            raise DamagedError(
                f"{self.path}, line {self.lines + 1}: not a record of a run: {error}; "
                "restore the file from a copy, or start again in another folder"
            ) from error
        self.lines += 1

    def _start(self, content: dict[str, Any]) -> None:
        start = read_start(content)
        new, known = lasting_settings(start.config), self._settings
        same = all(new[name] == known[name] for name in new.keys() & known.keys())  # a later version may have more
        _require(same, "the sessions have different settings")
        known.update(new)
        first, last = (self.starts[0], self.starts[-1]) if self.starts else (start, start)
        if start.given or last.given:
            before, now = ([(task.name, task.sha256) for task in each.given[: self.begun]] for each in (last, start))
            _require(before == now, "the sessions ran on different tasks")
        else:
            _require(start.data == first.data, "the sessions ran on different data")
        _require(start.groups == first.groups, "the sessions have different networks")
        _require(
            "" in (start.prior_trials, self.prior_trials) or start.prior_trials == self.prior_trials,
            "the sessions started from different trials of other runs",
        )
        self.prior_trials = self.prior_trials or start.prior_trials
        self.starts.append(start)

    def _round(self, entry: RoundRecord) -> None:
        done = self.rounds.setdefault(entry.task, [])
        _require(entry.task == len(self.tasks), f"a round of task {entry.task + 1}, not of task {len(self.tasks) + 1}")
        _require(entry.number == len(done) + 1, f"round {entry.number} of its task, not round {len(done) + 1}")
        same = len(entry.widths) == len(entry.seeds) == len(entry.fits)
        same = same and len(entry.reads) in (0, len(entry.widths))
        _require(same, "its widths, seeds, fits and reads differ in number")
        for reads in entry.reads:
            self._check_reads(reads, entry.task)
        for widths in entry.widths:
            self._check_widths(widths)
        for fit in entry.fits:
            failed = math.isnan(fit.accuracy) and not fit.stopped
            _require(failed == bool(fit.failure), "a child has either an accuracy or a reason why it failed")
        _check_file(entry.weights, round_place(entry.task, entry.number))
        done.append(entry)

    def _task(self, entry: TaskRecord, proof: Proof) -> None:
        index = len(self.tasks)
        _require(entry.index == index, f"it finishes task {entry.index + 1}, not task {index + 1}")
        wanted = self.starts[-1].tasks
        _require(index < wanted, f"it finishes task {index + 1} of {wanted}")
        self._check_sizes(entry, index)
        for number, _ in entry.bests:
            _require(0 <= number < len(entry.trials), f"trial {number} is among the best of {len(entry.trials)}")
        bounds = [entry.bounds] if entry.bounds else []
        for widths in (entry.widths, *bounds, *(trial.widths for trial in entry.trials), *entry.units.values()):
            self._check_widths(widths)
        self._check_reads(entry.reads_tasks, index)
        _check_proof(proof, index)
        _require(index > 0 or not proof.partial, "the first task's checkpoint has no other to add to")
        self.tasks.append(entry)
        self.proofs.append(proof)
        self.learnt_in.append(self.starts[-1])

    def _pick(self, entry: PickRecord, proof: Proof) -> None:
        index, number = len(self.tasks) - 1, self.picks.get(entry.task, 0) + 1
        _require(index >= 0, "it picks for a task, and none is finished")
        _require(entry.task == index, f"it picks for task {entry.task + 1}, and task {index + 1} is the last finished")
        _require(index + 1 not in self.rounds, f"it picks for task {index + 1}, and task {index + 2} has begun")
        _require(entry.number == number, f"pick {entry.number} of its task, not pick {number}")
        trained = [trial.widths for trial in self.tasks[-1].trials if not trial.failed]
        _require(entry.widths in trained, f"no child of task {index + 1} has the widths {entry.widths}")
        self._check_sizes(entry, index)
        self._check_reads(entry.reads or (), index)
        _check_proof(proof, index, number)
        _require(proof.partial == self.proofs[-1].partial, "it adds to another checkpoint than the one it replaces")
        changed = {name: value for name, value in vars(entry).items() if name not in ("task", "number")}
        self.tasks[-1] = replace(self.tasks[-1], **changed)
        self.proofs[-1] = proof
        self.learnt_in[-1] = self.starts[-1]
        self.picks[index] = number

    def _halving(self, entry: _Halving) -> None:
        at = (len(self.tasks), len(self.rounds.get(len(self.tasks), [])) + 1)
        _require(
            (entry.task, entry.round) == at,
            f"it names round {entry.round} of task {entry.task + 1}, not round {at[1]} of task {at[0] + 1}",
        )
        self.halvings[at] = entry.children_at_once

    def _check_sizes(self, entry: TaskRecord | PickRecord, index: int) -> None:
        before = self.tasks[index - 1].stored if index else self.starts[0].base_stored
        added = sum(entry.parameters.values())
        _require(entry.stored == before + added, f"{entry.stored} parameters are stored, not {before} + {added}")
        for row in (entry.row, entry.validation_row):
            _require(len(row) == index + 1, f"a row has {len(row)} accuracies, not {index + 1}")
        if entry.guesses is not None:
            guessed = entry.guesses.tasks
            _require(guessed <= index + 1, f"samples of {guessed} tasks are guessed, and there are {index + 1}")
        for layer, gates in entry.attention.items():
            _require(len(gates) == index + 1, f"{layer} has {len(gates)} mean gates, not {index + 1}")

    def _check_reads(self, reads: tuple[int, ...], task: int) -> None:
        fits = list(reads) == sorted(set(reads)) and all(0 <= other < task for other in reads)
        _require(fits, f"it reads {reads}, which are not numbers of earlier tasks in order")
        if self.starts[0].config.get("growth", {}).get("form") == "low-rank":
            return  # the factors of a task are read without those that it reads
        there, covered = set(reads), set[int]()
        for other in reversed(reads):
            if other not in covered:  # what is covered reads nothing that is not
                needed = self.tasks[other].reads_tasks
                _require(there.issuperset(needed), f"it reads {reads}: task {other + 1} without all that it reads")
                covered.update(needed)

    def _check_widths(self, widths: Widths) -> None:
        groups = len(self.starts[0].groups)
        _require(len(widths) == groups and min(widths) >= 0, f"widths {widths} do not fit {groups} groups")


def read_start(content: Mapping[str, Any]) -> Start:
    """Return the record of a session, in its present form, checked for itself."""
    if content.get("format") not in READABLE:
        raise InputError(f"it has format {content.get('format')!r}; this version of bocl reads format {FORMAT}")
    start: Start = parse_value(Start, content, "start")
    parse_value(str, start.config.get("method"), "start.config.method")
    parse_value(int, start.config.get("seed"), "start.config.seed")
    stream = parse_value(dict[str, Any], start.config.get("stream"), "start.config.stream")
    parse_value(PositiveInt | None if start.given else PositiveInt, stream.get("tasks"), "start.config.stream.tasks")
    search = parse_value(dict[str, Any], start.config.get("search", {}), "start.config.search")
    parse_value(float, search.get("memory_gb", 1.0), "start.config.search.memory_gb")
    return start


def check_checkpoint(folder: Path, log: RunLog) -> None:
    """Refuse a folder without the learner of its last finished task: it does not belong to the journal."""
    if not log.tasks:
        return
    wanted = log.checkpoint if not (folder / log.checkpoint).is_dir() or log.early else f"{log.checkpoint}/{LAST}"
    if not (folder / wanted).exists():
        raise DamagedError(
            f"{folder / wanted} is missing, but {log.path} ends with task {len(log.tasks)}: one of them was "
            "cut short or moved; restore the folder from a copy, or start again in another"
        )
    read_stored(folder, log.proofs[-1].checkpoint)


def _check_proof(proof: Proof, index: int, pick: int = 0) -> None:
    _check_file(proof.canaries, canaries_place(index, pick))
    _check_file(proof.checkpoint, f"{checkpoint_place(index, pick)}/model.json")


def _check_file(stored: StoredFile, place: str) -> None:
    _require(stored.file == place, f"it names the file {stored.file!r}, not {place}")


def _require(fact: bool, otherwise: str) -> None:
    if not fact:
        raise InputError(otherwise)

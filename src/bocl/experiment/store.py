"""A run's folder: all a run writes.

    journal.jsonl                            what happened, one record per line (records/run_log.py)
    rounds/task-NN/round-NNN.safetensors     children of the task under way and of the last finished one
    canaries/task-NN.safetensors             a few inputs and logits of every finished task
    checkpoints/task-NN/                     what every finished task added to the learner; the last has a file `last`
    …/task-NN-pick-N                         the same after a pick, in place of the one before

A method that changes earlier tasks has one checkpoint, of the whole learner after the last finished task.

A round, task or pick counts once its record is in the journal. Its files are written before the record, and files
it makes stale are removed after it, so the journal never names a file that is missing.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torch import Tensor

from bocl.errors import ConfigError, DamagedError, FolderError
from bocl.experiment.config import Config
from bocl.experiment.proof import hashes
from bocl.experiment.provenance import machine, node, versions
from bocl.methods.method import Learner
from bocl.methods.saving import read_state, save, save_added
from bocl.methods.tensor_files import read_tensors, write_tensors
from bocl.records.files import FULL, cannot_write, describe, make_folder, remove, write_whole
from bocl.records.identity import lasting_settings
from bocl.records.interrupts import held_back
from bocl.records.journal import FORMAT, Journal, read, to_json
from bocl.records.record import GivenTask, PickRecord, Proof, RoundRecord, TaskRecord
from bocl.records.run_log import JOURNAL, LAST, RunLog, canaries_place, check_checkpoint, checkpoint_place, round_place
from bocl.settings import digest, parse_value, to_plain
from bocl.wording import counted

TENSOR_FORMAT = 2  # of files of rounds and canaries
_OURS = re.compile(r"(task-\d{2,}(-pick-\d+)?(\.safetensors)?|round-\d{3,}\.safetensors)((\.[0-9a-f]{8})?\.partial)?")


def do_nothing() -> None:
    """Do nothing about a record."""


class RunStore:
    """One run's folder, held by one process.

    log      what the journal holds, by now
    seconds  spent writing and checking what is written
    """

    def __init__(self, folder: Path, journal: Journal, log: RunLog, on_record: Callable[[], None] = do_nothing) -> None:
        self.folder = folder
        self.log = log
        self.seconds = 0.0
        self._journal = journal
        self._on_record = on_record
        self._begun: dict[str, Any] | None = None  # the record of a resumed session, until it has something to add

    @property
    def finished(self) -> list[TaskRecord]:
        """The finished tasks."""
        return self.log.tasks

    @classmethod
    def open(cls, folder: str | Path, config: Config, on_record: Callable[[], None] = do_nothing) -> RunStore:
        """Open a run's folder, new or begun before. One that is refused stays as it is, to the byte.

        on_record  called whenever something was recorded, while the folder is whole
        """
        journal, log = open_journal(Path(folder), config)
        return cls(Path(folder), journal, log, on_record)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count what happens inside as the price of safety."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - began

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Finish what is being written before a signal stops the run; the session is recorded before all it writes."""
        with self.timed(), held_back():
            self._journal.check_place()
            _refuse_links(self.folder, self._at_work)
            if self._begun is not None:
                begun, self._begun = self._begun, None
                self._append(begun)
                self._remove_stale()
            yield
            self._on_record()

    def start(
        self,
        config: Config,
        learner: Learner,
        data: str,
        *,
        given: Sequence[GivenTask] = (),
        prior_trials: str = "",
        base: str = "",
        shares_device: int = 1,
        headline: bool | None = None,
    ) -> None:
        """Record what this session runs, and on what; see ``Start``.

        A session that resumes a run is recorded with the first thing it adds.
        """
        record = {
            "kind": "start",
            "format": FORMAT,
            "config": to_plain(config),
            # A setting that a later version added has its default: it is still the same run.
            "digest": self.log.starts[0].digest if self.log.starts else digest(config),
            "groups": [group.name for group in learner.graph.groups],
            "versions": versions(),
            "data": data,
            "prior_trials": prior_trials,
            "base": base,
            "base_stored": learner.parameters().get("base", 0),
            "machine": machine(learner.device),
            "node": node(),
            "shares_device": shares_device,
            "headline": headline,
            "given": [asdict(task) for task in given],
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        if self.log.starts:
            self._begun = record
            return
        with self._writing():
            self._append(record)

    def halve(self, task: int, number: int, children_at_once: int) -> None:
        """Record that a round does not fit into memory, before it is tried with fewer children at once."""
        with self._writing():
            self._append({"kind": "out-of-memory", "task": task, "round": number, "children_at_once": children_at_once})

    def keep_round(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Write a trained round: its tensors first, then the line that names them."""
        with self._writing():
            place = round_place(facts["task"], facts["number"])
            stored = write_tensors(self.folder, place, tensors, f"round, format {TENSOR_FORMAT}")
            self._append({"kind": "round", **facts, "weights": asdict(stored)})

    def recall(self, record: RoundRecord) -> dict[str, Tensor]:
        """Return the tensors of a round trained before."""
        with self.timed():
            return read_tensors(self.folder, record.weights)

    def restore(self, learner: Learner) -> None:
        """Bring a fresh learner to where the last finished task left it."""
        if self.finished:
            learner.restore(read_state(self.folder / self.log.checkpoint, learner, tasks=len(self.finished)))

    def commit(self, record: TaskRecord | PickRecord, learner: Learner, canaries: Mapping[str, Tensor]) -> None:
        """Write a finished task, or a pick for it: learner and canaries first, then the line that names them."""
        if isinstance(record, PickRecord):
            kind, task, pick = "pick", record.task, record.number
        else:
            kind, task, pick = "task", record.index, 0
        # What takes the place of a checkpoint that is whole, as those of earlier versions are, is whole.
        partial = self.log.proofs[task].partial if pick else task > 0 and not learner.forgets
        at_work = self._at_work
        with self._writing():
            checkpoint = checkpoint_place(task, pick)
            remove(self.folder / checkpoint)  # what a killed process may have left in this place
            if partial:
                save_added(learner, self.folder / checkpoint, self.log.proofs[task - 1].checkpoint)
            else:
                save(learner, self.folder / checkpoint)
            write_whole(self.folder / checkpoint / LAST, b"")
            proof = Proof(
                hashes(learner.tensors_of(task)),
                write_tensors(self.folder, canaries_place(task, pick), canaries, f"canaries, format {TENSOR_FORMAT}"),
                describe(f"{checkpoint}/model.json", (self.folder / checkpoint / "model.json").read_bytes()),
                partial,
            )
            self._append({"kind": kind, **asdict(record), "proof": asdict(proof)})
            self._remove_stale(at_work)

    @property
    def _at_work(self) -> tuple[str, str]:
        """How the names of files and folders begin that may change now: of the last finished task, and of the next."""
        done = len(self.finished)
        return f"task-{done:02d}", f"task-{done + 1:02d}"

    def _append(self, record: Mapping[str, Any]) -> None:
        plain: Any = to_json(record, "record")
        self.log.take(plain)
        self._journal.append(plain)

    def tidy(self) -> None:
        """Remove what a killed process left behind: an unfinished record, and files that are stale."""
        with self._writing():
            self._journal.mend()
            self._remove_stale()

    def _remove_stale(self, beginnings: Sequence[str] = ("task-",)) -> None:
        """Remove our files that no record needs any more: those that a finished task made stale.

        beginnings  of the names of the files and folders that are looked at: all of ours unless told

        A file of the next task that no record names was left by a killed process. It is written again before a record
        names it, so it stays until then: what the journal cannot account for is never removed.
        """
        done = len(self.finished)
        wanted = {stored.file.removesuffix("/model.json") for stored in self.log.files}
        for beginning in beginnings:
            for pattern in (f"checkpoints/{beginning}*", f"canaries/{beginning}*", f"rounds/{beginning}*/*"):
                for path in self.folder.glob(pattern):
                    place = path.relative_to(self.folder).as_posix()
                    if place not in wanted and _OURS.fullmatch(path.name) and _task_of(place) <= done:
                        remove(path)
        for stored in self.log.checkpoints[-2:-1]:
            remove((self.folder / stored.file).with_name(LAST))
        for path in self.folder.glob("rounds/task-*"):
            if path.is_dir() and not any(path.iterdir()):
                remove(path)

    def __enter__(self) -> RunStore:
        return self

    def __exit__(self, *_: object) -> None:
        self._journal.close()


def _task_of(place: str) -> int:
    """Return the number, from 1, of the task that a file or folder of a run belongs to; 0 if it names none."""
    found = re.search(r"/task-(\d+)", place)
    return int(found[1]) if found else 0


def _check_accounted(folder: Path, log: RunLog) -> None:
    """Refuse a folder with files of tasks that the journal cannot know of yet: they prove that it was cut short."""
    done = len(log.tasks)
    for path in sorted(
        [*folder.glob("checkpoints/*/"), *folder.glob("canaries/*.safetensors"), *folder.glob("rounds/*/")]
    ):
        if _task_of(f"/{path.name}") > done + 1:
            raise DamagedError(
                f"{path} is there, but {log.path} has {counted(done, 'finished task')}: the journal was cut short; "
                "restore it from a copy, or start again in another folder"
            )


def _refuse_links(folder: Path, beginnings: Sequence[str] = ("",)) -> None:
    """Refuse a run with links among its folders: what is written and removed through them is not the run's.

    beginnings  of the names of the checkpoints that are looked at: all unless told
    """
    ours = [folder / name for name in ("rounds", "canaries", "checkpoints")]
    checkpoints = (path for beginning in beginnings for path in folder.glob(f"checkpoints/{beginning}*"))
    for path in (*ours, *folder.glob("rounds/*"), *checkpoints):
        if path.is_symlink():
            raise FolderError(
                f"{path} is a link, and a run writes and removes only what lies in its own folder; put the folder "
                "that it leads to in its place, or give another folder with --out"
            )


def open_journal(folder: Path, config: Config) -> tuple[Journal, RunLog]:
    """Open the journal of a run's folder, new or begun before, whose other files are as it says, and hold its lock."""
    try:
        if folder.exists() and not folder.is_dir():
            raise FolderError(f"{folder} is a file; give a folder for the run")
        fresh = not (folder / JOURNAL).is_file()
        if fresh and folder.is_dir() and any(path.name != f"{JOURNAL}.lock" for path in folder.iterdir()):
            raise FolderError(
                f"{folder} is not a run: it has no file {JOURNAL}, and is not empty; give another folder with --out"
            )
        make_folder(folder)
    except OSError as error:
        if error.errno in FULL:
            raise cannot_write(folder, error) from error
        raise FolderError(f"{folder} cannot be used: {error.strerror}; give another folder with --out") from error
    journal = Journal.open(folder / JOURNAL)
    try:
        log = RunLog.of(journal.records, journal.path)
        if log.starts:
            _check_same(folder, log.starts[0].config, config)
        elif any(path.name not in (JOURNAL, f"{JOURNAL}.lock") for path in folder.iterdir()):
            raise FolderError(f"{journal.path} is empty, but {folder} is not; give another folder with --out")
        check_checkpoint(folder, log)
        _check_accounted(folder, log)
        _refuse_links(folder)
    except BaseException:
        journal.close()
        raise
    return journal, log


def check_folder(folder: Path, config: Config) -> None:
    """Refuse a folder that holds a run of other settings; other faults show when it is opened."""
    if os.path.isfile(folder / JOURNAL):
        log = RunLog.of(read(folder / JOURNAL), folder / JOURNAL)
        if log.starts:
            _check_same(folder, log.starts[0].config, config)


def _check_same(folder: Path, old: Mapping[str, Any], config: Config) -> None:
    """Refuse a folder of other settings. Settings of other methods may differ; one added later has its default."""
    was = lasting_settings(to_plain(recorded_config(old, folder / JOURNAL)))
    now = lasting_settings(to_plain(config))
    if config.stream.tasks is None:  # a function of the user's has a number of tasks once it is called
        was.pop("stream.tasks", None)
    changes = [
        f"{name}: {was.get(name)} there, {now.get(name)} here"
        for name in sorted({*was, *now})
        if was.get(name) != now.get(name)
    ]
    if changes:
        raise FolderError(
            f"{folder / JOURNAL} was made with another config ({'; '.join(changes)}); give another folder with --out"
        )


def recorded_config(plain: Mapping[str, Any], path: Path) -> Config:
    """Return the settings in a journal, or report that another version wrote them."""
    try:
        config: Config = parse_value(Config, plain, "config")
    except ConfigError as error:
        raise FolderError(
            f"{path}: {error}; another version of bocl wrote it: use that version, or run again in another folder"
        ) from error
    return config

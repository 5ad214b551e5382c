"""A run's folder: all a run writes.

    journal.jsonl           one `start` record per session, one `task` record per finished task
    checkpoints/task-NN/    the learner after the last finished task

A task is finished when its record is in the journal. Its checkpoint is written first, and the one before
is removed only afterwards, so the journal never names a checkpoint that is not there.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from bocl.errors import FolderError
from bocl.experiment.config import Config
from bocl.methods.method import Method
from bocl.methods.saving import read_state, save
from bocl.records.journal import Journal
from bocl.records.record import TaskRecord, task_record_from
from bocl.records.summary import JOURNAL
from bocl.settings import digest, to_plain
from bocl.version import __version__

FORMAT = 1


class RunStore:
    """One run's folder, held by one process."""

    def __init__(self, folder: Path, journal: Journal) -> None:
        self.folder = folder
        self._journal = journal
        self.finished = [task_record_from(record) for record in journal.records if record["kind"] == "task"]

    @classmethod
    def open(cls, folder: str | Path, config: Config) -> RunStore:
        """Open a run's folder, new or begun before; refuse one of another config, and change nothing in it."""
        folder = Path(folder)
        try:
            if folder.exists() and not folder.is_dir():
                raise FolderError(f"{folder} is a file; give a folder for the run")
            fresh = not (folder / JOURNAL).is_file()
            if fresh and folder.is_dir() and any(path.name != f"{JOURNAL}.lock" for path in folder.iterdir()):
                raise FolderError(f"{folder} holds something that is not a run; give another folder with --out")
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FolderError(f"{folder} cannot be used: {error.strerror}; give another folder with --out") from error
        journal = Journal.open(folder / JOURNAL)
        try:
            for record in journal.records:
                if record["kind"] == "start":
                    _check_same(folder, record, config)
        except BaseException:
            journal.close()
            raise
        return cls(folder, journal)

    def start(self, config: Config, graph_groups: list[str], about: Mapping[str, Any]) -> None:
        """Record what this session runs, and on what."""
        self._journal.append(
            {
                "kind": "start",
                "format": FORMAT,
                "config": to_plain(config),
                "digest": digest(config),
                "groups": graph_groups,
                "versions": _versions(),
                **about,
            }
        )

    def note(self, kind: str, **facts: object) -> None:
        """Record something that happened on the way, such as a round that did not fit into memory."""
        self._journal.append({"kind": kind, **facts})

    def restore(self, method: Method) -> None:
        """Bring a fresh method to where the last finished task left it."""
        if self.finished:
            tasks = len(self.finished)
            method.restore(read_state(self._checkpoint(tasks - 1), method, tasks=tasks))

    def commit(self, record: TaskRecord, method: Method) -> None:
        """Write a finished task: the learner first, then the line that names it."""
        save(method, self._checkpoint(record.index))
        self._journal.append({"kind": "task", **asdict(record)})
        self.finished.append(record)
        if record.index:
            shutil.rmtree(self._checkpoint(record.index - 1), ignore_errors=True)

    def _checkpoint(self, index: int) -> Path:
        return self.folder / "checkpoints" / f"task-{index + 1:02d}"

    def __enter__(self) -> RunStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._journal.close()


def _check_same(folder: Path, record: Mapping[str, Any], config: Config) -> None:
    if record.get("format") != FORMAT:
        raise FolderError(f"{folder} has format {record.get('format')}; this version of bocl reads format {FORMAT}")
    if record["digest"] == digest(config):
        return
    changes = _differences(record["config"], to_plain(config))
    raise FolderError(f"{folder} was made with another config ({'; '.join(changes)}); give another folder with --out")


def _differences(old: Any, new: Any, path: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for key in sorted({*old, *new}):
            found += _differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
        return found
    return [] if old == new else [f"{path}: {old} there, {new} here"]


def _versions() -> dict[str, str]:
    packages = {name: metadata.version(name) for name in ("torch", "numpy", "botorch", "gpytorch")}
    return {"bocl": __version__, "commit": _commit(), "python": platform.python_version(), **packages}


def _commit() -> str:
    """Return the commit of the checkout bocl runs from, or '' for an installed package."""
    here = Path(__file__).parent
    try:
        answer = subprocess.run(
            ["git", "-C", str(here), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""


def machine(device: torch.device) -> dict[str, Any]:
    """Describe what a run runs on."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "device": str(device),
        "name": name,
        "system": platform.system(),
        "threads": torch.get_num_threads(),
    }

"""What a disk may hold after a power cut, followed call by call.

Killing a process shows nothing of this: the system still writes what the process left behind, a power cut loses it.
In the worst case, and in any mixture,

- what a file holds is lost until the file is synced, and a write to a synced file spoils it until it is synced again;
- a new name is there or not until its folder is synced, and a removed one may be gone at once;
- a line of the journal may be there as soon as it is written, and is for sure once the journal is synced.

So after every call, however many of its unsynced lines the journal may have, every file they need must be there.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from bocl.records.journal import read
from bocl.records.run_log import RunLog

ABSENT, FOLDER, UNSURE = "absent", "a folder", "unsure"


class Disk:
    """The disk below a folder that is there for sure.

    journal  the journal in it that must come to no harm
    calls    the calls so far
    made     names that files were opened under while they were not there
    faults   what a power cut could have done after one of the calls
    """

    def __init__(self, root: Path, journal: Path) -> None:
        self.journal = journal
        self.calls: list[str] = []
        self.made: set[str] = set()
        self.faults: list[str] = []
        self._root = root
        self._names: dict[Path, set[Any]] = {}  # what may be there: numbers of files, FOLDER, ABSENT
        self._held: dict[int, str] = {}  # by number of a file: the sha256 of what it holds for sure, or UNSURE
        self._now: dict[Path, Any] = {}
        self._opened: dict[int, Path] = {}
        self._needed: list[dict[Path, str]] = [{}]  # by every number of lines
        self._synced = 0

    def watch(self, monkeypatch: Any) -> None:
        """Follow the calls of this process from now on."""
        for name in ("open", "write", "fsync", "replace", "ftruncate", "unlink", "rmdir", "mkdir"):
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name)))

    def _watched(self, name: str, real: Any) -> Any:
        def call(first: Any, *others: Any, **options: Any) -> Any:
            result = real(first, *others, **options)
            path = self._path(first, options.get("dir_fd"))
            if path is not None and self._root in (path, *path.parents):
                getattr(self, f"_after_{name}")(path, result, *others)
                moved = [str(other.relative_to(self._root)) for other in others if isinstance(other, Path)]
                self.calls.append(" ".join([name, str(path.relative_to(self._root)), *moved]))
                self._look()
            return result

        return call

    def _path(self, first: Any, inside: int | None) -> Path | None:
        if isinstance(first, int):
            return self._opened.get(first)
        return Path(first) if inside is None else Path(os.readlink(f"/proc/self/fd/{inside}")) / first

    # What every call makes sure, or unsure.

    def _after_open(self, path: Path, descriptor: int, flags: int, *_mode: int) -> None:
        self._opened[descriptor] = path
        if flags & os.O_CREAT and path not in self._now:
            self.made.add(path.name)
            self._put(path, len(self._held))
            self._held[len(self._held)] = UNSURE
        if flags & os.O_TRUNC:
            self._held[self._now[path]] = UNSURE

    def _after_write(self, path: Path, *_: Any) -> None:
        self._held[self._now[path]] = UNSURE
        if path == self.journal:
            self._needed += [self._needs(lines) for lines in range(len(self._needed), len(read(path)) + 1)]

    def _after_ftruncate(self, path: Path, *_: Any) -> None:
        self._held[self._now[path]] = UNSURE

    def _after_fsync(self, path: Path, *_: Any) -> None:
        if self._now.get(path, FOLDER) != FOLDER:
            self._held[self._now[path]] = hashlib.sha256(path.read_bytes()).hexdigest()
        for name in self._names:
            if name.parent == path:
                self._names[name] = {self._now.get(name, ABSENT)}
        if path == self.journal:
            self._synced = len(self._needed) - 1
            self._require(path, self._held[self._now[path]])

    def _after_replace(self, source: Path, _result: None, target: Path) -> None:
        self._put(target, self._now.pop(source))
        self._names[source].add(ABSENT)

    def _after_mkdir(self, path: Path, *_: Any) -> None:
        self._put(path, FOLDER)

    def _after_unlink(self, path: Path, *_: Any) -> None:
        self._now.pop(path)
        self._names[path].add(ABSENT)

    _after_rmdir = _after_unlink

    def _put(self, path: Path, what: Any) -> None:
        self._names.setdefault(path, {ABSENT}).add(what)
        self._now[path] = what

    # What must be there.

    def _needs(self, lines: int) -> dict[Path, str]:
        """Return {file: sha256} of all that a run with so many lines cannot go on without."""
        folder = self.journal.parent
        log = RunLog.of(read(self.journal)[:lines], self.journal)
        done = len(log.tasks)
        stored = [proof.canaries for proof in log.proofs] + [proof.checkpoint for proof in log.proofs[-1:]]
        stored += [entry.weights for task in (done - 1, done) for entry in log.rounds.get(task, [])]
        needs = {folder / file.file: file.sha256 for file in stored}
        if done:
            model = folder / log.proofs[-1].checkpoint.file
            weights = json.loads(model.read_bytes())["weights"]
            needs[model.parent / weights["file"]] = weights["sha256"]
        return needs

    def _look(self) -> None:
        for needs in self._needed[self._synced :]:
            for path, sha256 in needs.items():
                self._require(path, sha256)

    def _require(self, path: Path, sha256: str) -> None:
        files = self._names.get(path, {ABSENT})
        if any(file in (ABSENT, FOLDER) or self._held[file] != sha256 for file in files):
            self.faults.append(f"after {self.calls[-1]}: {path.relative_to(self._root)} is not there for sure")
        for folder in path.parents[: len(path.relative_to(self._root).parts) - 1]:
            if self._names.get(folder) != {FOLDER}:
                self.faults.append(f"after {self.calls[-1]}: {folder.relative_to(self._root)} is not there for sure")

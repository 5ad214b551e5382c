"""What a folder holds, told so that it can be compared."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bocl.methods.method import Learner
from bocl.records.journal import read
from bocl.records.run_log import JOURNAL, RunLog

TIMES = {"seconds", "training_seconds", "time"}
Entry = tuple[int, int, str]


def snapshot(folder: Path) -> dict[str, Entry]:
    """Return all that is below a folder, and the folder itself: {place: (mode, time of change, content)}."""
    found = {".": _entry(folder)}
    for above, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(above, name)
            found[path.relative_to(folder).as_posix()] = _entry(path)
    return found


def _entry(path: Path) -> Entry:
    told = path.lstat()
    content = ""
    if stat.S_ISLNK(told.st_mode):
        content = os.readlink(path)
    elif stat.S_ISREG(told.st_mode):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
    return told.st_mode, told.st_mtime_ns, content


def changes(before: dict[str, Entry], after: dict[str, Entry]) -> list[str]:
    """Return what differs between two snapshots, in words."""
    said = []
    for place in sorted(before.keys() | after.keys()):
        old, new = before.get(place), after.get(place)
        if old is None or new is None:
            said.append(f"{place} {'appeared' if old is None else 'is gone'}")
        elif old != new:
            parts = zip(("mode", "time", "content"), old, new, strict=True)
            said.append(f"{place}: another {' and '.join(name for name, one, other in parts if one != other)}")
    return said


def outcome(folders: Sequence[Path]) -> str:
    """Return a hash of all that runs came to: names, weights, canaries, and records without times or sessions."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            digest.update(f"{path.relative_to(folder)}\n".encode())
            if path.suffix == ".safetensors" or path.name == "model.json":
                digest.update(path.read_bytes())
        digest.update(json.dumps(history(folder), sort_keys=True).encode())
    return digest.hexdigest()


def history(folder: Path) -> list[Any]:
    """Return the records of a run without times or sessions; a task or round recorded twice or left out is refused."""
    records = read(folder / JOURNAL)
    RunLog.of(records, folder / JOURNAL)
    return [timeless(record) for record in records if record["kind"] != "start"]


def timeless(value: Any) -> Any:
    """Return a value without the times in it."""
    if isinstance(value, list):
        return [timeless(item) for item in value]
    if isinstance(value, dict):
        return {name: timeless(item) for name, item in value.items() if name not in TIMES}
    return value


def all_it_learnt(learner: Learner) -> str:
    """Return a hash of a learner's state."""
    state = learner.state()
    digest = hashlib.sha256(json.dumps(state.facts, sort_keys=True).encode())
    for name, tensor in sorted(state.tensors.items()):
        digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()

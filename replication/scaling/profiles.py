"""What runs that were made on a GPU took, record by record, read from their journals."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from bocl.method_table import METHODS
from bocl.records.archives import archived_bytes, archived_runs
from bocl.records.journal import read
from bocl.records.run_log import RunLog
from replication.records import RESULTS
from replication.scaling.simulate import Steps

GPU = "NVIDIA H200"
MOST_STORED = 10_000_000  # parameters: one DEN grew to 101 million, 404 MB of one record, which tells nothing of others
BYTES = 4  # of a parameter
BYTES_OF_OTHERS = {"gem": 1}  # of the other numbers that a method stores: GEM's are images


@cache
def profiles(preset: str, gpu: str = GPU) -> tuple[Steps, ...]:
    """Return the runs of a preset that had one GPU of this type to themselves in one session, by name; no giants."""
    runs = archived_runs(RESULTS / f"{preset}.tar.xz")
    return tuple(profile(run) for run in runs if _is_its_own(RunLog.of(list(read(run)), run), gpu))


def _is_its_own(log: RunLog, gpu: str) -> bool:
    (start, *others) = log.starts
    giant = log.tasks[-1].stored > MOST_STORED
    return not (others or giant or start.shares_device > 1 or start.machine.get("name") != gpu)


def profile(journal: Path) -> Steps:
    """Return what a run took, by its journal.

    The bytes of a record are those of its line and of the files that it names. Of a checkpoint's weights, they are
    those of the parameters that the task added, or of all that is stored where the method changes earlier tasks.
    """
    text = archived_bytes(journal) or journal.read_bytes()
    records = list(read(journal))
    log = RunLog.of(records, journal)
    lines = map(len, text.splitlines(keepends=True))
    method = log.starts[0].config["method"]
    return tuple(
        (seconds, line + files) for line, (seconds, files) in zip(lines, _work(records, log, method), strict=True)
    )


def _work(records: list[dict[str, Any]], log: RunLog, method: str) -> Iterator[tuple[float, int]]:
    """Yield for every record the seconds of work before it, and the bytes of its files."""
    rounds = iter([each for task in sorted(log.rounds) for each in log.rounds[task]])
    tasks = iter(zip(log.tasks, log.proofs, strict=True))
    forgets = METHODS[method].load().forgets
    trained, stored = 0.0, 0
    for record in records:
        match record["kind"]:
            case "round":
                done = next(rounds)
                seconds = sum(fit.seconds for fit in done.fits)
                trained += seconds
                yield seconds, done.weights.bytes
            case "task":
                task, proof = next(tasks)
                weights = BYTES * (task.stored if forgets else task.stored - stored)
                others = BYTES_OF_OTHERS.get(method, BYTES) * task.extra_numbers if forgets else 0
                files = proof.canaries.bytes + proof.checkpoint.bytes
                yield max(task.seconds - trained, 0.0), files + weights + others
                trained, stored = 0.0, task.stored
            case _:
                yield 0.0, 0

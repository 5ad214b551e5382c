"""The runs of a study in processes of their own, several at once.

On a GPU processes fill the pauses that each leaves; with NVIDIA's multi-process service their work overlaps too. A run
in a process of its own has the bits it would have alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from bocl.experiment.side_by_side import MOST_AT_ONCE
from bocl.experiment.study import Job
from bocl.records.run_log import JOURNAL
from bocl.records.summary import summarise
from bocl.training.device import resolve_device


def run_jobs(
    jobs: Sequence[Job],
    out: Path,
    *,
    workers: int,
    records: Path | None,
    device: str,
    data: str | None,
    tell: Callable[[str], None],
) -> int:
    """Do every job, or find it finished; ``tell`` hears how each ended. Return how many failed.

    records  folder that gets the journal of every finished run: PRESET/NAME-seed-N.jsonl
    """
    failed = 0
    options, processes = _options(workers, device, data), Processes()
    with ThreadPoolExecutor(workers) as pool:
        running = {pool.submit(processes.run, _command(job, out, options)): job for job in jobs}
        try:
            for done, ended in enumerate(as_completed(running), start=1):
                job, error = running[ended], ended.result()
                said = error or _keep(job, out, records)
                failed += bool(error)
                tell(f"{done}/{len(jobs)}  {job.preset}  {job.name}  seed {job.seed}  {said}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            processes.stop()
            raise
    return failed


class Processes:
    """Processes under way; told to stop, they finish their record and end."""

    def __init__(self) -> None:
        self._alive: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def run(self, command: Sequence[str]) -> str:
        """Run a command to its end; return why it failed, '' where it did not."""
        if self._stopped:
            return "stopped"
        one_thread = {"OMP_NUM_THREADS": "1", **os.environ}
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=one_thread
        ) as process:
            self._alive.add(process)
            _, said = process.communicate()
            self._alive.discard(process)
        return "" if process.returncode == 0 else (said.strip().splitlines() or ["failed"])[-1]

    def stop(self) -> None:
        """Stop all of them."""
        self._stopped = True
        for process in list(self._alive):
            process.terminate()


def _options(workers: int, device: str, data: str | None) -> list[str]:
    found = ["--device", device, *(["--data", data] if data is not None else [])]
    if workers > 1 and resolve_device(device).type == "cuda":
        found += ["--at-once", str(min(workers, MOST_AT_ONCE))]  # for the record: the device is shared
    return found


def _command(job: Job, out: Path, options: Sequence[str]) -> list[str]:
    sets = [word for override in job.overrides for word in ("--set", override)]
    which = [job.preset, "--methods", job.method, "--seeds", str(job.seed), *sets]
    return [sys.executable, "-m", "bocl", "run", *which, "--out", str(out / job.place), "--json", *options]


def _keep(job: Job, out: Path, records: Path | None) -> str:
    folder = out / job.run_place
    if records is not None:
        place = records / job.preset / f"{job.name}-seed-{job.seed}.jsonl"
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / JOURNAL, place)
    figures = summarise(folder).figures()
    return f"ACC {100 * figures['accuracy']:.2f} %  {figures['parameters']:,} parameters"

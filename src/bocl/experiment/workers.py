"""The runs of a study in processes of their own, several at once.

On a GPU, processes fill each other's pauses; with NVIDIA's multi-process service their work overlaps too. A run in a
process of its own has the same bits, however many others there are. No run outlives its study, however that ends.

    RECORDS/PRESET/NAME-seed-N.jsonl    the journal of every finished run, which is then not made again
    RECORDS/PRESET.tar.xz               or an archive of them, which is read, not written
    RECORDS/parts.ndjson                a line for every time it was worked on: command, date, machine, seconds, runs
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import date
from pathlib import Path

from bocl.experiment.config import Config
from bocl.experiment.provenance import machine, versions
from bocl.experiment.study import Job
from bocl.records.archives import SUFFIX
from bocl.records.files import cannot_write
from bocl.records.identity import relevant_settings
from bocl.records.run_log import JOURNAL
from bocl.records.summary import journal_of, summarise
from bocl.settings import parse_value, to_plain
from bocl.training.device import resolve_device
from bocl.wording import counted

PARTS = "parts.ndjson"  # *.jsonl are journals


def run_jobs(
    jobs: Sequence[Job],
    out: Path,
    *,
    workers: int,
    records: Path | None,
    device: str,
    data: str | None,
    command: str,
    tell: Callable[[str], None],
) -> int:
    """Do every job that is not finished; ``tell`` is called with how each ended. Return how many failed.

    records  folder of the journals and parts described at the head of this file
    command  that the user gave, for the record
    """
    began, finished, failed = time.perf_counter(), 0, 0
    wanted = [job for job in jobs if records is None or not _recorded(job, records)]
    if len(wanted) < len(jobs):
        tell(f"{len(jobs) - len(wanted)} of {counted(len(jobs), 'run')} already in {records}")
    if records is not None and wanted:
        _note(records, "")  # a folder that cannot be written is refused before the work
    options = ["--device", device, *(["--data", data] if data is not None else [])]
    options += ["--shares-device", str(workers)] if workers > 1 else []
    with Processes() as processes, ThreadPoolExecutor(workers) as pool:
        running = {pool.submit(processes.run, _command(job, out, options)): job for job in wanted}
        try:
            for ended in as_completed(running):
                job, error = running[ended], ended.result()
                said = error or _keep(job, out, records)
                failed, finished = failed + bool(error), finished + (not error)
                tell(f"{finished + failed}/{len(wanted)}  {job.preset}  {job.name}  seed {job.seed}  {said}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            processes.stop()
            raise
        finally:
            if records is not None and wanted:
                part = {
                    "command": command,
                    "date": date.today().isoformat(),
                    "versions": versions(),
                    **machine(resolve_device(device)),
                    "workers": workers,
                    "seconds": round(time.perf_counter() - began, 1),
                    "finished": finished,
                }
                _note(records, json.dumps(part) + "\n")
    return failed


class Processes:
    """Processes under way. Asked to stop, they finish their record and end; they do so too if this process is killed.

    Their standard input is a pipe that nobody writes to. Only this process holds its other end, and the kernel closes
    that whatever happens. It is what they wait for (``--until-input-ends``).
    """

    def __init__(self) -> None:
        self._input, held = os.pipe()
        self._held = os.fdopen(held, "wb")

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        os.close(self._input)

    def run(self, command: Sequence[str]) -> str:
        """Run a command to its end; return why it failed, '' if it did not."""
        if self._held.closed:
            return "stopped"
        done = subprocess.run(
            [*command, "--until-input-ends"],
            stdin=self._input,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={"OMP_NUM_THREADS": "1", **os.environ},
            check=False,
        )
        return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["failed"])[-1]

    def stop(self) -> None:
        """Stop all of them."""
        self._held.close()


def _command(job: Job, out: Path, options: Sequence[str]) -> list[str]:
    sets = [word for override in job.overrides for word in ("--set", override)]
    which = [job.preset, "--methods", job.method, "--seeds", str(job.seed), *sets]
    which += ["--headline"] if job.headline else []
    # -P: no file of the current folder is imported in place of ours
    return [sys.executable, "-P", "-m", "bocl", "run", *which, "--out", str(out / job.place), "--json", *options]


def _record(job: Job, records: Path) -> Path:
    return records / job.preset_name / f"{job.name}-seed-{job.seed}.jsonl"


def _recorded(job: Job, records: Path) -> bool:
    """Whether the records hold this run, finished, with the same settings as far as its results depend on them."""
    loose = _record(job, records)
    archived = records / f"{job.preset_name}{SUFFIX}" / loose.name
    place = next((place for place in (loose, archived) if journal_of(place) == place), None)
    if place is None:
        return False
    kept = summarise(place)
    then, now = parse_value(Config, kept.config, str(place)), job.config()
    same = relevant_settings(to_plain(then)) == relevant_settings(to_plain(now))
    return kept.finished and kept.seed == job.seed and same and then.test_curve >= now.test_curve


def _keep(job: Job, out: Path, records: Path | None) -> str:
    folder = out / job.run_place
    if records is not None:
        place = _record(job, records)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / JOURNAL, place)
    figures = summarise(folder).figures()
    return f"ACC {100 * figures['accuracy']:.2f} %  {figures['parameters']:,} parameters"


def _note(records: Path, line: str) -> None:
    """Add a line to the parts; studies may work on the same records at once."""
    place = records / PARTS
    try:
        records.mkdir(parents=True, exist_ok=True)
        with place.open("a", encoding="utf-8") as file:
            file.write(line)
    except OSError as error:
        raise cannot_write(place, error) from error

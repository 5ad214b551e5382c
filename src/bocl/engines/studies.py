"""The runs of a study, on an engine.

RECORDS/PRESET/NAME-seed-N.jsonl    the journal of every finished run, which is then not made again
RECORDS/PRESET.tar.xz               or an archive of them, which is read, not written
RECORDS/parts.ndjson                a line for every time it was worked on: command, date, machine, runs made and failed
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

from bocl.engines.orders import Engine, RunOrder, make_unfinished
from bocl.errors import BoclError
from bocl.experiment.config import Config
from bocl.experiment.provenance import versions
from bocl.experiment.store import check_folder
from bocl.experiment.study import Job
from bocl.records.archives import SUFFIX
from bocl.records.files import cannot_write, write_whole
from bocl.records.identity import relevant_settings
from bocl.records.run_log import JOURNAL
from bocl.records.summary import RunSummary, journal_of, summarise
from bocl.settings import parse_value, to_plain
from bocl.wording import counted, one_line

PARTS = "parts.ndjson"  # *.jsonl are journals


def run_jobs(
    jobs: Sequence[Job],
    out: Path,
    engine: Engine,
    *,
    records: Path | None,
    data: str | None,
    command: str,
    tell: Callable[[str], None],
) -> int:
    """Do every job that is not finished; ``tell`` is called with how each ended. Return how many failed.

    records  folder of the journals and parts described at the head of this file
    command  that the user gave, for the record
    """
    began, finished = time.perf_counter(), 0
    failed: dict[str, str] = {}
    wanted = [job for job in jobs if records is None or recorded(job, records) is None]
    if len(wanted) < len(jobs):
        tell(f"{len(jobs) - len(wanted)} of {counted(len(jobs), 'run')} already in {records}")
    for job in wanted:
        check_folder(out / job.run_place, job.config)  # refuse a folder before hours of other runs, not after
    if records is not None and wanted:
        _note(records, "")  # a folder that cannot be written is refused before the work
    by_folder = {str(out / job.run_place): job for job in wanted}

    def ended(order: RunOrder, error: str) -> None:
        nonlocal finished
        job, said = by_folder[order.folder], error
        if not error:
            try:
                said = _keep(job, out, records)
            except (BoclError, OSError) as mistake:
                said = error = one_line(str(mistake))
        if error:
            failed[record_name(job)] = error
        else:
            finished += 1
        tell(f"{finished + len(failed)}/{len(wanted)}  {order.title}  {said}")

    try:
        make_unfinished(engine, [_order(job, out, data) for job in wanted], ended)
    finally:
        if records is not None and wanted:
            part = {
                "command": command,
                "date": date.today().isoformat(),
                "versions": versions(),
                **engine.machine(),
                "workers": engine.workers,
                "seconds": round(time.perf_counter() - began, 1),
                "finished": finished,
                "failed": failed,
            }
            _note(records, json.dumps(part) + "\n")
    return len(failed)


def _order(job: Job, out: Path, data: str | None) -> RunOrder:
    title = f"{job.preset}  {job.name}  seed {job.seed}"
    return RunOrder.of(title, job.config, out / job.run_place, data=data, headline=job.headline)


def record_name(job: Job) -> str:
    """Return the place of a job's journal in a folder of records."""
    return f"{job.preset_name}/{job.name}-seed-{job.seed}.jsonl"


def recorded(job: Job, records: Path) -> RunSummary | None:
    """Return what the records hold of this run, if it is finished and has the settings that its results depend on."""
    loose = records / record_name(job)
    archived = records / f"{job.preset_name}{SUFFIX}" / loose.name
    place = next((place for place in (loose, archived) if journal_of(place) == place), None)
    if place is None:
        return None
    try:
        kept = summarise(place)
    except BoclError:  # the run is made again, and recorded in its place
        return None
    then, now = parse_value(Config, kept.config, str(place)), job.config
    same = relevant_settings(to_plain(then)) == relevant_settings(to_plain(now))
    return kept if kept.finished and kept.seed == job.seed and same and then.test_curve >= now.test_curve else None


def _keep(job: Job, out: Path, records: Path | None) -> str:
    folder = out / job.run_place
    if records is not None:
        write_whole(records / record_name(job), (folder / JOURNAL).read_bytes())
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

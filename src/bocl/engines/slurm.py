"""Runs on a cluster with Slurm: one array job, made by submitit, with a run per element.

FOLDER/jobs.json    the element that makes each run; jobs.json.lock is held by the command that asks for some
FOLDER/…            what submitit keeps of every element: what it was asked, what came of it, what it printed

The elements need nobody: they go on when whoever asked for them stops waiting, and the same command waits for them
again. Before an element's time is over, Slurm sends it a signal. It then finishes the record that is being written, is
put back into the queue, and resumes its run when its turn comes.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

from bocl.engines.orders import RunOrder, carry_out
from bocl.errors import BoclError, InputError
from bocl.extras import needed
from bocl.records.files import cannot_write, lock_file, make_folder, write_whole
from bocl.records.interrupts import Terminated, held_back, stopping_on_terminate
from bocl.records.run_log import JOURNAL
from bocl.wording import counted, one_line

JOBS = "jobs.json"
OURS = ("array", "error", "open-mode", "output", "signal")  # options of sbatch that are not the user's
DEFAULT_TIME = "60"  # minutes
WITHOUT_END = 10**6  # times that an element may be put back into the queue: as long as it gets on, see ``Element``
UNKNOWN = "UNKNOWN"  # state of a job that Slurm has no record of
RECORDED = 300.0  # seconds after which Slurm has a record of whatever it was asked for
WHY = "--engine slurm makes runs on a cluster with Slurm"
LOOK = 1.0  # seconds between looks at the elements' results; submitit asks Slurm itself ever less often
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?")


class SlurmArray:
    """An engine (``orders.py``) of one array job.

    folder   for what this file says at its head; every node must see it, and the folders of the runs
    options  of sbatch by their long names, such as partition, time, gres
    device   auto, cpu or cuda: what every run computes on
    workers  elements at once; None: as many as Slurm lets run
    cluster  of submitit: slurm, or local for processes of this machine that are handled alike
    """

    shares_device = 1
    most_parts = 1

    def __init__(
        self, folder: Path, options: Mapping[str, str], device: str, workers: int | None, *, cluster: str = "slurm"
    ) -> None:
        submitit = needed("submitit", "slurm", WHY)
        for name in options:
            if name in OURS:
                raise InputError(f"--slurm {name}=…: bocl sets it itself; leave it out")
        self.workers = workers
        self._folder = folder.absolute()
        self._device = device
        self._minutes = minutes_of(options.get("time", DEFAULT_TIME))
        python = f"{shlex.quote(sys.executable)} -P"  # no file of the current folder is imported in place of ours
        try:
            self._executor = submitit.AutoExecutor(
                folder / "%j", cluster, slurm_python=python, local_python=python, slurm_max_num_timeout=WITHOUT_END
            )
        except RuntimeError as error:
            raise InputError(
                "--engine slurm: there is no srun here; use it where you would use sbatch, or leave it out to make "
                "the runs on this machine"
            ) from error
        self._executor.update_parameters(
            name="bocl",
            timeout_min=self._minutes,
            slurm_additional_parameters=dict(options),
            **({} if workers is None else {"slurm_array_parallelism": workers}),
        )
        self._job = {"slurm": submitit.SlurmJob, "local": submitit.LocalJob}[cluster]
        self._failures = (submitit.core.utils.UncompletedJobError, OSError)

    def machine(self) -> dict[str, Any]:
        """Describe what the runs are made on."""
        return {"device": self._device, "name": "", "system": "Slurm"}

    def __call__(self, orders: Sequence[RunOrder], ended: Callable[[RunOrder, str], None]) -> None:
        """Make runs; see ``Engine``. When this ends early, the elements go on."""
        waiting = {_key(order): order for order in orders}
        jobs = self._jobs_of(orders)
        try:
            while jobs:
                for key in [key for key, job in jobs.items() if job.done()]:
                    ended(waiting[key], self._said(jobs.pop(key)))
                time.sleep(LOOK if jobs else 0)
        except KeyboardInterrupt as stop:
            arrays = sorted({job.job_id.partition("_")[0] for job in jobs.values()})
            raise type(stop)(
                f"stopped waiting; {counted(len(jobs), 'run')} go on under Slurm: run the same command again to wait "
                f"for them, or stop them with `scancel {' '.join(arrays)}`"
            ) from None

    def _jobs_of(self, orders: Sequence[RunOrder]) -> dict[str, Any]:
        """Return the element of every run: one that is queued or at work already, otherwise a new one."""
        place = self._folder / JOBS
        with self._alone(), held_back():  # what is asked for is noted, whatever signal comes meanwhile
            ids: dict[str, str] = json.loads(place.read_text(encoding="utf-8")) if place.is_file() else {}
            jobs = self._at_work({key: ids[key] for key in map(_key, orders) if key in ids}, place)
            new = [order for order in orders if _key(order) not in jobs]
            if new:
                jobs |= self._ask(new)
                write_whole(place, json.dumps(ids | {key: job.job_id for key, job in jobs.items()}, indent=1).encode())
        return jobs

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let no other command with this folder ask for elements meanwhile."""
        try:
            make_folder(self._folder)
            lock = open(self._folder / f"{JOBS}.lock", "wb")  # noqa: SIM115 - its fault is ours, what is inside has others
        except OSError as error:
            raise cannot_write(self._folder, error) from error
        with lock:
            lock_file(lock.fileno(), wait=True)
            yield

    def _at_work(self, ids: Mapping[str, str], place: Path) -> dict[str, Any]:
        """Return the elements that are queued or at work: those of an old list that Slurm does not know are not."""
        known = {key: self._job(self._folder / "%j", number) for key, number in ids.items()}
        new = known and time.time() - place.stat().st_mtime < RECORDED
        return {key: job for key, job in known.items() if not job.done() and (new or job.state != UNKNOWN)}

    def _ask(self, orders: Sequence[RunOrder]) -> dict[str, Any]:
        """Ask for an element for each of these runs."""
        try:
            with redirect_stderr(io.StringIO()):  # where submitit repeats what the error says
                made = self._executor.map_array(Element(self._minutes), orders, [self._device] * len(orders))
        except self._failures as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            said = next((line for line in lines if line.startswith("sbatch")), lines[-1])
            raise InputError(f"--engine slurm: the job was not taken: {one_line(said)}") from error
        return {_key(order): job for order, job in zip(orders, made, strict=True)}

    def _said(self, job: Any) -> str:
        """Return why an element failed, '' if it did not."""
        try:
            said: str = job.result()
        except self._failures as error:
            lines = [line for line in (job.stderr() or str(error)).splitlines() if line.strip()]
            state = "" if job.state in (UNKNOWN, "FINISHED") else f"{job.state.lower()}: "
            return f"job {job.job_id} gave no result: {state}{one_line(lines[-1])} (see {job.paths.stderr})"
        return said


class NothingNew(Terminated):
    """The time is over, and nothing came of it."""


class Element:
    """What an element of the array does: it makes a run, or goes on with it.

    minutes  of its time limit
    """

    def __init__(self, minutes: int) -> None:
        self._minutes = minutes

    def __call__(self, order: RunOrder, device: str) -> str:
        """Make a run; return why it failed, '' if it did not."""
        self._began, self._began_with = time.monotonic(), _size(order)
        try:
            with stopping_on_terminate():
                carry_out(order, device)
        except NothingNew:
            return (
                f"no record within the time limit of {counted(self._minutes, 'minute')}; give a longer --slurm time=…"
            )
        except BoclError as error:
            return one_line(str(error))
        return ""

    def checkpoint(self, order: RunOrder, device: str) -> Any:
        """Return what to do when its turn comes again. All that is finished is on disk already.

        submitit calls it, in the middle of whatever is at work, shortly before the time is over, or when something else
        takes its place. Where nothing came of all its time, nothing would the next time, and the run ends.
        """
        # By 0.8 of the time, and in the last 10 minutes, submitit too takes a signal for the end of the time.
        over = time.monotonic() - self._began >= 60 * min(0.8 * self._minutes, self._minutes - 10)
        if over and _size(order) == self._began_with:
            raise NothingNew
        return needed("submitit", "slurm", WHY).helpers.DelayedSubmission(self, order, device)


def minutes_of(time_limit: str) -> int:
    """Return a time limit in any form that sbatch takes, in minutes, and at least one.

    MINUTES, MINUTES:SECONDS, HOURS:MINUTES:SECONDS, DAYS-HOURS, DAYS-HOURS:MINUTES, DAYS-HOURS:MINUTES:SECONDS
    """
    found = _TIME.fullmatch(time_limit)
    if found is None:
        raise InputError(f"--slurm time={time_limit}: give minutes, HOURS:MINUTES:SECONDS or DAYS-HOURS")
    days, first, second, third = (int(found[name] or 0) for name in ("days", "first", "second", "third"))
    from_hours = found["days"] is not None or found["third"] is not None
    seconds = 3600 * first + 60 * second + third if from_hours else 60 * first + second
    return max(-(-(24 * 3600 * days + seconds) // 60), 1)


def _key(order: RunOrder) -> str:
    return str(Path(order.folder).absolute())


def _size(order: RunOrder) -> int:
    journal = Path(order.folder) / JOURNAL
    return journal.stat().st_size if journal.is_file() else 0

"""Kill a run at any moment, run it again, and see that it ends as if nothing had happened.

python tests/torture/kills.py            every system call of a run and a pick, halfway through writes, random moments
python tests/torture/kills.py --short    a few of them, for the test suite

A child is forked from a process that has done such a run itself, so that a run takes less than a second. It dies by
SIGKILL, from its own hand before (or halfway through) the n-th call that changes the folder, or from its
parent's at a random moment. Then the same run is started again in the same folder, and compared: weights,
canaries and records but their times with those of a run nobody disturbed; nothing acknowledged is lost,
nothing is recorded twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bocl.experiment.config import Config
from bocl.experiment.grid import Grid, plan, run_grid
from bocl.experiment.pick import pick
from bocl.experiment.run import run
from bocl.records.events import Callback, Event, TaskDone, ignore_events
from bocl.records.journal import read
from bocl.records.run_log import JOURNAL, RunLog
from bocl.records.summary import summarise

CALLS = ("write", "fsync", "replace", "ftruncate", "unlink", "rmdir", "mkdir")
SETTINGS = (
    "stream.tasks=3",
    "network.arguments={inputs=64, hidden=[6, 5]}",
    "recipe.epochs=1",
    "recipe.batch_size=256",
    "search.trials=3",
    "search.patience=2",
    "search.warm_points=2",
    "search.bounds=3",
)
TIMES = {"seconds", "training_seconds", "time"}


def in_a_fork(
    work: Callable[[], object], *, fatal: int = 0, half: bool = False, dies_after: float | None = None
) -> tuple[int, list[str], int]:
    """Work in a child; return how it ended, the calls it made, and how many lines it was promised.

    fatal       the number of the call it dies before; 0 lets it live
    half        die halfway through that call, a write
    dies_after  seconds until the parent kills it
    """
    ears, mouth = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ears)
        try:
            _watch_calls(mouth, fatal, half)
            work()
            os._exit(0)
        except BaseException as error:
            print(f"the run failed: {error!r}", file=sys.stderr, flush=True)
            os._exit(1)
    os.close(mouth)
    if dies_after is not None:
        time.sleep(dies_after)
        os.kill(child, signal.SIGKILL)
    with os.fdopen(ears) as told:
        words = told.read().split("\n")[:-1]
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), [word for word in words if word != "promised"], words.count("promised")


def the_runs(grid: Grid) -> Callable[[], object]:
    """Return what runs a grid."""
    return partial(run_grid, grid, device="cpu", watch=_nobody_watches)


def _nobody_watches(_config: Config, _folder: Path) -> nullcontext[Callback]:
    return nullcontext(ignore_events)


def _watch_calls(mouth: int, fatal: int, half: bool) -> None:
    """Count every call that changes the folder, tell the parent of each, and die at the one that is fatal."""
    write, count = os.write, 0

    def watched(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            write(mouth, f"{name}\n".encode())
            if count == fatal:
                if half:
                    descriptor, data = arguments
                    real(descriptor, bytes(data)[: len(data) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            result = real(*arguments, **options)
            if name == "fsync" and os.readlink(f"/proc/self/fd/{arguments[0]}").endswith(JOURNAL):
                write(mouth, b"promised\n")
            return result

        return call

    for name in CALLS:
        setattr(os, name, watched(name, getattr(os, name)))


def outcome(grid: Grid) -> str:
    """Return a hash of all that runs came to: weights, canaries, and records without times or sessions."""
    digest = hashlib.sha256()
    for _, folder in grid:
        for path in sorted(folder.rglob("*")):
            digest.update(f"{path.relative_to(folder)}\n".encode())
            if path.suffix == ".safetensors" or path.name == "model.json":
                digest.update(path.read_bytes())
        records = read(folder / JOURNAL)
        RunLog.of(records, folder / JOURNAL)  # refuses a task or round that is recorded twice or left out
        kept = [timeless(record) for record in records if record["kind"] != "start"]
        digest.update(json.dumps(kept, sort_keys=True).encode())
    return digest.hexdigest()


def timeless(value: Any) -> Any:
    if isinstance(value, list):
        return [timeless(item) for item in value]
    if isinstance(value, dict):
        return {name: timeless(item) for name, item in value.items() if name not in TIMES}
    return value


class Torture:
    """One grid of runs, killed again and again."""

    def __init__(self, place: Path, **options: Any) -> None:
        self.place, self.options = place, options
        self.kills = self.deaths = 0
        whole = self._grid("whole")
        run_grid(self._grid("warm-up"), device="cpu", watch=_nobody_watches)  # what libraries do once is done here
        began = time.perf_counter()
        code, self.calls, _ = in_a_fork(the_runs(whole))
        self.seconds = time.perf_counter() - began
        if code:
            raise SystemExit("the run fails even if nobody disturbs it")
        self.wanted = outcome(whole)

    def _grid(self, name: str) -> Grid:
        return plan("digits", SETTINGS, out=str(self.place / name), device="cpu", **self.options)

    def kill(self, *moments: dict[str, Any]) -> None:
        """Kill a new run at each of these moments in turn, then let it end and compare."""
        grid = self._grid("killed")
        for moment in moments:
            code, _, promised = in_a_fork(the_runs(grid), **moment)
            self.kills += 1
            self.deaths += code == -signal.SIGKILL
            found = sum(len(read(folder / JOURNAL)) for _, folder in grid if (folder / JOURNAL).exists())
            before = {folder: (folder / JOURNAL).read_bytes() for _, folder in grid if (folder / JOURNAL).exists()}
            check(code in (0, -signal.SIGKILL), moment, f"it ended with {code}")
            check(found >= promised, moment, f"{promised} lines were promised in this session, {found} are there")
        code, _, _ = in_a_fork(the_runs(grid))
        check(code == 0, moments, f"the run started again ended with {code}")
        for folder, old in before.items():
            whole_lines = old[: old.rfind(b"\n") + 1]
            kept = (folder / JOURNAL).read_bytes().startswith(whole_lines)
            check(kept, moments, "what the journal held was changed")
        check(outcome(grid) == self.wanted, moments, "it came to something else")
        shutil.rmtree(self.place / "killed")


class PickTorture:
    """A pick after the second of three tasks, killed, made again, and the run gone on with from there."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.config, self.folder = plan("digits", SETTINGS, out=str(place / "whole"), device="cpu")[0]
        in_a_fork(self._two_tasks)
        task = summarise(self.folder).tasks[-1]
        self.widths = next(trial.widths for trial in task.trials if trial.widths != task.widths)
        shutil.copytree(self.folder, place / "two tasks")
        _, self.calls, _ = in_a_fork(self._pick)
        self.wanted = self._end()

    def _two_tasks(self) -> None:
        def stop(event: Event) -> None:
            if isinstance(event, TaskDone) and event.record.index == 1:
                raise KeyboardInterrupt

        with suppress(KeyboardInterrupt):
            run(self.config, self.folder, device="cpu", callback=stop)

    def _pick(self) -> None:
        pick(self.folder, self.widths, device="cpu")

    def _end(self) -> str:
        grid = [(self.config, self.folder)]
        code, _, _ = in_a_fork(the_runs(grid))
        check(code == 0, "a pick", f"the run gone on with ended with {code}")
        check(summarise(self.folder).tasks[1].widths == self.widths, "a pick", "the pick was lost")
        return outcome(grid)

    def kill(self, moment: dict[str, Any]) -> None:
        """Kill a pick at a moment, make it again, let the run end and compare."""
        shutil.rmtree(self.folder)
        shutil.copytree(self.place / "two tasks", self.folder)
        code, _, promised = in_a_fork(self._pick, **moment)
        check(code == -signal.SIGKILL, moment, f"the pick ended with {code}")
        kinds = [record["kind"] for record in read(self.folder / JOURNAL)]
        check(promised < 2 or kinds[-1] == "pick", moment, "a pick that was promised is lost")
        check(in_a_fork(self._pick)[0] == 0, moment, "the pick cannot be made again")
        check(self._end() == self.wanted, moment, "it came to something else")


def check(fact: bool, moment: Any, otherwise: str) -> None:
    """End with what went wrong."""
    if not fact:
        raise SystemExit(f"killed at {moment}: {otherwise}")


def main(short: bool) -> None:
    """Torture a single run, and a grid."""
    torch.set_num_threads(1)
    draw = random.Random(0)
    with tempfile.TemporaryDirectory() as place:
        whole = Torture(Path(place) / "run")
        points = [{"fatal": number} for number in range(1, len(whole.calls) + 1)]
        points += [{"fatal": at, "half": True} for at, name in enumerate(whole.calls, start=1) if name == "write"]
        if short:
            points = draw.sample(points, 6)
        for point in points:
            whole.kill(point)
        for number in range(1 if short else 30):
            moments = [{"dies_after": draw.uniform(0, whole.seconds)} for _ in range(1 + number % 2)]
            whole.kill(*moments)
        print(
            f"one run, {len(whole.calls)} calls: killed {whole.kills} times, {len(points)} of them at a call; "
            f"{whole.deaths} died, all ended in {whole.wanted[:16]}"
        )
        picked = PickTorture(Path(place) / "pick")
        moments = [{"fatal": number} for number in range(1, len(picked.calls) + 1)]
        moments += [{"fatal": at, "half": True} for at, name in enumerate(picked.calls, start=1) if name == "write"]
        moments = draw.sample(moments, 3) if short else moments
        for moment in moments:
            picked.kill(moment)
        print(f"a pick, {len(picked.calls)} calls: killed {len(moments)} times, all ended in {picked.wanted[:16]}")
        if not short:
            grid = Torture(Path(place) / "grid", methods=["bocl", "sn"], seeds=[0, 1])
            for _ in range(20):
                grid.kill({"fatal": draw.randint(1, len(grid.calls))})
            for _ in range(10):
                grid.kill({"dies_after": draw.uniform(0, grid.seconds)})
            print(
                f"a grid of 4 runs, {len(grid.calls)} calls: killed {grid.kills} times; {grid.deaths} died, "
                f"all ended in {grid.wanted[:16]}"
            )


if __name__ == "__main__":
    main(short="--short" in sys.argv[1:])

"""A run of hundreds of tasks, killed again and again, next to one that nobody disturbs: what grows that should not?

Some things grow by nature. The network does. So do the samples of all tasks seen, on which every later task is scored;
the canaries, 16 inputs per task; and what is on record of every pair of tasks: accuracies, gates, and, if all tasks
share one network, the hashes of all heads. They are measured and subtracted. A task takes longer the more there is to
train, to look at and to save, so its time is given in multiples of what plain PyTorch takes for that. What is left must
stay flat, and both runs must end in the same bits.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from cases import Case, Group, check
from states import history, outcome
from torch import Tensor, nn

from bocl.experiment.config import Config
from bocl.experiment.grid import plan
from bocl.experiment.run import run
from bocl.experiment.scoring import ScoredSamples
from bocl.methods.method import Learner
from bocl.records.events import Event, TaskDone
from bocl.records.journal import read
from bocl.records.record import TaskRecord
from bocl.records.run_log import JOURNAL

HIDDEN = (6, 5)
BATCH = 256
SETTINGS = (
    f"network.arguments={{inputs=64, hidden={list(HIDDEN)}}}",
    "recipe.epochs=1",
    f"recipe.batch_size={BATCH}",
    'search.kind="random"',
    "search.trials=2",
    "search.patience=2",
    "search.bounds=2",
)
SCORED = 144 + 360 + 16  # samples of every task seen that are looked at after each task: validation, test, canaries
TRAINING_BYTES = 1293 * 64 * 4  # of one task's training samples
MEGABYTE = 2**20
Point = dict[str, float]  # what was measured after a task


def groups() -> list[Group]:
    """Return a dozen tasks, and hundreds: of a method that grows, and of one whose network only gets heads."""
    return [
        Group("a dozen tasks", partial(of_methods, ["bocl"], 12, 4), few=1),
        Group("300 tasks", partial(of_methods, ["bocl", "sn"], 300, 10)),
    ]


def of_methods(methods: Sequence[str], tasks: int, dies_after: int, place: Path) -> Iterator[Case]:
    """Yield a case per method."""
    for method in methods:
        yield Case(f"{tasks} tasks of {method}", partial(_counted, place, method, tasks, dies_after))


def _counted(place: Path, method: str, tasks: int, dies_after: int) -> dict[str, int]:
    return {"tasks": tasks, "kills": soak(place, method, tasks, dies_after)["kills"]}


# In the child.


class Meter:
    """Listens to a run, measures process and folder after every task, and tells the parent."""

    def __init__(self, folder: Path, mouth: int) -> None:
        self._folder, self._mouth = folder, mouth
        self._began = time.perf_counter()

    def __call__(self, event: Event) -> None:
        """Measure, if a task is done; the time this takes counts for no task."""
        if isinstance(event, TaskDone):
            point = {"task": event.record.index + 1, "seconds": time.perf_counter() - self._began}
            point |= _of_process(event.record) | _of_folder(self._folder)
            os.write(self._mouth, json.dumps(point).encode() + b"\n")
            self._began = time.perf_counter()


def _of_process(record: TaskRecord) -> Point:
    """Return what the process holds; in bytes: all, the tensors of the network and of the samples, other tensors."""
    (learner,) = _live(Learner)
    (samples,) = _live(ScoredSamples)
    network, scored = _storages(_reachable(learner.network)), _storages(_reachable(samples))
    stray = _storages(_live(Tensor))
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "resident": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
        "network": sum(network.values()),
        "samples": sum(scored.values()),
        "stray": sum(stray[place] for place in stray.keys() - network.keys() - scored.keys()),
        "pairs in memory": 32 * sum(map(len, (record.row, record.validation_row, *record.attention.values()))),
        "stored": record.stored,
    }


def _live(kind: type) -> list[Any]:
    return [found for found in gc.get_objects() if issubclass(type(found), kind)]


def _reachable(holder: object) -> list[Any]:
    """Return the tensors that an object leads to."""
    seen, coming, tensors = set(), [holder], []
    while coming:
        found = coming.pop()
        if id(found) not in seen and not issubclass(type(found), type | ModuleType | FunctionType):
            seen.add(id(found))
            tensors += [found] if issubclass(type(found), Tensor) else []
            coming += gc.get_referents(found)
    return tensors


def _storages(tensors: Sequence[Tensor]) -> dict[int, int]:
    """Return the place of all memory behind tensors, and its bytes."""
    return {each.data_ptr(): each.nbytes() for each in (tensor.untyped_storage() for tensor in tensors)}


def _of_folder(folder: Path) -> Point:
    """Return the number and size of files without tensors, and how much of it the last task says of pairs of tasks."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.suffix != ".safetensors"]
    with (folder / JOURNAL).open("rb") as journal:
        journal.seek(-min(MEGABYTE, journal.seek(0, os.SEEK_END)), os.SEEK_END)
        task = json.loads(journal.read().splitlines()[-1])["record"]
    pairs = [task["row"], task["validation_row"], task["attention"], task["proof"]["tensors"]]
    return {
        "files": len(sizes) - sum(path.name == "model.json" for path in folder.rglob("*")),
        "bytes": sum(sizes),
        "pairs on disk": sum(len(json.dumps(each, separators=(",", ":"))) for each in pairs),
    }


# In the parent.


def session(config: Config, folder: Path, dies_after: int | None) -> tuple[list[Point], bool]:
    """Run in a child, killed within the task after so many; return what it measured, and whether it came to its end."""
    ears, mouth = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ears)
        try:
            run(config, folder, device="cpu", callback=Meter(folder, mouth))
            os._exit(0)
        except BaseException as error:
            print(f"the run failed: {error!r}", file=sys.stderr, flush=True)
            os._exit(1)
    os.close(mouth)
    points: list[Point] = []
    with os.fdopen(ears) as told:
        for line in told:
            points.append(json.loads(line))
            if len(points) == dies_after:
                time.sleep(random.Random(points[-1]["task"]).uniform(0, points[-1]["seconds"]))
                os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    check(code in (0, -signal.SIGKILL), f"a session ended with {code}")
    return points, code == 0


def sessions(config: Config, folder: Path, dies_after: int | None) -> list[list[Point]]:
    """Run to the end, killed every so many tasks or so; return what each session measured."""
    draw, found, ended = random.Random(0), [], False
    while not ended:
        tasks = dies_after and draw.randint(dies_after // 2, dies_after * 3 // 2)
        points, ended = session(config, folder, tasks)
        found.append(points)
    return found


def plain_seconds(tasks: Sequence[Mapping[str, Any]], scratch: Path) -> float:
    """Return what plain PyTorch takes to train the last of these tasks, to look at all of them, and to save."""
    grows = tasks[-1]["widths"] != tasks[0]["widths"] or len(tasks) == 1
    widths = np.cumsum([task["widths"] for task in tasks], axis=0).tolist() if grows else [HIDDEN] * len(tasks)
    networks = [_mlp(64, *each, 10) for each in widths]
    batch, labels = torch.zeros(BATCH, 64), torch.zeros(BATCH, dtype=torch.int64)
    samples, stored = torch.zeros(SCORED, 64), bytes(4 * tasks[-1]["stored"])

    def step() -> None:
        nn.functional.cross_entropy(networks[-1](batch), labels).backward()

    def look() -> None:
        with torch.no_grad():
            for network in networks:
                network(samples)

    def save() -> None:
        hashlib.sha256(stored).digest()
        with scratch.open("wb") as file:
            file.write(stored)
            os.fsync(file.fileno())

    return _seconds(step) * tasks[-1]["samples"] / BATCH + _seconds(look) + _seconds(save)


def _mlp(*widths: int) -> nn.Sequential:
    layers = [part for each in pairwise(widths) for part in (nn.Linear(*each), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def _seconds(work: Callable[[], object]) -> float:
    """Return the median of a few timings."""

    def timed() -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    return median(timed() for _ in range(5))


# What came of it.


def soak(place: Path, method: str, tasks: int, dies_after: int, rows: int = 12) -> dict[str, Any]:
    """Soak one method, print a table of so many rows and the figures, and return them; raise what is not flat."""
    settings = (*SETTINGS, f"stream.tasks={tasks}")
    (config, warm), (_, quiet), (_, killed) = (
        plan("digits", settings, methods=[method], out=str(place / f"{method} {tasks} {name}"), device="cpu")[0]
        for name in ("warm", "quiet", "killed")
    )
    _warm_up(config, warm)
    (points,) = sessions(config, quiet, None)
    lives = sessions(config, killed, dies_after)
    # While a task is learnt, a thread makes the next one: a session that begins with the last task has none.
    before_last = [life for life in lives if life and life[0]["task"] < tasks]
    check(outcome([quiet]) == outcome([killed]), "the run that was killed came to something else")
    memory, folder = _without_growth(points)
    stray = [point["stray"] for point in points]
    shown = range(tasks // rows, tasks + 1, tasks // rows)
    times = _times_plain(quiet, points, shown)
    _print_table(method, points, shown, memory, folder, times)
    figures = {
        "kills": len(lives) - 1,
        **{name: _one(name, points, lives) for name in ("descriptors", "files")},
        "threads": _one("threads", points, before_last),
        "bytes of memory a task": round(_slope(memory)),
        "bytes of stray tensors": _by_thirds(stray),
        "bytes of the folder a task": _by_thirds(np.diff(folder)),
        "bytes of the folder a kill": round((_size(killed) - _size(quiet)) / max(len(lives) - 1, 1)),
        "times plain PyTorch": _by_thirds(list(times.values())),
        "journal bytes read a second": round(_size(killed) / _seconds(lambda: history(killed))),
        "milliseconds to resume": round(1000 * median(life[0]["seconds"] for life in lives[-5:] if life)),
    }
    print(*(f"  {name}: {value}" for name, value in figures.items()), sep="\n", flush=True)
    first, _, last = figures["bytes of stray tensors"]
    check(last < first + TRAINING_BYTES, f"tensors that nobody needs had {first} bytes at first, {last} at the end")
    slope = figures["bytes of memory a task"]
    # A dozen tasks are too few to tell a leak from a heap that is still filling up.
    check(tasks < 100 or slope < TRAINING_BYTES, f"every task keeps {slope} bytes, besides what grows by nature")
    first, _, last = figures["bytes of the folder a task"]
    check(last <= 1.05 * first, f"a task added {first} bytes to the folder at first, {last} at the end")
    return figures


def _warm_up(config: Config, folder: Path) -> None:
    """Learn two tasks here, so that what libraries do once is done before a child begins."""

    def stop(event: Event) -> None:
        if isinstance(event, TaskDone) and event.record.index == 1:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        run(config, folder, device="cpu", callback=stop)
    gc.collect()


def _without_growth(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    """Return memory and folder after each task, less what grows by nature."""
    memory, folder, in_memory, on_disk = [], [], 0.0, 0.0
    for point in points:
        in_memory += point["pairs in memory"]
        on_disk += point["pairs on disk"]
        memory.append(point["resident"] - point["network"] - point["samples"] - in_memory)
        folder.append(point["bytes"] - on_disk)
    return memory, folder


def _one(name: str, points: Sequence[Point], lives: Sequence[Sequence[Point]]) -> int:
    """Return the one value that something has after every task of both runs."""
    found = {int(point[name]) for life in (points, *lives) for point in life}
    check(len(found) == 1, f"the {name} are {sorted(found)}, not the same after every task")
    return found.pop()


def _slope(values: Sequence[float]) -> float:
    """Return how much is added per task, over the last two thirds."""
    late = values[len(values) // 3 :]
    return float(np.polyfit(range(len(late)), late, 1)[0])


def _by_thirds(values: Sequence[float]) -> list[int]:
    """Return the median of the first, second and last third."""
    return [round(float(np.median(part))) for part in np.array_split(np.asarray(values), 3)]


def _size(folder: Path) -> int:
    return (folder / JOURNAL).stat().st_size


def _times_plain(folder: Path, points: Sequence[Point], shown: Sequence[int]) -> dict[int, float]:
    """Return how often plain PyTorch could do what a task and those before it took; {task: times}."""
    tasks = [record for record in read(folder / JOURNAL) if record["kind"] == "task"]
    scratch = folder.with_name("plain")
    seconds = {task: median(point["seconds"] for point in points[max(task - 10, 0) : task]) for task in shown}
    return {task: seconds[task] / plain_seconds(tasks[:task], scratch) for task in shown}


def _print_table(
    method: str,
    points: Sequence[Point],
    shown: Sequence[int],
    memory: Sequence[float],
    folder: Sequence[float],
    times: Mapping[int, float],
) -> None:
    print(f"{method}: memory and folder without what grows by nature")
    print("task   stored  seconds  x plain  memory MB  descriptors  threads  files  folder kB")
    for task in shown:
        point = points[task - 1]
        print(
            f"{task:4} {point['stored']:8,.0f} {point['seconds']:8.2f} {times[task]:8.1f} "
            f"{memory[task - 1] / MEGABYTE:10.1f} {point['descriptors']:12.0f} {point['threads']:8.0f} "
            f"{point['files']:6.0f} {folder[task - 1] / 1000:10.1f}"
        )

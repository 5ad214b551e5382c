"""What runs are doing by now, and how long they will still take: an estimate from what they have recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal, get_args

from bocl.method_table import searches
from bocl.records.progress import Progress

State = Literal["finished", "under way", "silent", "unreadable"]
LEAST_SILENCE = 600.0  # seconds without a word that mean nothing
USUAL_SILENCE = 3600.0  # where no task has shown how long one takes
TASKS_OF_SILENCE = 3.0


@dataclass(frozen=True)
class Standing:
    """One run by now.

    state  `silent` where it is not finished and has not been heard of for three times the longest task of its own or
           of runs alike, and ten minutes at least; an hour where no such task is finished
    age    seconds since it last wrote
    left   seconds that it still needs; 0.0 once finished, None if not known
    """

    run: Progress
    state: State
    age: float
    left: float | None


@dataclass(frozen=True)
class Outlook:
    """Several runs by now.

    left     seconds until all are finished; None if not known, as where none is under way
    whole    whether what is left of every one is known; otherwise all take longer than ``left``
    to_come  how many more there will be, of which there is no journal yet
    """

    runs: tuple[Standing, ...]
    left: float | None
    whole: bool
    to_come: int = 0

    def count(self, state: State) -> int:
        """Return how many runs are in a state."""
        return sum(one.state == state for one in self.runs)

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "runs": [_as_json(one) for one in self.runs],
            **{state.replace(" ", "_"): self.count(state) for state in get_args(State)},
            "seconds_left": self.left,
            "all_known": self.whole,
        }


def _as_json(one: Standing) -> dict[str, Any]:
    run = one.run
    return {
        "folder": str(run.folder),
        "method": run.method,
        "seed": run.seed,
        "stream": run.stream,
        "state": one.state,
        "tasks": run.tasks,
        "tasks_finished": run.done,
        "rounds": run.rounds,
        "children": run.children,
        "accuracy": run.accuracy,
        "node": run.node,
        "device": run.device,
        "seconds_since_written": one.age,
        "seconds_left": one.left,
        "problem": run.problem,
    }


def outlook(runs: Sequence[Progress], now: float, to_come: int = 0) -> Outlook:
    """Return what runs are doing at a time, in seconds since 1970.

    to_come  how many more there will be, of which nothing is known

    A task is expected to take as long as the mean of those that its run has finished, otherwise of those that runs
    alike have finished (same method, stream, network and recipe); otherwise nobody knows. Where a method searches,
    there is no search for the first task, so it is expected to take as long as other first tasks and says nothing about
    the rest. Of the task under way, training on record and the time since then are done.

    All runs are expected to go on as now, with as many at once as are under way: what is left of them all, divided by
    that number, and no less than the most that is left of one.
    """
    alike: dict[str, list[Progress]] = {}
    for run in runs:
        alike.setdefault(run.alike, []).append(run)
    shared = {name: _pace(group) for name, group in alike.items()}
    standings = tuple(_standing(run, shared[run.alike], now) for run in runs)
    waited_for = [one for one in standings if one.state in ("under way", "silent")]
    known = [one.left for one in waited_for if one.left is not None]
    at_once = sum(one.state == "under way" for one in standings)
    left = max(sum(known) / at_once, *known) if known and at_once else None
    if not waited_for and not to_come:
        left = 0.0
    return Outlook(standings, left, len(known) == len(waited_for) and not to_come, to_come)


@dataclass(frozen=True)
class _Pace:
    """Mean seconds of a first task and of a later one, and those of the longest; None without such a task."""

    first: float | None
    later: float | None
    longest: float | None


def _pace(runs: Sequence[Progress]) -> _Pace:
    first = [run.seconds[0] for run in runs if run.seconds]
    later = [seconds for run in runs for seconds in run.seconds[1:]]
    longest = max([*first, *later], default=None)
    if not searches(runs[0].method):
        first = later = [*first, *later]
    return _Pace(fmean(first) if first else None, fmean(later) if later else None, longest)


def _standing(run: Progress, shared: _Pace, now: float) -> Standing:
    age = max(now - run.changed, 0.0)  # another machine's clock may be ahead
    if run.problem:
        return Standing(run, "unreadable", age, None)
    if run.finished:
        return Standing(run, "finished", age, 0.0)
    known = shared.longest
    silent = age > (USUAL_SILENCE if known is None else max(TASKS_OF_SILENCE * known, LEAST_SILENCE))
    left = _left(run, shared, run.spent + (0.0 if silent else age))
    return Standing(run, "silent" if silent else "under way", age, left)


def _left(run: Progress, shared: _Pace, spent: float) -> float | None:
    own = _pace([run])
    first = shared.first if own.first is None else own.first
    later = shared.later if own.later is None else own.later
    this, after = later if run.done else first, run.tasks - run.done - 1
    if this is None or (after and later is None):
        return None
    return max(this - spent, 0.0) + after * (later or 0.0)

"""Learning as it happens: one line per finished task, or per finished run where there are several, and on a terminal
what is under way below them. Elsewhere plain lines, trial by trial.

Everything goes to standard error, so standard output holds only results.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from bocl.errors import WorkError
from bocl.method_table import searches
from bocl.records.events import Callback, EpochDone, Event, OutOfMemory, RoundStarted, TaskDone, TaskStarted, TrialDone
from bocl.records.record import TaskRecord, Trial
from bocl.records.words import child_words, choose_reads, growth_words, outcome
from bocl.widths import Widths
from bocl.wording import counted, duration, one_line, percent, widths_text

PURPOSES = {"base": "training", "difficulty": "how hard is it?", "final": "on all samples"}  # of rounds, for people


class Display:
    """What is shown while a grid of runs is under way."""

    def __init__(self, runs: int = 1, console: Console | None = None) -> None:
        self.runs = runs
        self.console = console or Console(stderr=True, force_jupyter=False)  # a notebook gets the plain lines
        self._live = Live(console=self.console, refresh_per_second=8, transient=True)
        self._begun = 0
        self._lines: dict[int, tuple[str, ...]] = {}  # of each run under way, by its number
        self._one_at_a_time = threading.RLock()  # runs side by side report from threads of their own

    def __enter__(self) -> Display:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.console.is_terminal:
            self._live.update(Text())
            self._live.stop()

    @contextmanager
    def watch(self, method: str, seed: int, stream: str = "", folder: Path | None = None) -> Iterator[Callback]:
        """Show one run, which is given the callback that this yields; a learner outside of runs has no folder."""
        with self._one_at_a_time:
            self._begun += 1
            number = self._begun
        shown = _RunDisplay(self, number, method, seed, stream, folder)
        try:
            yield shown.callback
        except WorkError as error:
            shown.failed(error)
            raise
        finally:
            self.show(number)
        shown.finished()

    def say(self, line: str) -> None:
        """Print a line that stays."""
        self.console.print(Text(one_line(line)), soft_wrap=True)

    def show(self, number: int, *lines: str) -> None:
        """Show what a run is doing, below the runs before it; only on a terminal."""
        with self._one_at_a_time:
            self._lines[number] = lines
            if self.console.is_terminal:
                under_way = [line for number in sorted(self._lines) for line in self._lines[number]]
                self._live.update(
                    Group(*(Text(one_line(line), no_wrap=True, overflow="ellipsis") for line in under_way))
                )


class _RunDisplay:
    """One run."""

    def __init__(self, display: Display, number: int, method: str, seed: int, stream: str, folder: Path | None) -> None:
        self.display, self.number = display, number
        self.several = display.runs > 1
        self.name = f"run {number}/{display.runs}  {method}, seed {seed}"
        self.title = self.name if self.several else f"{method} on {stream}, seed {seed}"
        self.folder = folder
        self.told = not self.several or not display.console.is_terminal  # whether each finished task is printed
        self.task = TaskStarted(0, 1, "")
        self.round = RoundStarted("base", ())
        self.epoch = EpochDone(0, 1)
        self.best: Trial | None = None
        self.say_reads = False  # whether what children read is a choice
        self.done: list[TaskRecord] = []  # in this session
        self.began = time.perf_counter()
        self.searches = searches(method)

    def callback(self, event: Event) -> None:
        match event:
            case TaskStarted():
                if not self.done and self.told and self.folder is not None:
                    self.display.say(f"{self.title} → {self.folder}")
                if event.recalled:
                    rounds = counted(event.recalled, "round")
                    self.display.say(f"{_number(event)}  {rounds} recalled, not trained again")
                self.task, self.best, self.say_reads = event, None, False
                self.began = time.perf_counter()
            case RoundStarted():
                self.round, self.epoch = event, EpochDone(0, 1)
            case EpochDone():
                self.epoch = event
            case OutOfMemory():
                children = counted(event.children_at_once, "child", "children")
                self.display.say(f"out of memory: continuing with {children} at once")
            case TrialDone():
                self._trial(event)
            case TaskDone():
                self._task(event.record)
        self.display.show(self.number, *([self.name] if self.several else []), self._line())

    def finished(self) -> None:
        """Print a closing line for one of several runs."""
        if self.several and self.done:
            last, seconds = self.done[-1], sum(record.seconds for record in self.done)
            figures = f"ACC {percent(fmean(last.row))}  {last.stored:,} parameters  {duration(seconds)}"
            self.display.say(f"{self.name}  {figures}")
        elif self.several:
            self.display.say(f"{self.name}  finished before")

    def failed(self, error: WorkError) -> None:
        """Print why one of several runs ended early; the error of a single run is printed at the end."""
        if self.several:
            self.display.say(f"{self.name}  failed: {error}")

    def _trial(self, event: TrialDone) -> None:
        trial = event.trial
        self.say_reads = self.say_reads or choose_reads([trial])
        if self.best is None or not trial.reward <= self.best.reward:
            self.best = self.best if trial.failed else trial
        if not self.display.console.is_terminal:
            self.display.say(
                f"{_number(self.task)}  trial {event.number}/{self.round.trials}  "
                f"{self._child(trial)}  {outcome(trial)}  +{trial.parameters:,} parameters"
            )

    def _task(self, record: TaskRecord) -> None:
        self.done.append(record)
        added = sum(record.parameters.values())
        if self.told:
            tested = f"test {percent(record.row[-1])}"
            self.display.say(task_line(self.task, record.widths, tested, added, len(record.trials), record.seconds))
            if words := growth_words(record, record.index):
                self.display.say(below_task(self.task, words))

    def _child(self, trial: Trial) -> str:
        return child_words(trial, say_reads=self.say_reads)

    def _line(self) -> str:
        """Return what is under way; what a narrow terminal can do without comes last."""
        what = self.round
        purpose = PURPOSES.get(what.purpose, what.purpose)
        if what.purpose == "search":
            last = what.trial + len(what.widths) - 1
            numbers = str(what.trial) if last == what.trial else f"{what.trial}-{last}"
            purpose = f"trial {numbers}/{what.trials}"
        parts = [_number(self.task), purpose]
        if self.epoch.done:
            parts.append(f"epoch {self.epoch.done}/{self.epoch.total}")
        left = self._seconds_left()
        if left is not None:
            parts.append(f"{duration(round(left))} left")
        if self.best is not None:
            best = self.best
            parts.append(f"best {self._child(best)} {percent(best.accuracy)} +{best.parameters:,}")
        if what.purpose == "search":
            parts.append(f"now {' '.join(map(_widths, what.widths))}")
        return "  ".join(parts)

    def _seconds_left(self) -> float | None:
        """Estimate from how much of this task is done and how long earlier tasks took; a search may end early."""
        shown = self.epoch.done / max(self.epoch.total, 1)
        if self.searches:
            if self.round.purpose != "search":
                return None  # what comes before a search says nothing about how long it takes
            shown = (self.round.trial + shown * len(self.round.widths)) / (self.round.trials + 1)
        if shown < 0.05:
            return None
        spent = time.perf_counter() - self.began
        whole = spent / min(shown, 1.0)
        later = [record.seconds for record in self.done if record.index or not self.searches]
        typical = fmean(later) if later else whole
        return max(whole - spent, 0.0) + typical * (self.task.tasks - self.task.index - 1)


def task_line(task: TaskStarted, widths: Widths, accuracy: str, parameters: int, trials: int, seconds: float) -> str:
    """Return the line of a finished task; the first of its trials, z = 0, is not one that the search asked for."""
    searched = f"  {counted(trials - 1, 'trial')}" if trials else ""
    return (
        f"{_number(task)}  {task.name}  {_widths(widths)}  {accuracy}  +{parameters:,} parameters{searched}  "
        f"{duration(seconds)}"
    )


def below_task(task: TaskStarted, words: str) -> str:
    """Return a line that says more about a finished task, set in under the name of the task."""
    return f"{' ' * len(_number(task))}  {words}"


def _number(task: TaskStarted) -> str:
    return f"task {task.index + 1}/{task.tasks}"


def _widths(widths: Widths) -> str:
    return f"({widths_text(widths)})"

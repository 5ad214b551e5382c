"""A run as it happens: one line per finished task and a live line on a terminal, plain lines elsewhere.

Everything goes to standard error, so that standard output holds results alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from bocl.checks import counted
from bocl.cli.tables import duration, percent, widths_text
from bocl.experiment.config import Config
from bocl.records.events import EpochDone, Event, Listener, OutOfMemory, RoundStarted, TaskDone, TaskStarted, TrialDone
from bocl.records.record import Trial, Widths


class Display:
    """What is shown while a grid of runs is under way."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._live = Live(console=self.console, refresh_per_second=8, transient=True)

    def __enter__(self) -> Display:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.console.is_terminal:
            self._live.update(Text())
            self._live.stop()

    @contextmanager
    def watch(self, config: Config, folder: Path) -> Iterator[Listener]:
        """Show one run; the listener it yields is handed to the run."""
        yield _RunDisplay(self, config, folder).listen

    def say(self, line: str) -> None:
        """Print a line that stays."""
        self.console.print(Text(line), soft_wrap=True)

    def show(self, line: str) -> None:
        """Show a line that passes; only a terminal has one."""
        if self.console.is_terminal:
            self._live.update(Text(line, no_wrap=True, overflow="ellipsis"))


class _RunDisplay:
    """One run."""

    def __init__(self, display: Display, config: Config, folder: Path) -> None:
        self.display = display
        self.title = f"{config.method} on {config.stream.name}, seed {config.seed} → {folder}"
        self.task = TaskStarted(0, config.stream.tasks, "")
        self.round = RoundStarted("base", ())
        self.epoch = EpochDone(0, 1)
        self.best: Trial | None = None
        self.done: list[float] = []  # seconds of each task finished in this session
        self.began = time.perf_counter()
        self.searches = config.method == "bocl"
        self.most = config.search.most_trials

    def listen(self, event: Event) -> None:
        match event:
            case TaskStarted():
                if not self.done:
                    self.display.say(self.title)
                if event.recalled:
                    rounds = counted(event.recalled, "round")
                    self.display.say(f"task {event.index + 1}/{event.tasks}  {rounds} recalled, not trained again")
                self.task, self.best = event, None
                self.began = time.perf_counter()
            case RoundStarted():
                self.round, self.epoch = event, EpochDone(0, 1)
            case EpochDone():
                self.epoch = event
            case OutOfMemory():
                self.display.say(f"out of memory: going on with {event.children_at_once} children at once")
            case TrialDone():
                self._trial(event)
            case TaskDone():
                self._finished(event)
        self.display.show(self._line())

    def _trial(self, event: TrialDone) -> None:
        trial = event.trial
        if self.best is None or not trial.reward <= self.best.reward:
            self.best = self.best if trial.failed else trial
        if not self.display.console.is_terminal:
            self.display.say(
                f"task {self.task.index + 1}/{self.task.tasks}  trial {event.number}/{self.round.trials}  "
                f"{_widths(trial.widths)}  {percent(trial.accuracy)}  +{trial.parameters:,} parameters"
            )

    def _finished(self, event: TaskDone) -> None:
        record = event.record
        self.done.append(record.seconds)
        added = sum(record.parameters.values())
        trials = f"  {len(record.trials)} trials" if record.trials else ""
        self.display.say(
            f"task {record.index + 1}/{self.task.tasks}  {record.name}  {_widths(record.widths)}  "
            f"test {percent(record.row[-1])}  +{added:,} parameters{trials}  {duration(record.seconds)}"
        )

    def _line(self) -> str:
        task, what = self.task, self.round
        purpose = {"base": "training", "difficulty": "how hard is it?"}.get(what.purpose, "")
        if what.purpose == "search":
            last = what.trial + len(what.widths) - 1
            numbers = str(what.trial) if last == what.trial else f"{what.trial}-{last}"
            purpose = f"trial {numbers}/{what.trials} {' '.join(map(_widths, what.widths))}"
        parts = [f"task {task.index + 1}/{task.tasks}", purpose]
        if self.epoch.done:
            parts.append(f"epoch {self.epoch.done}/{self.epoch.total}")
        if self.best is not None:
            best = self.best
            parts.append(f"best {_widths(best.widths)} {percent(best.accuracy)} +{best.parameters:,}")
        left = self._seconds_left()
        if left is not None:
            parts.append(f"{duration(round(left))} left")
        return "  ".join(parts)

    def _seconds_left(self) -> float | None:
        """Estimate from this task's share of its work and the time of the tasks before; a search may end early."""
        shown = self.epoch.done / max(self.epoch.total, 1)
        if self.searches and self.task.index:
            rounds = {"difficulty": 0.0, "search": float(self.round.trial + 1)}.get(self.round.purpose, 0.0)
            share = (rounds + shown * max(len(self.round.widths), 1)) / (self.most + 2)
        else:
            share = shown
        spent = time.perf_counter() - self.began
        if share < 0.05:
            return None
        whole = spent / min(share, 1.0)
        later = self.done[1:] if self.searches else self.done
        typical = sum(later) / len(later) if later else whole
        if self.searches and not self.task.index:
            return None  # the first task says nothing about how long a search takes
        return max(whole - spent, 0.0) + typical * (self.task.tasks - self.task.index - 1)


def _widths(widths: Widths) -> str:
    return f"({widths_text(widths)})"

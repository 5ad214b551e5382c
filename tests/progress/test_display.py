"""Runs as they happen, seen on a terminal: what stands on the screen after every event."""

from __future__ import annotations

import math
import re
from contextlib import ExitStack
from dataclasses import replace
from io import StringIO
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest
from rich.console import Console

from bocl.errors import WorkError
from bocl.experiment.config import Config, load_config
from bocl.progress.display import Display
from bocl.records.events import EpochDone, OutOfMemory, RoundStarted, TaskDone, TaskStarted, TrialDone
from bocl.records.record import TaskRecord, Trial

FOLDER = Path("runs/here")
SEARCH = RoundStarted("search", ((1, 2), (30, 4)), trial=1, trials=9)


def screen(written: str) -> list[str]:
    """Return the rows that a terminal shows after it was sent some text."""
    rows, row, column = [""], 0, 0
    for code, character in re.findall(r"\x1b\[([0-9;?]*[A-Za-z])|(.)", written, re.DOTALL):
        if code == "2K":
            rows[row] = ""
        elif code.endswith("A"):
            row -= int(code[:-1])
        elif code:
            assert code[-1] in "mhl"  # colours, and the cursor shown or hidden
        elif character == "\r":
            column = 0
        elif character == "\n":
            row, column = row + 1, 0
            rows += [""] * (row + 1 - len(rows))
        else:
            rows[row] = rows[row][:column].ljust(column) + character + rows[row][column + 1 :]
            column += 1
    return [text.rstrip() for text in rows if text.strip()]


class Terminal:
    """A display of runs on a terminal that is looked at."""

    def __init__(self, runs: int = 1, width: int = 100, interactive: bool = True) -> None:
        self.written = StringIO()
        console = Console(force_terminal=interactive, width=width, file=self.written)
        self.display = Display(runs, console)
        self.display._live.auto_refresh = False  # drawn when looked at, not eight times a second

    def watch(self, config: Config):
        """Show one run."""
        return self.display.watch(config.method, config.seed, config.stream.name, FOLDER)

    def rows(self) -> list[str]:
        """Draw what is under way and return what the terminal shows."""
        self.display._live.refresh()
        return screen(self.written.getvalue())


@pytest.fixture
def clock(monkeypatch):
    """Return a clock that is set by hand: ``now`` in seconds."""
    hands = SimpleNamespace(now=100.0)
    monkeypatch.setattr("bocl.progress.display.time", SimpleNamespace(perf_counter=lambda: hands.now))
    return hands


def config(*overrides: str):
    return load_config("digits", ["stream.tasks=3", *overrides])


def record(index: int = 0, seconds: float = 2.0, trials: int = 0) -> TaskRecord:
    return TaskRecord(
        index=index,
        name=f"permutation {index + 1}",
        widths=(48, 24),
        validation_row=(0.5,) * (index + 1),
        row=(0.8,) * index + (0.9,),
        parameters={"shared": 1000, "heads": 234},
        stored=1234 * (index + 1),
        trials=(Trial((0, 0), 0.5, 0, 0.5),) * trials,
        difficulty=math.nan,
        samples=1,
        seconds=seconds,
        training_seconds=1.0,
    )


def test_what_is_under_way_stands_below_what_is_finished(clock):
    terminal = Terminal()
    finished = [
        "bocl on permuted-digits, seed 0 → runs/here",
        "task 1/3  permutation 1  (48, 24)  test 90.00 %  +1,234 parameters  2.0 s",
    ]
    with terminal.display, terminal.watch(config()) as tell:
        tell(TaskStarted(0, 3, "permutation 1"))
        tell(RoundStarted("base", ((48, 24),)))
        assert terminal.rows() == [finished[0], "task 1/3  training"]
        tell(EpochDone(5, 10))
        assert terminal.rows() == [finished[0], "task 1/3  training  epoch 5/10"]
        tell(TaskDone(record()))
        tell(TaskStarted(1, 3, "permutation 2"))
        tell(RoundStarted("difficulty", ((48, 24),)))
        assert terminal.rows() == [*finished, "task 2/3  how hard is it?"]
        tell(SEARCH)
        assert terminal.rows() == [*finished, "task 2/3  trial 1-2/9  0 s left  now (1, 2) (30, 4)"]
        tell(TrialDone(1, Trial((1, 2), 0.8, 5_000, 0.7)))
        tell(TrialDone(2, Trial((30, 4), math.nan, 9, math.nan)))
        tell(RoundStarted("search", ((5, 5),), trial=3, trials=9))
        tell(EpochDone(1, 4))
        under_way = "task 2/3  trial 3/9  epoch 1/4  0 s left  best (1, 2) 80.00 % +5,000  now (5, 5)"
        assert terminal.rows() == [*finished, under_way]
    assert terminal.rows() == finished


def test_a_better_trial_takes_the_place_of_the_best(clock):
    terminal = Terminal()
    with terminal.display, terminal.watch(config()) as tell:
        tell(TaskStarted(1, 3, "permutation 2"))
        for accuracy, best in ((0.7, "70.00"), (0.6, "70.00"), (0.75, "75.00")):
            tell(TrialDone(1, Trial((1, 2), accuracy, 5, accuracy)))
            assert f"best (1, 2) {best} % +5" in terminal.rows()[-1]
        tell(TaskStarted(2, 3, "permutation 3"))
        assert "best" not in terminal.rows()[-1]


def test_the_time_left_is_that_of_this_search_and_of_the_tasks_after_it(clock):
    terminal = Terminal()
    with terminal.display, terminal.watch(config()) as tell:
        tell(TaskStarted(0, 3, "permutation 1"))
        tell(TaskDone(record(0, seconds=1000.0)))  # no search: says nothing of those that search
        tell(TaskStarted(1, 3, "permutation 2"))
        tell(SEARCH)
        clock.now += 4
        tell(EpochDone(5, 10))  # the first trial and half of two: a fifth of the ten children took 4 s
        assert "36 s left" in terminal.rows()[-1]  # 16 s, and 20 s for the last task
        tell(TaskDone(record(1, seconds=600.0)))
        tell(TaskStarted(2, 3, "permutation 3"))
        tell(RoundStarted("search", ((1, 2),), trial=9, trials=9))
        clock.now += 900
        tell(EpochDone(1, 2))
        assert "47 s left" in terminal.rows()[-1]  # 9.5 of 10 children, and no task after


def test_the_time_left_without_a_search_is_told_by_epochs(clock):
    terminal = Terminal()
    with terminal.display, terminal.watch(config("method=sn")) as tell:
        tell(TaskStarted(0, 3, "permutation 1"))
        tell(RoundStarted("base", ((48, 24),)))
        clock.now += 1
        tell(EpochDone(4, 100))
        assert "left" not in terminal.rows()[-1]  # too early to say
        tell(EpochDone(10, 100))
        assert "29 s left" in terminal.rows()[-1]
        tell(TaskDone(record(0, seconds=4000.0)))
        tell(TaskStarted(1, 3, "permutation 2"))
        clock.now += 1
        tell(EpochDone(1, 2))
        assert "1 h 06 min left" in terminal.rows()[-1]


def test_several_runs_stand_below_each_other_and_close_with_a_line_each(clock):
    terminal = Terminal(runs=3)
    closed = [
        "run 2/3  sn, seed 1  ACC 85.00 %  2,468 parameters  5.0 s",
        "run 1/3  bocl, seed 0  finished before",
        "run 3/3  joint, seed 2  failed: the disk is full",
    ]
    runs = [config(), config("method=sn", "seed=1"), config("method=joint", "seed=2")]

    def fail() -> None:
        with terminal.watch(runs[2]) as tell:
            tell(TaskStarted(0, 3, "permutation 1"))
            assert terminal.rows() == [*closed[:2], "run 3/3  joint, seed 2", "task 1/3  training"]
            raise WorkError("the disk is full")

    with terminal.display:
        first, second = ExitStack(), ExitStack()
        watched = first.enter_context(terminal.watch(runs[0]))
        tell = second.enter_context(terminal.watch(runs[1]))
        tell(TaskStarted(0, 3, "permutation 1"))
        tell(TaskDone(record(0)))
        tell(TaskStarted(1, 3, "permutation 2"))
        watched(TaskStarted(0, 3, "permutation 1"))
        below = ["run 1/3  bocl, seed 0", "task 1/3  training", "run 2/3  sn, seed 1", "task 2/3  training"]
        assert terminal.rows() == below
        tell(TaskDone(record(1, seconds=3.0)))
        second.close()
        assert terminal.rows() == [closed[0], *below[:2]]
        first.close()
        with pytest.raises(WorkError):
            fail()
        assert terminal.rows() == closed
    assert terminal.rows() == closed


def test_runs_may_tell_from_threads_of_their_own():
    terminal = Terminal(runs=4)

    def run(seed: int) -> None:
        with terminal.watch(config("method=sn", f"seed={seed}")) as tell:
            for index in range(3):
                tell(TaskStarted(index, 3, "permutation"))
                for epoch in range(20):
                    tell(EpochDone(epoch, 20))
                tell(TaskDone(record(index)))

    with terminal.display:
        threads = [Thread(target=run, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rows = terminal.rows()
    assert sorted(row[:7] for row in rows) == ["run 1/4", "run 2/4", "run 3/4", "run 4/4"]
    assert all("ACC 83.33 %  3,702 parameters  6.0 s" in row for row in rows)


@pytest.mark.parametrize(("left", "words"), [(2, "2 children"), (1, "1 child")])
def test_running_out_of_memory_leaves_a_line(left, words):
    terminal = Terminal()
    with terminal.display, terminal.watch(config()) as tell:
        tell(TaskStarted(1, 3, "permutation 2"))
        tell(OutOfMemory(left))
        assert terminal.rows()[1:] == [f"out of memory: continuing with {words} at once", "task 2/3  training"]


def test_rounds_that_are_recalled_leave_a_line():
    terminal = Terminal()
    with terminal.display, terminal.watch(config()) as tell:
        tell(TaskStarted(1, 3, "permutation 2", recalled=3))
        assert terminal.rows()[1] == "task 2/3  3 rounds recalled, not trained again"


def test_on_a_narrow_terminal_what_is_under_way_keeps_to_one_row(clock):
    terminal = Terminal(width=40)
    with terminal.display, terminal.watch(config()) as tell:
        tell(TaskStarted(1, 3, "permutation 2"))
        tell(SEARCH)
        tell(EpochDone(5, 10))
        rows = terminal.rows()
        assert rows[1:] == ["task 2/3  trial 1-2/9  epoch 5/10  0 s …"]
        tell(TaskDone(record(1, trials=10)))
        # What stays is wrapped by the terminal itself, so that it can be copied and grows with the window.
        stays = "task 2/3  permutation 2  (48, 24)  test 90.00 %  +1,234 parameters  9 trials  2.0 s"
        assert terminal.rows()[1] == stays


def test_the_cursor_is_back_after_an_interrupt():
    terminal = Terminal()

    def interrupted() -> None:
        with terminal.display, terminal.watch(config()) as tell:
            tell(TaskStarted(0, 3, "permutation 1"))
            assert terminal.written.getvalue().rpartition("\x1b[?25")[2].startswith("l")  # hidden
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert terminal.written.getvalue().rpartition("\x1b[?25")[2].startswith("h")
    assert terminal.rows() == ["bocl on permuted-digits, seed 0 → runs/here"]


def test_elsewhere_every_trial_has_a_plain_line():
    terminal = Terminal(interactive=False)
    with terminal.display, terminal.watch(config()) as tell:
        tell(TaskStarted(1, 3, "permutation 2"))
        tell(SEARCH)
        tell(TrialDone(1, Trial((1, 2), 0.8, 5_000, 0.7)))
        tell(TrialDone(2, Trial((30, 4), math.nan, 9, math.nan)))
        tell(TaskDone(record(1, trials=3)))
    assert terminal.written.getvalue().splitlines() == [
        "bocl on permuted-digits, seed 0 → runs/here",
        "task 2/3  trial 1/9  (1, 2)  80.00 %  +5,000 parameters",
        "task 2/3  trial 2/9  (30, 4)  failed  +9 parameters",
        "task 2/3  permutation 2  (48, 24)  test 90.00 %  +1,234 parameters  2 trials  2.0 s",
    ]


def test_a_child_says_what_it_reads_where_that_is_a_choice():
    terminal = Terminal(interactive=False)
    with terminal.display, terminal.watch(config()) as tell:
        tell(TaskStarted(1, 3, "permutation 2"))
        tell(SEARCH)
        tell(TrialDone(0, Trial((0, 0), 0.5, 10, 0.5, reads="first")))
        tell(TrialDone(1, Trial((48, 24), 0.9, 500, 0.9, reads="own")))
        tell(TrialDone(2, Trial((5, 5), 0.9, 500, 0.9)))
        tell(TrialDone(3, Trial((6, 5), math.nan, 500, math.nan, reads="near", rungs=(0.25,))))
        tell(TrialDone(4, Trial((7, 5), math.nan, 500, math.nan, reads="first", rungs=(0.25, 0.5))))
        tell(TrialDone(5, Trial((8, 5), math.nan, 500, math.nan, reads="first")))
    shown = [line.split("  ", 2)[2] for line in terminal.rows()[1:]]
    assert shown == [
        "(0, 0, reads first)  50.00 %  +10 parameters",
        "(48, 24, own network)  90.00 %  +500 parameters",
        "(5, 5, reads all)  90.00 %  +500 parameters",
        "(6, 5, reads near)  stopped at 25 % of the epochs  +500 parameters",
        "(7, 5, reads first)  stopped at 50 % of the epochs  +500 parameters",
        "(8, 5, reads first)  failed  +500 parameters",
    ]


def test_a_finished_task_says_what_it_reads_and_what_stopped_it_in_a_line_that_fits(clock):
    terminal = Terminal(interactive=False)
    grown = replace(
        record(9, trials=24), name="grignolino-or-barbera", reads=(0,), limit="tolerance", bounds=(128, 64), widened=1
    )
    with terminal.display, terminal.watch(config()) as tell:
        tell(TaskStarted(9, 10, grown.name))
        tell(TaskDone(grown))
        tell(TaskDone(replace(record(2, trials=4), limit="price")))
    rows = terminal.rows()
    assert rows[2] == "            reads task 1, growth stopped by the tolerance, bounds widened to (128, 64)"
    assert all(len(row) <= 100 for row in rows)
    assert len(rows) == 4, "a task that reads all and grew by its price has one line, as ever"

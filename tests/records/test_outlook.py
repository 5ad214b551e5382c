"""What is left of runs, estimated by hand-made seconds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bocl.records.outlook import outlook
from bocl.records.progress import Progress

NOW = 1_000_000.0
NEW = Progress(Path("run"), NOW, (0, 0), "sn", alike="sn", tasks=4)


def left(*runs, now=NOW):
    return [one.left for one in outlook(runs, now).runs]


def states(*runs, now=NOW):
    return [one.state for one in outlook(runs, now).runs]


def test_a_task_takes_as_long_as_those_that_the_run_has_finished():
    begun = replace(NEW, seconds=(10.0, 30.0))
    assert left(begun) == [40.0], "two tasks of 20 s"
    assert left(begun, now=NOW + 5) == [35.0]
    assert left(replace(begun, spent=12.0), now=NOW + 5) == [23.0], "what its rounds took, and the time since"
    assert left(replace(begun, spent=500.0)) == [20.0], "a task that takes longer than others will end soon"
    assert left(replace(begun, seconds=(1.0, 1.0, 1.0, 1.0))) == [0.0]


def test_otherwise_as_long_as_those_of_runs_alike():
    other = replace(NEW, seconds=(1000.0,), alike="sn with larger networks")
    alike = [replace(NEW, seconds=(5.0,) * 4), replace(NEW, seconds=(7.0,) * 4)]
    assert left(NEW, other) == [None, 3000.0]
    assert left(NEW, other, *alike)[0] == 24.0


def test_the_first_task_of_a_search_says_nothing_about_the_rest():
    new = replace(NEW, method="bocl", alike="bocl")
    first = replace(new, seconds=(1.0,))
    second = replace(new, seconds=(1.0, 50.0))
    assert left(new) == [None]
    assert left(first) == [None]
    assert left(second) == [100.0]
    assert left(new, first, second) == [151.0, 150.0, 100.0]
    assert left(replace(new, tasks=1), first) == [1.0, None]


def test_a_run_is_silent_after_three_of_its_tasks_and_ten_minutes_at_least():
    assert states(NEW, now=NOW + 3599) == ["under way"]
    assert states(NEW, now=NOW + 3601) == ["silent"], "an hour where nobody knows"
    short, long = replace(NEW, seconds=(1.0,)), replace(NEW, seconds=(400.0,))
    assert states(short, now=NOW + 599) == ["under way"]
    assert states(short, now=NOW + 601) == ["silent"]
    assert states(long, NEW, now=NOW + 1199) == ["under way", "under way"]
    assert states(long, NEW, now=NOW + 1201) == ["silent", "silent"], "by runs alike, too"
    assert states(replace(NEW, seconds=(1.0,) * 4), now=NOW + 10**6) == ["finished"]
    assert states(replace(NEW, problem="damaged")) == ["unreadable"]


def test_a_silent_run_has_spent_only_what_is_on_record():
    assert left(replace(NEW, seconds=(100.0,), spent=30.0), now=NOW + 10**6) == [270.0]


def test_a_clock_that_is_ahead_is_no_negative_age():
    (one,) = outlook([NEW], NOW - 60).runs
    assert (one.age, one.state) == (0.0, "under way")


def test_all_together_go_on_as_many_at_once_as_now():
    begun = replace(NEW, seconds=(10.0, 10.0))  # 20 s left
    last = replace(NEW, seconds=(10.0, 10.0, 10.0))  # 10 s
    assert (outlook([begun], NOW).left, outlook([begun], NOW).whole) == (20.0, True)
    assert outlook([begun, last, last], NOW).left == 20.0, "no less than the longest"
    idle = replace(begun, changed=NOW - 10**5)
    assert outlook([begun, idle, idle], NOW).left == 60.0, "one is at work, and what others left is to be done"
    assert outlook([begun, begun, idle, idle], NOW).left == 40.0
    assert outlook([idle], NOW).left is None, "nobody is at work"
    finished = replace(NEW, seconds=(10.0,) * 4)
    assert (outlook([finished], NOW).left, outlook([finished], NOW).whole) == (0.0, True)


def test_what_is_not_known_of_some_is_said_of_all():
    strange = replace(NEW, alike="other", method="ewc")
    found = outlook([replace(NEW, seconds=(10.0,)), strange], NOW)
    assert (found.left, found.whole) == (30.0, False)
    assert (outlook([strange], NOW).left, outlook([strange], NOW).whole) == (None, False)
    nothing = replace(NEW, alike="", method="", tasks=0)
    assert left(nothing) == [None]


def test_everything_as_json():
    told = outlook([replace(NEW, seconds=(10.0,), accuracy=0.5), replace(NEW, problem="damaged")], NOW).as_json()
    assert {name: told[name] for name in ("finished", "under_way", "silent", "unreadable", "seconds_left")} == {
        "finished": 0,
        "under_way": 1,
        "silent": 0,
        "unreadable": 1,
        "seconds_left": 30.0,
    }
    assert told["runs"][0] == {
        "folder": "run",
        "method": "sn",
        "seed": 0,
        "stream": "",
        "state": "under way",
        "tasks": 4,
        "tasks_finished": 1,
        "rounds": 0,
        "children": 0,
        "accuracy": 0.5,
        "node": "",
        "device": "",
        "seconds_since_written": 0.0,
        "seconds_left": 30.0,
        "problem": "",
    }


@pytest.mark.parametrize("count", [0, 1])
def test_there_may_be_no_run(count):
    found = outlook([replace(NEW, problem="damaged")] * count, NOW)
    assert (found.left, found.whole, found.count("unreadable")) == (0.0, True, count)

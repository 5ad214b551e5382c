"""What is said of tasks and trials."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from bocl.records.record import TaskRecord, Trial
from bocl.records.words import growth_words, kept_trial, kept_words, tasks_read

TASK = TaskRecord(
    index=4,
    name="autumn",
    widths=(3, 5),
    validation_row=(0.5,) * 5,
    row=(0.5,) * 5,
    parameters={"shared": 1},
    stored=5,
    trials=(Trial((0, 0), 0.5, 1, 0.5), Trial((3, 5), 0.5, 1, 0.5)),
    difficulty=math.nan,
    samples=1,
    seconds=1.0,
    training_seconds=1.0,
)
CHOSEN = replace(
    TASK,
    trials=tuple(Trial((3, 5), 0.5, 1, 0.5, reads=kind) for kind in ("first", "near", "all", "own")),
    limit="budget",
)


@pytest.mark.parametrize(
    ("reads", "kind", "short", "said"),
    [
        ((), "own", "own", "own network"),
        ((0,), "first", "1", "reads task 1"),
        ((1,), "near", "2", "reads task 2"),
        ((0, 1, 3), "near", "1, 2, 4", "reads tasks 1, 2, 4"),
        ((0, 1, 2, 3), "all", "all", "reads all tasks"),
    ],
)
def test_a_task_says_what_it_reads(reads, kind, short, said):
    task = replace(CHOSEN, reads=reads)
    assert tasks_read(task, 4) == short
    assert growth_words(task, 4) == f"{said}, growth stopped by the budget"
    assert kept_trial(task).reads == kind
    assert kept_words(task) == ("(3, 5, own network)" if kind == "own" else f"(3, 5, reads {kind})")


def test_many_tasks_are_counted():
    assert growth_words(replace(CHOSEN, index=9, reads=(0, 1, 2, 3, 7)), 9).startswith("reads 5 tasks, ")


@pytest.mark.parametrize("limit", ["", "price"])
def test_of_a_task_as_in_the_paper_nothing_is_said(limit):
    for reads in (None, (0, 1, 2, 3)):
        task = replace(TASK, reads=reads, limit=limit)
        assert tasks_read(task, 4) == growth_words(task, 4) == ""
        assert kept_words(task) == "(3, 5)"
        assert kept_trial(task) is task.trials[1]


def test_wider_bounds_are_said():
    task = replace(TASK, limit="bounds", bounds=(128, 32), widened=2)
    assert growth_words(task, 4) == "growth stopped by the bounds, bounds widened to (128, 32)"


def test_a_first_task_reads_nothing_worth_saying():
    assert growth_words(replace(TASK, index=0, reads=(), trials=()), 0) == ""

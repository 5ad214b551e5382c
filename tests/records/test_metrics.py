"""The metrics against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bocl.errors import InputError
from bocl.records.metrics import (
    average_accuracy,
    backward_transfer,
    first_task_forgetting,
    forgetting,
)

METRICS = [average_accuracy, backward_transfer, first_task_forgetting, forgetting]

# Task 0 rises to 0.9 before it falls, so forgetting and backward transfer differ.
THREE_TASKS = [[0.8], [0.9, 0.6], [0.5, 0.7, 0.75]]


def test_three_tasks_by_hand():
    assert average_accuracy(THREE_TASKS) == pytest.approx((0.5 + 0.7 + 0.75) / 3)
    assert backward_transfer(THREE_TASKS) == pytest.approx(((0.5 - 0.8) + (0.7 - 0.6)) / 2)
    assert first_task_forgetting(THREE_TASKS) == pytest.approx(0.9 - 0.5)
    assert forgetting(THREE_TASKS) == pytest.approx(((0.9 - 0.5) + (0.6 - 0.7)) / 2)


def test_the_last_row_is_no_best_to_forget_from():
    """A task that only improves has a negative forgetting, not zero."""
    assert forgetting([[0.5], [0.75, 1.0]]) == -0.25


def test_one_task():
    assert average_accuracy([[0.7]]) == 0.7
    assert backward_transfer([[0.7]]) == 0.0
    assert forgetting([[0.7]]) == first_task_forgetting([[0.7]]) == 0.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_nothing_changed_is_exactly_zero(accuracies):
    unchanged = [accuracies[: t + 1] for t in range(len(accuracies))]
    for metric in (backward_transfer, first_task_forgetting, forgetting):
        value = metric(unchanged)
        assert value == 0.0
        assert math.copysign(1.0, value) == 1.0


def test_negative_zeros_leave_no_sign():
    assert math.copysign(1.0, backward_transfer([[0.0], [-0.0, 1.0]])) == 1.0


def test_rows_of_numpy_give_plain_floats():
    rows = [np.asarray(row) for row in THREE_TASKS]
    for metric in METRICS:
        assert metric(rows) == metric(THREE_TASKS)
        assert type(metric(rows)) is float


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ([], "empty"),
        ([[]], "row 0 .* has 0 entries, not 1"),
        ([[0.5], [0.5]], "row 1 .* has 1 entries, not 2"),
        ([[0.5], [0.5, 0.5, 0.5]], "row 1 .* has 3 entries, not 2"),
        (np.eye(2), "row 0 .* has 2 entries, not 1"),
        ([[0.5], [math.nan, 0.5]], r"\[1\]\[0\] .* nan"),
        ([[None]], r"\[0\]\[0\] .* None"),
    ],
)
def test_what_is_no_lower_triangle_is_refused(metric, wrong, words):
    with pytest.raises(InputError, match=words):
        metric(wrong)

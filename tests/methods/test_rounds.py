"""Rounds: what children are padded to."""

from __future__ import annotations

import pytest

from bocl.methods.rounds import padding


@pytest.mark.parametrize(
    ("widths", "bounds", "wanted"),
    [
        ([(0, 0)], (29, 29), (0, 0)),
        ([(1, 2), (3, 0)], (29, 29), (4, 2)),
        ([(16, 17)], (29, 29), (16, 29)),
        ([(5, 29)], (5, 60), (5, 32)),
    ],
)
def test_a_round_is_padded_to_a_power_of_two_within_the_bounds(widths, bounds, wanted):
    assert padding(widths, bounds) == wanted


def test_the_order_of_children_changes_nothing():
    widths = [(1, 9), (6, 2), (0, 0)]
    assert padding(widths, (29, 29)) == padding(widths[::-1], (29, 29)) == (8, 16)

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bocl.tasks.partition import stratified_rows


def test_shares_follow_the_classes_and_add_up_exactly():
    labels = np.repeat([0, 1, 2], [601, 250, 149])
    kept, drawn = stratified_rows(labels, 100, seed=3)
    assert np.bincount(labels[drawn]).tolist() == [60, 25, 15]
    assert len(kept) == 900


def test_leftover_places_go_to_the_largest_remainders():
    labels = np.repeat([0, 1, 2], [4, 4, 2])  # exact shares of 3: 1.2, 1.2, 0.6
    _, drawn = stratified_rows(labels, 3, seed=0)
    assert np.bincount(labels[drawn]).tolist() == [1, 1, 1]


def test_a_rare_class_is_in_both_parts():
    labels = np.array([0] * 100 + [1, 1])
    for size in (1, 5, 101):
        kept, drawn = stratified_rows(labels, size, seed=0)
        assert set(labels[kept]) == set(labels[drawn]) == {0, 1}


def test_the_seed_decides():
    labels = np.arange(200) % 4
    first = stratified_rows(labels, 40, seed=1)[1]
    assert np.array_equal(first, stratified_rows(labels, 40, seed=1)[1])
    assert not np.array_equal(first, stratified_rows(labels, 40, seed=2)[1])


@given(
    sizes=st.lists(st.integers(2, 40), min_size=2, max_size=6),
    fraction=st.floats(0.01, 0.99),
    seed=st.integers(0, 2**32),
)
def test_nothing_lost_nothing_twice(sizes, fraction, seed):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    kept, drawn = stratified_rows(labels, round(fraction * len(labels)), seed)
    assert np.array_equal(np.sort(np.concatenate([kept, drawn])), np.arange(len(labels)))
    for rows in (kept, drawn):
        assert set(labels[rows]) == set(range(len(sizes)))
    expected = fraction * np.array(sizes)
    assert np.bincount(labels[drawn]) == pytest.approx(expected, abs=2)

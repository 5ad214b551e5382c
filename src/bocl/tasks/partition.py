"""Cuts labelled samples in two so that every class is in both parts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bocl.tasks.samples import Samples


def stratified_rows(
    labels: NDArray[np.int64], size: int, seed: int, leave: int = 1
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw ``size`` rows, from each class in proportion, and return (kept rows, drawn rows), both ascending.

    labels  (n,) integers 0 … C-1, every class more than ``leave`` times

    Shares are rounded by largest remainder, so that they add up to ``size``. At least one sample of each class is drawn
    and ``leave`` are kept, which may change the total if a class is very rare or ``size`` very large.
    """
    class_sizes = np.bincount(labels)  # (C,)
    exact = size * class_sizes / len(labels)
    share = np.floor(exact).astype(np.int64)
    by_remainder = np.argsort(share - exact, kind="stable")  # largest remainder first, ties by class
    share[by_remainder[: size - int(share.sum())]] += 1
    share = np.clip(share, 1, class_sizes - leave)

    generator = np.random.default_rng(seed)
    is_drawn = np.zeros(len(labels), dtype=bool)
    for label, count in enumerate(share):
        rows = np.flatnonzero(labels == label)
        is_drawn[generator.permutation(rows)[:count]] = True
    return np.flatnonzero(~is_drawn), np.flatnonzero(is_drawn)


def cut(samples: Samples, size: int, seed: int, leave: int = 1) -> tuple[Samples, Samples]:
    """Return (kept samples, drawn samples), cut by ``stratified_rows``."""
    kept, drawn = (
        replace(samples, inputs=samples.inputs[rows], labels=samples.labels[rows])
        for rows in stratified_rows(samples.labels, size, seed, leave)
    )
    return kept, drawn

"""All a searcher may know of a task: integers in, integers out. No networks, no data.

z ∈ {0 … bounds_1} × … × {0 … bounds_n}        maximise r(z) = A(z) - penalty(z)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bocl.records.record import Experience, Trial, Widths

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """One task's search.

    bounds      most units that may be added to each group, inclusive; 0 keeps a group as it is
    parameters  (n, groups) integers → (n,) parameters those widths would add
    penalty     (n, groups) integers → (n,) Σ α_i z_i, in units of accuracy
    known       children of this task already trained (z = 0); they can win, they are never asked for again
    history     earlier tasks of the run, oldest first
    difficulty  this task's M_t; NaN where it could not be measured
    seed        of every random choice the searcher makes
    budget      most parameters widths may add; None: any number
    target      accuracy that is enough; None: the reward decides
    candidates  the only widths that may be asked for; None: all of the box
    """

    bounds: Widths
    parameters: Callable[[IntArray], IntArray]
    penalty: Callable[[IntArray], FloatArray]
    known: tuple[Trial, ...] = ()
    history: tuple[Experience, ...] = ()
    difficulty: float = 0.0
    seed: int = 0
    budget: int | None = None
    target: float | None = None
    candidates: tuple[Widths, ...] | None = None


class Searcher(Protocol):
    """Ask for widths, tell what they were worth, take the best."""

    def ask(self, count: int) -> list[Widths]:
        """Return 1 … count new widths to train in one round; [] means the search is finished."""
        ...

    def tell(self, trials: Sequence[Trial]) -> None:
        """Take in trained children, in any order; a NaN accuracy is a failed trial."""
        ...

    def best(self) -> Widths:
        """Return the widths to commit: always those of a child that was trained."""
        ...

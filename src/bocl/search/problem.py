"""All a searcher may know of a task: integers in, integers out. No networks, no data.

z ∈ {0 … bounds_1} × … × {0 … bounds_n},  parameters(z) ≤ budget        maximise r(z)

    r(z) = A(z) - penalty(z)                                without a target
         = A(z)                         where A < target    with one: any child that reaches it beats all that do
         = target + SAVED s(z)          where A ≥ target    not, and of those the one with the fewest parameters wins

s(z) is the share that z saves of what could be added beyond z = 0, from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bocl.records.record import Diagnostics, Experience, Trial
from bocl.widths import Widths

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

#: What it is worth, in accuracy, to save all that could be added: the same for every target, so that a search for 0.999
#: goes on for as small a saving as one for 0.9 (``search.least_gain`` = 0.002 is a fiftieth of it).
SAVED = 0.1


@dataclass(frozen=True)
class Problem:
    """One task's search.

    bounds      most units that may be added to each group, inclusive; 0 keeps a group as it is
    parameters  (n, groups) integers → (n,) parameters those widths would add; never fewer for larger widths
    penalty     (n, groups) integers → (n,) Σ α_i z_i, in units of accuracy
    trained     children of this task already trained (z = 0); they can win, they are never asked for again
    history     earlier tasks of the run, oldest first
    difficulty  this task's M_t; NaN where it was not measured
    seed        of every random choice the searcher makes
    budget      most parameters this task may add, all of them: shared, head, attention, norms; None is no limit
    target      accuracy that is enough: the smallest network to reach it is wanted; None prices units by penalty
    candidates  the only widths that may be asked for; None: all of the box
    pending     children to be trained along with the first round (z = 0) and told with it; never asked for either
    """

    bounds: Widths
    parameters: Callable[[IntArray], IntArray]
    penalty: Callable[[IntArray], FloatArray]
    trained: tuple[Trial, ...] = ()
    history: tuple[Experience, ...] = ()
    difficulty: float = 0.0
    seed: int = 0
    budget: int | None = None
    target: float | None = None
    candidates: tuple[Widths, ...] | None = None
    pending: tuple[Widths, ...] = ()

    def allowed(self, z: IntArray) -> BoolArray:
        """Return (n,): which of the widths (n, groups) the budget lets be trained."""
        if self.budget is None:
            return np.ones(len(z), dtype=np.bool_)
        within: BoolArray = self.parameters(z) <= self.budget
        return within

    def reward(self, accuracy: FloatArray, z: IntArray) -> FloatArray:
        """Return r (…, n) of children with the widths (n, groups) that are, or were, as accurate as (…, n) says."""
        if self.target is None:
            return accuracy - self.penalty(z)
        ends = np.array([(0,) * len(self.bounds), self.bounds], dtype=np.int64)
        least, most = (int(number) for number in self.parameters(ends))
        most = most if self.budget is None else min(most, self.budget)
        saved = (most - self.parameters(z)) / max(most - least, 1)
        return np.where(accuracy >= self.target, self.target + SAVED * saved, accuracy)


@runtime_checkable
class Explains(Protocol):
    """A searcher that can be looked at from outside."""

    def diagnostics(self) -> Diagnostics | None:
        """Return how far its model is to be trusted and what it believes; None while there is none."""
        ...


class Searcher(Protocol):
    """Ask for widths, tell what they were worth, take the best.

    A class, or another factory of searchers, that has an attribute ``wants_difficulty = True`` has M_t measured before
    each search, which costs one more training; z = 0 is trained by then (``Problem.trained``). All others find NaN, and
    z = 0 in ``Problem.pending``.
    """

    def ask(self, count: int) -> list[Widths]:
        """Return 1 … count new widths to train in one round; [] means the search is finished."""
        ...

    def tell(self, trials: Sequence[Trial]) -> None:
        """Take in trained children, in any order, ``Problem.pending`` among the first; a NaN accuracy is a failure."""
        ...

    def best(self) -> Widths:
        """Return the widths to commit: always those of a child that was trained."""
        ...

"""All that a searcher knows about a task: integers in, integers out. No networks, no data.

z ∈ {0 … bounds_1} × … × {0 … bounds_n},  parameters(z) ≤ budget        maximise r(z)

    r(z) = A(z) - penalty(z)           without a target
         = A(z)                        with a target, where A < target
         = target + SAVED s(z)         with a target, where A ≥ target

With a target, any child that reaches it beats all that do not, and among those the one with the fewest parameters wins.
s(z), from 0 to 1, is the share of the parameters that could be added beyond z = 0 and that z does not add.
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

#: What it is worth, in accuracy, to add nothing. It is the same for every target, so that a search for 0.999 continues
#: for as small a saving as one for 0.9 (``search.least_gain`` = 0.002 is a fiftieth of it).
SAVED = 0.1


@dataclass(frozen=True)
class Problem:
    """One task's search.

    bounds      most units that may be added to each group, inclusive; 0 keeps a group as it is
    parameters  (n, groups) integers → (n,) parameters that those widths would add; never fewer for larger widths
    penalty     (n, groups) integers → (n,) Σ α_i z_i, in units of accuracy
    trained     children of this task that are already trained (z = 0); they can win, but must not be asked for
    history     earlier tasks of the run, oldest first
    difficulty  this task's M_t; NaN if it was not measured
    seed        for every random choice of the searcher
    budget      most parameters that this task may add in all: shared, head, attention, norms; None: no limit
    target      accuracy that is enough: the smallest network that reaches it wins; None: units are priced by penalty
    candidates  the only widths that may be asked for; None: the whole box
    pending     children that are trained and told with the first round (z = 0); they must not be asked for either
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
        """Return (n,): which of the widths (n, groups) are within the budget."""
        if self.budget is None:
            return np.ones(len(z), dtype=np.bool_)
        within: BoolArray = self.parameters(z) <= self.budget
        return within

    def reward(self, accuracy: FloatArray, z: IntArray) -> FloatArray:
        """Return r (…, n) of children with accuracies (…, n) and widths (n, groups)."""
        if self.target is None:
            return accuracy - self.penalty(z)
        ends = np.array([(0,) * len(self.bounds), self.bounds], dtype=np.int64)
        least, most = (int(number) for number in self.parameters(ends))
        most = most if self.budget is None else min(most, self.budget)
        saved = (most - self.parameters(z)) / max(most - least, 1)
        return np.where(accuracy >= self.target, self.target + SAVED * saved, accuracy)


@runtime_checkable
class Explains(Protocol):
    """A searcher that can explain itself."""

    def diagnostics(self) -> Diagnostics | None:
        """Return how far its model can be trusted and what it believes; None if there is no model yet."""
        ...


class Searcher(Protocol):
    """Ask for widths, tell how they did, take the best.

    If the class, or another factory of searchers, has an attribute ``wants_difficulty = True``, M_t is measured before
    each search. That costs one more training; z = 0 is then in ``Problem.trained``. Otherwise M_t is NaN, and z = 0 is
    in ``Problem.pending``.
    """

    def ask(self, count: int) -> list[Widths]:
        """Return 1 … count new widths to train in one round; [] ends the search."""
        ...

    def tell(self, trials: Sequence[Trial]) -> None:
        """Take in trained children, in any order, first ``Problem.pending``; a NaN accuracy means that one failed."""
        ...

    def best(self) -> Widths:
        """Return the widths to commit: those of a trained child."""
        ...

"""All that a searcher knows about a task: integers in, integers out. No networks, no data.

z ∈ {0 … bounds_1} × … × {0 … bounds_n},  parameters(z) ≤ budget        maximise r(z)

    r(z) = A(z) - penalty(z)                       with a price
         = A(z) - tolerance · p(z)                 with a tolerance
         = A(z)                                    with a target, where A < target
         = target + SAVED s(z)                     with a target, where A ≥ target

A(z) is the accuracy on validation samples, or the confidence where these are few (``measure``).
With a tolerance, the smallest child within it of the most accurate one is wanted; p(z), from 0 to 1, is the share of
the most parameters that may be added. r then has a constant price per parameter, and its best child is within the
tolerance too. With a target, any child that reaches it beats all that do not, and among those the one with the fewest
parameters wins. s(z), from 0 to 1, is the share of the parameters that could be added beyond z = 0 and that z does not
add.

Where a search also chooses what to read, z has one more entry, the number of the choice: points are widths and choice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bocl.records.record import Diagnostics, Experience, Measure, ReadsKind, Trial
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
    penalty     (n, groups) integers → (n,) what they cost, in units of accuracy: Σ α_i z_i, or a price of parameters
    trained     children of this task that are already trained (z = 0); they can win, but must not be asked for
    history     earlier tasks of the run, oldest first
    difficulty  this task's M_t; NaN if it was not measured
    seed        for every random choice of the searcher
    budget      most parameters that this task may add in all: shared, head, attention, norms; None: no limit
    target      accuracy that is enough: the smallest network that reaches it wins; None: another goal
    tolerance   accuracy that may be lost for a smaller network; None: another goal
    choices     what may be read, by kind: the last entry of a point is one of their numbers; none: nothing to choose
    candidates  the only widths that may be asked for; None: the whole box
    pending     children that are trained and told with the first round (z = 0); they must not be asked for either
    measure     what of a child A(z) is
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
    tolerance: float | None = None
    choices: tuple[ReadsKind, ...] = ()
    candidates: tuple[Widths, ...] | None = None
    pending: tuple[Widths, ...] = ()
    measure: Measure = "accuracy"

    def measured(self, trial: Trial) -> float:
        """Return A of a child, of this task or another; early records have accuracies only."""
        found: float = getattr(trial, self.measure)
        return trial.accuracy if math.isnan(found) else found

    @property
    def groups(self) -> int:
        """How many entries of a point are widths."""
        return len(self.bounds) - bool(self.choices)

    def point_of(self, trial: Trial) -> Widths | None:
        """Return the point of a child, of this task or another; None if this task has no such choice."""
        if not self.choices:
            return trial.widths if trial.reads == "all" else None
        return (*trial.widths, self.choices.index(trial.reads)) if trial.reads in self.choices else None

    def allowed(self, z: IntArray) -> BoolArray:
        """Return (n,): which of the points (n, groups) are within the budget, and networks."""
        within: BoolArray = np.ones(len(z), dtype=np.bool_)
        if self.budget is not None:
            within = self.parameters(z) <= self.budget
        if "own" in self.choices:  # a network of its own has units in every group
            own = z[:, -1] == self.choices.index("own")
            within &= ~own | (z[:, :-1] > 0).all(1)
        return within

    def share(self, z: IntArray) -> FloatArray:
        """Return (n,): parameters of points (n, groups) as a share of the most that may be added."""
        return self.parameters(z) / max(self._most(), 1)

    def _most(self) -> int:
        """Return the most parameters that a point may add."""
        widest = np.array([self.bounds] * max(len(self.choices), 1), dtype=np.int64)
        if self.choices:
            widest[:, -1] = np.arange(len(self.choices))
        most = int(self.parameters(widest).max())
        return most if self.budget is None else min(most, self.budget)

    def reward(self, accuracy: FloatArray, z: IntArray) -> FloatArray:
        """Return r (…, n) of children with accuracies (…, n) and points (n, groups)."""
        if self.tolerance is not None:
            return accuracy - self.tolerance * self.share(z)
        if self.target is None:
            return accuracy - self.penalty(z)
        least = int(self.parameters(np.zeros((1, len(self.bounds)), dtype=np.int64))[0])
        most = self._most()
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

    Where there is something to choose besides (``Problem.choices``), widths are points: asked for and told with the
    number of the choice as one more entry.

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

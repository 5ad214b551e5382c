"""Settings of a search: which searcher, how many trials, how far each group may grow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from bocl.checks import Natural, NonNegative, OneOrEach, Positive, PositiveInt, per_group, section
from bocl.widths import Widths

SearchKind = Literal["bayesian", "paper", "random", "reinforce"]
ControllerName = Literal["tuned", "as-released"]
MOST_UNITS = 100_000  # that one group may grow by for one task: far more than is useful or fits in memory
Units = Annotated[Natural, Field(le=MOST_UNITS)]


@section("search")
@dataclass(frozen=True)
class SearchSettings:
    """Settings of one task's search, the same for every searcher so that comparisons are fair.

    kind              which searcher: "bayesian" (a Gaussian process on accuracy), "paper" (on the reward, as in the
                      paper), "random" or "reinforce" (RCL's)
    trials            N: most children trained after the opening points
    patience          H: children in a row without a new best reward, after the opening points, that end the search
    warm_points       m: opening points, trained before the search proper begins
    bounds            most units a group may grow by: one number for all groups, or one per group. None: as many as the
                      base network has, and twice as many again whenever the best child lies on a bound
    round_size        children asked for, and trained together, in one round; a searcher may give fewer. A child that is
                      always a candidate (a network of the task's own, or z = 0) is trained with the first round, or
                      before it if children are trained one by one
    memory_gb         most memory that children trained together may take; a larger round is trained in parts
    children_at_once  most children trained together: a larger round is trained in parts; None: as many as fit
    parts             into how many parts a round is split at least, which several devices can train at once. How a
                      round is split shows in the last bits of its children, whatever trains its parts
    halving           stop children of a round early that others leave behind; none where they are trained one by one
    least_gain        "bayesian" only: it ends when no point is expected to raise the reward by this much; 0: never.
                      Once a target is reached, adding nothing at all counts as a gain of 0.1. With a tolerance it ends
                      when neither a fifth of it is expected to be gained nor 2 % of all parameters to be saved
    transfer          "bayesian" only: whether the trials of earlier tasks are data for this one
    controller        "reinforce" only: "tuned" to learn within a few dozen trials, or "as-released" by RCL's authors
    """

    kind: SearchKind = "bayesian"
    trials: PositiveInt = 5
    patience: PositiveInt = 5
    warm_points: Natural = 3
    bounds: OneOrEach[Units] | None = None
    round_size: PositiveInt = 8
    memory_gb: Positive = 16.0
    children_at_once: PositiveInt | None = None
    parts: PositiveInt = 1
    halving: bool = True
    least_gain: NonNegative = 2e-3
    transfer: bool = True
    controller: ControllerName = "tuned"

    @property
    def most_trials(self) -> int:
        """M + N: the most children a search of one task trains."""
        return self.warm_points + self.trials

    def bounds_for(self, base: Widths) -> Widths:
        """Return one bound per hidden group of a network whose base network has these widths."""
        return base if self.bounds is None else per_group("search.bounds", self.bounds, len(base))

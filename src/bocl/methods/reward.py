"""What a child costs, by its units or by its parameters.

r(z) = A(z) - α cost(z)        cost(z) = Σ P_i z_i / Σ_j P_j        [paper, Evaluation of Points; α_i = α P_i / Σ_j P_j]
r(z) = A(z) - p P(z) / 1000    P(z): all parameters that z adds; p is the same in every task, α a share of the widths
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bocl.checks import NonNegative, section

Weighting = Literal["unit", "added", "uniform"]
USUAL_ALPHA = 5e-3
MOST_ALPHA = 1e6  # an accuracy is at most 1: from there on no unit is ever worth its price


@section("reward")
@dataclass(frozen=True)
class RewardSettings:
    """The price of a unit.

    alpha      α: accuracy that one unit in every layer together must be worth. None: units have no price of their own,
               and the goal is a target, a tolerance or a price of parameters (``GoalSettings``). `rcl` takes 0.005
               unless the goal is a price of parameters
    weighting  P_i: `unit` = what one more unit in layer i brings, in- and out-edges, at the current widths;
               `added` = what z itself adds inside layer i (the literal reading, not monotone in z);
               `uniform` = every layer alike (as in RCL)
    """

    alpha: Annotated[NonNegative, Field(le=MOST_ALPHA)] | None = None
    weighting: Weighting = "unit"


def unit_costs(parameters: Callable[[NDArray[np.int64]], NDArray[np.int64]], groups: int) -> NDArray[np.int64]:
    """Return (groups,): what one more unit in just this group brings."""
    z = np.vstack([np.zeros((1, groups), dtype=np.int64), np.eye(groups, dtype=np.int64)])
    totals = parameters(z)
    costs: NDArray[np.int64] = totals[1:] - totals[0]
    return costs


def make_cost(
    weighting: Weighting,
    groups: int,
    *,
    parameters: Callable[[NDArray[np.int64]], NDArray[np.int64]],
    by_group: Callable[[NDArray[np.int64]], NDArray[np.int64]],
) -> Callable[[NDArray[np.int64]], NDArray[np.float64]]:
    """Return z (n, groups) → Σ P_i z_i / Σ_j P_j (n,): the units added, weighted, which α is the price of.

    parameters  (n, groups) → (n,) shared and head parameters, attention left out
    by_group    (n, groups) → (n, groups) parameters added inside each group's own layers
    """
    fixed = unit_costs(parameters, groups) if weighting == "unit" else np.ones(groups)

    def cost(z: Any) -> NDArray[np.float64]:
        z = np.asarray(z, dtype=np.int64)
        weights = by_group(z) if weighting == "added" else fixed
        total = np.maximum(weights.sum(-1, keepdims=True), 1)  # 0 only where z adds nothing
        result: NDArray[np.float64] = (z * weights / total).sum(-1)
        return result

    return cost


def parameter_price(price: float, added: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return p P(z) / 1000 (n,): what children must be worth that add so many parameters (n,)."""
    cost: NDArray[np.float64] = price * added / 1000
    return cost

"""What a child is worth.

r(z) = A(z) - Σ α_i z_i        α_i = α P_i / Σ_j P_j        [paper, Evaluation of Points]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from bocl.checks import number, settle, word

Weighting = Literal["unit", "added", "uniform"]
MOST_ALPHA = 1e6  # an accuracy is at most 1: from there on no unit is ever worth its price


@dataclass(frozen=True)
class RewardSettings:
    """The price of a unit.

    alpha      α: accuracy that one unit in every layer together must be worth
    weighting  P_i: `unit` = what one more unit in layer i brings, in- and out-edges, at the current widths;
               `added` = what z itself adds inside layer i (the literal reading, not monotone in z);
               `uniform` = every layer alike (as in RCL)
    """

    alpha: float = 5e-3
    weighting: Weighting = "unit"

    def __post_init__(self) -> None:
        settle(self, "reward", alpha=number(least=0, most=MOST_ALPHA), weighting=word(*get_args(Weighting)))


def unit_costs(parameters: Callable[[NDArray[np.int64]], NDArray[np.int64]], groups: int) -> NDArray[np.int64]:
    """Return (groups,): what one more unit in each group alone brings."""
    z = np.vstack([np.zeros((1, groups), dtype=np.int64), np.eye(groups, dtype=np.int64)])
    totals = parameters(z)
    costs: NDArray[np.int64] = totals[1:] - totals[0]
    return costs


def make_penalty(
    settings: RewardSettings,
    groups: int,
    *,
    parameters: Callable[[NDArray[np.int64]], NDArray[np.int64]],
    by_group: Callable[[NDArray[np.int64]], NDArray[np.int64]],
) -> Callable[[NDArray[np.int64]], NDArray[np.float64]]:
    """Return z (n, groups) → Σ α_i z_i (n,).

    parameters  (n, groups) → (n,) shared and head parameters, attention left out
    by_group    (n, groups) → (n, groups) parameters added inside each group's own layers
    """
    fixed = unit_costs(parameters, groups) if settings.weighting == "unit" else np.ones(groups)

    def penalty(z: Any) -> NDArray[np.float64]:
        z = np.asarray(z, dtype=np.int64)
        costs = by_group(z) if settings.weighting == "added" else fixed
        total = np.maximum(costs.sum(-1, keepdims=True), 1)  # 0 only where z adds nothing
        result: NDArray[np.float64] = (settings.alpha * z * costs / total).sum(-1)
        return result

    return penalty

"""The warm start: a search opens with what earlier tasks of like difficulty were given.

Of the earlier tasks (M_j, z_j), the paper's episodic memory, the m nearest in |M_j - M_t| come first; random untried
points fill up.
"""

from __future__ import annotations

import math

from bocl.search.lattice import lies_in
from bocl.search.problem import Problem
from bocl.widths import Widths


def earlier_points(problem: Problem) -> list[Widths]:
    """Return the widths committed for earlier tasks, nearest difficulty first, each once.

    Of equally near tasks the more recent comes first; tasks whose difficulty is unknown come last. Widths outside the
    bounds or of a network of another shape are left out; where this task's difficulty is unknown, nothing is near it.
    """
    if math.isnan(problem.difficulty):
        return []
    recent_first = problem.history[::-1]
    nearest_first = sorted(recent_first, key=lambda task: _distance(task.difficulty, problem.difficulty))
    points = dict.fromkeys(task.best for task in nearest_first)
    return [point for point in points if lies_in(point, problem.bounds)]


def _distance(one: float, other: float) -> float:
    return math.inf if math.isnan(one) else abs(one - other)

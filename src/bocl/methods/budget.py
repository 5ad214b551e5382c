"""How much a network may grow for a task, so that it and all tasks to come stay within a number of parameters.

    a search       parameters(z) ≤ min(budget, ⌊left of the total / tasks left⌋)
    fixed growth   z_i = ⌊k w_i / max w⌋, the largest k for which all tasks together stay within the total

The even share of what is left is always enough for z = 0, whatever was chosen before. A head, gates and norms read a
network as wide as z makes it, so what the next task costs without growing, c, is part of what this one adds, and is
at most the share. With n tasks to come at least n shares are left, so the next share is no smaller, and c fits.
This takes tasks to have as many classes as the one at hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from bocl.checks import Fraction, Positive, PositiveInt, section
from bocl.errors import ConfigError
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.growth import GrowthSpace
from bocl.search.lattice import largest, scaled
from bocl.search.settings import MOST_UNITS
from bocl.widths import Widths
from bocl.wording import counted

MOST_BUDGET = 10**12  # parameters: far beyond what memory holds
Budget = Annotated[PositiveInt, Field(le=MOST_BUDGET)]


@section("goal")
@dataclass(frozen=True)
class GoalSettings:
    """What is wanted of a search, and what it may spend; None sets no limit.

    budget        most parameters each task after the first may add, all of them: shared, head, attention, norms. With
                  the tolerance as goal, None is what a network of its own would take
    total_budget  most parameters stored after the last task; what one task leaves, those after it may use
    target        validation accuracy to be reached: the smallest network that does is wanted, whatever reward.alpha
    tolerance     accuracy that may be lost for a smaller network: the smallest one is wanted that is so close to the
                  best the search finds, or within the standard error of that one if it is larger. It is the goal where
                  no target and no reward.alpha is given
    """

    budget: Budget | None = None
    total_budget: Budget | None = None
    target: Annotated[Positive, Field(le=1)] | None = None
    tolerance: Fraction = 0.005


def check_affordable(network: ExpandableNetwork, goal: GoalSettings, classes: int, *, tasks: int) -> None:
    """Refuse budgets within which not even z = 0 fits for each of ``tasks`` more tasks of ``classes`` classes."""
    base = _base_parameters(network, classes)
    later = tasks if network.tasks else tasks - 1
    each = _least(network, classes) if later else 0
    if goal.budget is not None and each > goal.budget:
        raise ConfigError(
            f"goal.budget is {goal.budget:,}, but a task of {classes} classes takes {each:,} parameters without "
            f"growing; give at least {each:,}"
        )
    least = base + later * each
    if goal.total_budget is not None and least > goal.total_budget:
        raise ConfigError(
            f"goal.total_budget is {goal.total_budget:,}, but "
            + ("what is stored, " if network.tasks else "the base network, ")
            + f"and {counted(later, 'more task')} without growing, take {least:,} parameters; give at least {least:,}"
        )


def task_budget(network: ExpandableNetwork, goal: GoalSettings, *, tasks: int) -> int | None:
    """Return the most parameters the next of ``tasks`` more tasks may add; None where there is no limit."""
    limits = [goal.budget] if goal.budget is not None else []
    if goal.total_budget is not None:
        limits.append((goal.total_budget - _stored(network)) // tasks)
    return min(limits, default=None)


def most_units(network: ExpandableNetwork, shape: Widths, classes: int, *, tasks: int, left: int) -> int:
    """Return the largest k for which ``tasks`` more tasks of ``classes`` classes add at most ``left`` parameters.

    Each grows the network by ``scaled(shape, k)``, a first one by the base network whatever k. -1 where not even
    k = 0 fits. What is added never falls as k rises, so k is found by bisection.
    """

    def fits(k: int) -> bool:
        steps = [scaled(shape, k)] * tasks
        if not network.tasks:
            steps[0] = network.graph.widths
        widths, room = network.widths(), left
        for z in steps:
            room -= int(GrowthSpace(network.graph, widths, classes, network.settings).count_all(z))
            if room < 0:
                return False
            if network.settings.reads != "first":
                widths = network.graph.total([widths, z])
        return True

    high = 1
    while high < MOST_UNITS and fits(high):  # from below: counts of widths beyond any budget would overflow
        high = min(2 * high, MOST_UNITS)
    return largest(high, fits)


def _stored(network: ExpandableNetwork) -> int:
    return sum(network.parameters().values())


def _base_parameters(network: ExpandableNetwork, classes: int) -> int:
    """Count what is stored, or what the first task will store."""
    if network.tasks:
        return _stored(network)
    return int(network.space(classes).count_all(network.graph.widths))


def _least(network: ExpandableNetwork, classes: int) -> int:
    """Count the least that one more task can add; before the first task, what the second will add."""
    graph, reads = network.graph, network.settings.reads
    if reads == "own":
        return int(GrowthSpace.first(graph, classes).count_all((1,) * len(graph.groups)))
    read = None if reads == "all" else (0,)
    widths = network.widths(read) if network.tasks else graph.widths  # of the first task, at most
    return int(GrowthSpace(graph, widths, classes, network.settings).count_all(graph.no_units))

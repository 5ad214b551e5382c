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

from bocl.checks import Fraction, NonNegative, Positive, PositiveInt, section
from bocl.errors import ConfigError
from bocl.methods.reading import reads_of
from bocl.networks.growing import GrowingNetwork
from bocl.search.lattice import largest, scaled
from bocl.search.settings import MOST_UNITS
from bocl.widths import Widths
from bocl.wording import counted

MOST_BUDGET = 10**12  # parameters: far beyond what memory holds
Budget = Annotated[PositiveInt, Field(le=MOST_BUDGET)]
USUAL_TOLERANCE = 0.005


@section("goal")
@dataclass(frozen=True)
class GoalSettings:
    """What is wanted of a search, and what it may spend; None sets no limit.

    budget        most parameters each task after the first may add, all of them: shared, head, attention, norms. With
                  the tolerance or the price as goal, None is what a network of its own would take
    total_budget  most parameters stored after the last task; what one task leaves, those after it may use
    target        validation accuracy to be reached: the smallest network that does is wanted, whatever reward.alpha
    tolerance     accuracy that may be lost for a smaller network: the smallest one is wanted that is so close to the
                  best the search finds, or within the standard error of that one if it is larger (up to twice as
                  much). It is the goal where no target and no reward.alpha is given. With fewer than 100 validation
                  samples, networks are compared by the mean probability of the right class instead of accuracy
    price         validation accuracy that 1,000 parameters more must be worth, in every task of the stream: 0.01 is one
                  point. The network with the most accuracy left after paying for all it adds is wanted; networks are
                  compared as with the tolerance. None: another goal. It goes with neither of those, nor reward.alpha
    """

    budget: Budget | None = None
    total_budget: Budget | None = None
    target: Annotated[Positive, Field(le=1)] | None = None
    tolerance: Fraction = USUAL_TOLERANCE
    price: NonNegative | None = None

    def __post_init__(self) -> None:
        if self.price is not None and self.target is not None:
            raise ConfigError("goal.price and goal.target are different goals; give one of them")
        if self.price is not None and self.tolerance != USUAL_TOLERANCE:
            raise ConfigError("goal.price and goal.tolerance are different goals; give one of them")


def check_affordable(network: GrowingNetwork, goal: GoalSettings, classes: int, *, tasks: int) -> None:
    """Refuse budgets within which not even z = 0 fits for each of ``tasks`` more tasks of ``classes`` classes."""
    base = _base_parameters(network, classes)
    later = tasks - 1 if _makes_network(network) else tasks
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
            + ("the base network, " if _makes_network(network) else "what is stored, ")
            + f"and {counted(later, 'more task')} without growing, take {least:,} parameters; give at least {least:,}"
        )


def task_budget(network: GrowingNetwork, goal: GoalSettings, *, tasks: int) -> int | None:
    """Return the most parameters the next of ``tasks`` more tasks may add; None where there is no limit."""
    limits = [goal.budget] if goal.budget is not None else []
    if goal.total_budget is not None:
        limits.append((goal.total_budget - _stored(network)) // tasks)
    return min(limits, default=None)


def most_units(network: GrowingNetwork, shape: Widths, classes: int, *, tasks: int, left: int) -> int:
    """Return the largest k for which ``tasks`` more tasks of ``classes`` classes add at most ``left`` parameters.

    Each grows the network by ``scaled(shape, k)``, and one that makes the network by all of it. -1 where not even k = 0
    fits. What is added never falls as k rises, so k is found by bisection.
    """
    reads, graph = network.settings.reads, network.graph
    nothing = reads == "own" or (reads == "choose" and network.pretrained)

    def fits(k: int) -> bool:
        steps = [network.useful(scaled(shape, k))] * tasks
        if _makes_network(network):
            steps[0] = graph.widths
        read, room = network.widths(reads_of(network)), left
        for number, z in enumerate(steps, start=len(network.tasks)):
            room -= int(network.space_after(read, classes).count_all(z))
            if room < 0:
                return False
            if not nothing and (number == 0 or reads != "first"):
                read = graph.total([read, z])
        return True

    high = 1
    while high < MOST_UNITS and fits(high):  # from below: counts of widths beyond any budget would overflow
        high = min(2 * high, MOST_UNITS)
    return largest(high, fits)


def _stored(network: GrowingNetwork) -> int:
    return sum(network.parameters().values())


def _makes_network(network: GrowingNetwork) -> bool:
    """Whether the next task makes the network that later ones grow from."""
    return not network.tasks and not network.pretrained


def _base_parameters(network: GrowingNetwork, classes: int) -> int:
    """Count what is stored, or what the task that makes the network will store."""
    return network.own_parameters(classes) if _makes_network(network) else _stored(network)


def _least(network: GrowingNetwork, classes: int) -> int:
    """Count the least that one more task can add; before the task that makes the network, what the next will add."""
    graph, reads = network.graph, network.settings.reads
    if network.pretrained:
        read = network.widths(network.all_tasks[: {"all": None, "first": 1}.get(reads, 0)])
    elif reads == "own":
        return int(network.space_after(graph.no_units, classes).count_all((1,) * len(graph.groups)))
    elif _makes_network(network):
        read = graph.widths  # of the first task, at most
    else:
        read = network.widths(None if reads == "all" else (0,))
    return int(network.space_after(read, classes).count_all(graph.no_units))

"""How much a network may grow for every task, so that all tasks together stay within a number of parameters.

z_i = ⌊k w_i / max w⌋        the largest k for which the parameters of all tasks add up to at most the budget
"""

from __future__ import annotations

from bisect import bisect_left

from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.graph import Widths
from bocl.networks.growth import count
from bocl.search.settings import MOST_UNITS


def scaled(shape: Widths, k: int) -> Widths:
    """Return widths in the proportions of ``shape``, rounded down, whose largest entry is k."""
    return tuple(k * width // max(shape) for width in shape)


def most_units(network: ExpandableNetwork, shape: Widths, classes: int, *, tasks: int, left: int) -> int:
    """Return the largest k for which ``tasks`` more tasks of ``classes`` classes add at most ``left`` parameters.

    Each grows the network by ``scaled(shape, k)``, a first one by the base network whatever k. -1 where not even
    k = 0 fits. What is added never falls as k rises, so k is found by bisection.
    """

    def too_many(k: int) -> bool:
        steps = [scaled(shape, k)] * tasks
        if not network.tasks:
            steps[0] = network.graph.widths
        widths, room = network.widths, left
        for z in steps:
            room -= sum(int(part) for part in count(network.graph, widths, z, classes, network.settings).values())
            if room < 0:
                return True
            widths = tuple(old + new for old, new in zip(widths, z, strict=True))
        return False

    high = 1
    while high < MOST_UNITS and not too_many(high):  # from below: counts of widths beyond any budget would overflow
        high = min(2 * high, MOST_UNITS)
    return bisect_left(range(high + 1), True, key=too_many) - 1

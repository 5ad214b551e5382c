"""When a search is over, for every searcher. ``bayesian.py`` may end earlier, when it expects no more gain.

The first m trials open the search, whoever chose them. After them a search ends with

    N  more trials,  or  H  of them in a row without a new best reward,  or  no untried point left.

Pending trials count as if they brought no new best. So a searcher that is asked for many points at once never trains
a point that it would not have trained when asked for one at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from bocl.records.record import Trial
from bocl.search.settings import SearchSettings


def trials_left(told: Sequence[Trial], *, pending: int, untried: int, settings: SearchSettings) -> int:
    """Return how many more points may be handed out now; with nothing pending, 0 means that the search is over.

    told     trained children in the order they were told; a failed one counts as a trial, never as a new best
    pending  number of points handed out and not told yet
    untried  number of lattice points neither trained nor pending
    """
    opening_left = max(0, settings.warm_points - len(told))
    searched = max(0, len(told) - settings.warm_points)
    search_left = min(settings.trials - searched, settings.patience - trials_without_gain(told, settings))
    if search_left <= 0:
        return 0
    return max(0, min(opening_left + search_left - pending, untried))


def trials_without_gain(told: Sequence[Trial], settings: SearchSettings) -> int:
    """Return how many trials after the opening ones have passed since the best reward so far."""
    best = float("-inf")
    stale = 0
    for position, trial in enumerate(told):
        if not trial.failed and trial.reward > best:
            best = trial.reward
            stale = 0
        elif position >= settings.warm_points:
            stale += 1
    return stale

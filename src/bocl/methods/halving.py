"""Successive halving: the children of a round that are behind after a part of the epochs are not trained further."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bocl.records.record import Measure

FEWEST_EPOCHS = 4  # with fewer, a quarter of them says nothing
FEWEST_CHILDREN = 3


@dataclass(frozen=True)
class Halving:
    """When children of a round are compared, and how many go on.

    rungs   epochs after which all children of the round are compared, rising
    keep    how many of them go on, for every rung
    sizes   parameters that each child adds
    spared  children that are never stopped, by their places in the round; they count towards ``keep``
    by      what they are compared by
    """

    rungs: tuple[int, ...]
    keep: tuple[int, ...]
    sizes: tuple[int, ...]
    spared: tuple[int, ...] = ()
    by: Measure = "accuracy"


def halving_for(
    epochs: int, count: int, sizes: Sequence[int], spared: Sequence[int] = (), by: Measure = "accuracy"
) -> Halving | None:
    """Return the halving of a round of ``count`` children; None where it would stop nobody or know too little.

    After a quarter of the epochs a third of the children go on, after half of them a quarter, both rounded up. At least
    two go on, and at least one besides those that are spared, so that there is something to compare in the end.
    """
    if epochs < FEWEST_EPOCHS or count < FEWEST_CHILDREN:
        return None
    fewest, going = max(2, len(spared) + 1), count
    rungs, keep = [], []
    for rung, share in ((_divided(epochs, 4), 3), (_divided(epochs, 2), 4)):
        staying = max(fewest, _divided(count, share))
        if staying < going:
            rungs.append(rung)
            keep.append(staying)
            going = staying
    return Halving(tuple(rungs), tuple(keep), tuple(sizes), tuple(spared), by) if rungs else None


def going_on(scores: Mapping[int, float], halving: Halving, keep: int) -> list[int]:
    """Return the places of the children that go on after a rung, in the order of the round.

    scores  what the children are compared by, by place; all of them are numbers
    """
    order = ranked(scores, halving.sizes)
    spared = [place for place in order if place in halving.spared]
    others = [place for place in order if place not in halving.spared]
    return sorted(spared + others[: max(keep - len(spared), 0)])


def ranked(scores: Mapping[int, float], sizes: Sequence[int]) -> list[int]:
    """Return places, the highest score first; among equals fewer parameters first, then lower places.

    Size does not count beyond that. Ranked by what a goal makes of both, or by Pareto fronts, small children that are
    only small take the places of those that would win in the end.
    """
    return sorted(scores, key=lambda place: (-scores[place], sizes[place], place))


def _divided(number: int, by: int) -> int:
    return -(-number // by)

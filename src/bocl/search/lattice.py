"""The integer box {0 … bounds_1} × … × {0 … bounds_n}, never listed unless it is nearly used up."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence, Set

import numpy as np
from numpy.typing import NDArray

from bocl.records.record import Widths


def lattice_size(bounds: Widths) -> int:
    """Return the number of points in the box."""
    return math.prod(bound + 1 for bound in bounds)


def whole_lattice(bounds: Widths) -> NDArray[np.int64]:
    """Return all points of a small box, (n, groups), in lexicographic order."""
    return np.indices([bound + 1 for bound in bounds]).reshape(len(bounds), -1).T


def lies_in(widths: Widths, bounds: Widths) -> bool:
    """Return whether widths are whole numbers inside the box, one per group."""
    return len(widths) == len(bounds) and all(
        isinstance(width, int | np.integer) and 0 <= width <= bound for width, bound in zip(widths, bounds, strict=True)
    )


def random_untried(bounds: Widths, taken: Set[Widths], seed: int, among: Sequence[Widths] | None = None) -> Widths:
    """Return a point drawn uniformly from those of the box that are not in ``taken`` (a subset of the box).

    At least one must be left. While more than half of the box is free, two draws are enough on average;
    after that the box holds at most twice as many points as were taken, so listing it is cheap. With ``among``,
    the point is one of those.
    """
    generator = np.random.default_rng(seed)
    if among is None and lattice_size(bounds) > 2 * len(taken):
        while True:
            drawn = generator.integers(0, np.asarray(bounds, dtype=np.int64), endpoint=True)
            point = tuple(drawn.tolist())
            if point not in taken:
                return point
    box = itertools.product(*(range(bound + 1) for bound in bounds))
    free = [point for point in (box if among is None else among) if point not in taken]
    return free[int(generator.integers(len(free)))]


def ring(centre: Widths, radius: int, bounds: Widths) -> Iterator[Widths]:
    """Yield the points of the box at distance Σ |z_i - centre_i| = radius, in lexicographic order."""
    reach = sum(max(middle, bound - middle) for middle, bound in zip(centre, bounds, strict=True))
    if radius > reach:
        return
    if not bounds:
        yield ()  # radius is 0 here: the groups before this one have used it up
        return
    middle, bound = centre[0], bounds[0]
    for width in range(max(0, middle - radius), min(bound, middle + radius) + 1):
        for rest in ring(centre[1:], radius - abs(width - middle), bounds[1:]):
            yield (width, *rest)


def distance(point: Widths, other: Widths) -> int:
    """Return Σ |z_i - z'_i|."""
    return sum(abs(a - b) for a, b in zip(point, other, strict=True))


def nearest_untried(
    centre: Widths, bounds: Widths, taken: Set[Widths], among: Sequence[Widths] | None = None
) -> list[Widths]:
    """Return the untried points of the smallest ring around ``centre`` that has any; [] when all are taken.

    Every smaller ring is used up, so the work grows with the number of points taken, not with the box. With
    ``among``, the points are of those.
    """
    if among is not None:
        distances = {point: distance(point, centre) for point in among if point not in taken}
        least = min(distances.values(), default=0)
        return [point for point, far in distances.items() if far == least]
    for radius in range(sum(bounds) + 1):
        free = [point for point in ring(centre, radius, bounds) if point not in taken]
        if free:
            return free
    return []

"""The integer box {0 … bounds_1} × … × {0 … bounds_n}, or the part of it that a budget allows.

The box is only listed when it is nearly used up. If a point is allowed, so is every point that is nowhere wider. So a
walk of single steps stays inside, and bisection finds the largest width of one group.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence, Set

import numpy as np

from bocl.search.problem import BoolArray, IntArray
from bocl.widths import Widths

Allowed = Callable[[IntArray], BoolArray]  # (n, groups) → (n,)
MOST_DRAWS = 256  # for one point, before another way is tried


def lattice_size(bounds: Widths) -> int:
    """Return the number of points in the box."""
    return math.prod(bound + 1 for bound in bounds)


def whole_lattice(bounds: Widths) -> IntArray:
    """Return all points of a small box, (n, groups), in lexicographic order."""
    return np.indices([bound + 1 for bound in bounds]).reshape(len(bounds), -1).T


def lies_in(widths: Widths, bounds: Widths) -> bool:
    """Return whether widths are whole numbers inside the box, one per group."""
    return len(widths) == len(bounds) and all(
        isinstance(width, int | np.integer) and 0 <= width <= bound for width, bound in zip(widths, bounds, strict=True)
    )


def scaled(shape: Widths, k: int) -> Widths:
    """Return widths in the proportions of ``shape``, rounded down, whose largest entry is k."""
    return tuple(k * width // max(shape) for width in shape)


def largest(most: int, fits: Callable[[int], bool]) -> int:
    """Return the largest of 0 … most that fits; -1 if none does. Every number below one that fits must fit too."""
    return bisect_left(range(most + 1), True, key=lambda number: not fits(number)) - 1


def room(points: IntArray, group: int, bounds: Widths, allowed: Allowed) -> IntArray:
    """Return (k,): the most units that the group may have, given the other entries of each point (k, groups)."""
    low, high = np.zeros(len(points), dtype=np.int64), np.full(len(points), bounds[group], dtype=np.int64)
    guess = high
    while np.any(low < high):
        tried = points.copy()
        tried[:, group] = guess
        fits = allowed(tried)
        low, high = np.where(fits, guess, low), np.where(fits, high, guess - 1)
        guess = (low + high + 1) // 2
    return low


def listed(bounds: Widths, allowed: Allowed, start: Widths = ()) -> Iterator[Widths]:
    """Yield the allowed points that begin with ``start``, in lexicographic order."""
    if len(start) == len(bounds):
        yield start
        return
    rest = (0,) * (len(bounds) - len(start) - 1)
    for width in range(bounds[len(start)] + 1):
        if (width or not start) and not _is_allowed((*start, width, *rest), allowed):
            return
        yield from listed(bounds, allowed, (*start, width))


def random_untried(
    bounds: Widths, taken: Set[Widths], seed: int, allowed: Allowed, every: Callable[[], Iterator[Widths]] | None = None
) -> Widths:
    """Return a random allowed point that is not in ``taken``; at least one must be left.

    every  makes a list of all allowed points, where ``listed`` does not do so

    It is drawn uniformly from the box until a point is allowed. If so little of the box is allowed that this fails, a
    point is drawn group by group, in random order, each uniformly from what the budget leaves it. If more than half of
    the box is taken, it is drawn from a list of the points left.
    """
    generator = np.random.default_rng(seed)
    if lattice_size(bounds) > 2 * len(taken):
        for _ in range(MOST_DRAWS):
            point = tuple(generator.integers(0, np.asarray(bounds, dtype=np.int64), endpoint=True).tolist())
            if point not in taken and _is_allowed(point, allowed):
                return point
        for _ in range(MOST_DRAWS):
            row = np.zeros((1, len(bounds)), dtype=np.int64)
            for group in generator.permutation(len(bounds)).tolist():
                row[0, group] = generator.integers(0, room(row, group, bounds, allowed)[0], endpoint=True)
            point = tuple(row[0].tolist())
            if point not in taken and _is_allowed(point, allowed):
                return point
    points = listed(bounds, allowed) if every is None else every()
    free = (point for point in points if point not in taken)
    some = list(itertools.islice(free, 2 * len(taken) + 1))
    return some[int(generator.integers(len(some)))]


def nearest_untried(centre: Widths, bounds: Widths, taken: Set[Widths], allowed: Allowed) -> list[Widths]:
    """Return the allowed points not in ``taken`` at the least distance Σ |z_i - centre_i|, in lexicographic order.

    A centre that is not allowed is first made narrower, in its proportions. [] means that all are taken. Rings around
    the centre are looked at in turn, so the work grows with the number of points taken, not with the box.
    """
    if not _is_allowed(centre, allowed):
        k = largest(max(centre), lambda k: _is_allowed(scaled(centre, k), allowed)) if any(centre) else -1
        if k < 0:
            return []
        centre = scaled(centre, k)
    inner: set[Widths] = set()
    ring = {centre}
    while ring:
        free = sorted(ring - taken)
        if free:
            return free
        steps = sorted({point for middle in ring for point in _neighbours(middle, bounds)} - inner)
        kept = allowed(np.array(steps, dtype=np.int64).reshape(-1, len(bounds)))
        inner, ring = ring, {point for point, inside in zip(steps, kept, strict=True) if inside}
    return []


def nearest_of(points: Sequence[Widths], centre: Widths) -> list[Widths]:
    """Return the points at the least distance Σ |z_i - centre_i|."""
    distances = [sum(abs(a - b) for a, b in zip(point, centre, strict=True)) for point in points]
    least = min(distances, default=0)
    return [point for point, far in zip(points, distances, strict=True) if far == least]


def _neighbours(point: Widths, bounds: Widths) -> Iterator[Widths]:
    """Yield the points of the box that differ by one unit of one group."""
    for group, (width, bound) in enumerate(zip(point, bounds, strict=True)):
        for other in (width - 1, width + 1):
            if 0 <= other <= bound:
                yield (*point[:group], other, *point[group + 1 :])


def _is_allowed(point: Widths, allowed: Allowed) -> bool:
    return bool(allowed(np.array([point], dtype=np.int64))[0])

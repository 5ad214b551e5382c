"""Where names stand next to marks: each where there is room, none over another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from bocl.report.drawing import Place, text_width

Area = tuple[float, float, float, float]  # left, top, right, bottom

#: Where a name may stand, best first: how far right of its mark and how far below. It begins, ends or is centred there.
_SPOTS = (
    *((1.0, 0.0), (-1.0, 0.0), (0.0, -1.0), (0.0, 1.0)),
    *((across, down) for far in (1.0, 2.0) for across in (0.7, -0.7) for down in (-far, far)),
    *((0.0, -2.5), (0.0, 2.5)),
    *((across, down) for across in (2.0, -2.0) for down in (-1.5, 1.5)),
)


@dataclass(frozen=True)
class Name:
    """A name that stands next to the first of its marks with room; ``rivals`` are marks it could be taken to name."""

    text: str
    marks: Sequence[Place]
    rivals: Sequence[Place] = ()


def free_places(names: Sequence[Name], taken: Sequence[Area], sheet: Area, size: float) -> list[Place | None]:
    """Return where each name begins on a sheet, nearer to its mark than to any rival; None where it has no room.

    taken  what names may not cover, marks included
    """
    filled = [*taken]
    found: list[Place | None] = []
    for name in names:
        found.append(None)
        width = text_width(name.text, size)
        for (x, y), (across, down) in product(name.marks, _SPOTS):
            left = x + 0.8 * size * across - (0.0 if across > 0 else width if across < 0 else width / 2)
            middle = y + 1.15 * size * down
            area = (left, middle - 0.55 * size, left + width, middle + 0.55 * size)
            own = _distance(area, (x, y))
            mistaken = any(_distance(area, rival) < own for rival in name.rivals)
            if _inside(area, sheet) and not mistaken and not any(_meet(area, other) for other in filled):
                found[-1] = (left, middle + 0.35 * size)
                filled.append(area)
                break
    return found


def _inside(area: Area, sheet: Area) -> bool:
    return area[0] >= sheet[0] and area[1] >= sheet[1] and area[2] <= sheet[2] and area[3] <= sheet[3]


def _meet(one: Area, other: Area) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _distance(area: Area, place: Place) -> float:
    """Return how far a place is outside an area."""
    x, y = place
    return math.hypot(max(area[0] - x, 0.0, x - area[2]), max(area[1] - y, 0.0, y - area[3]))

"""A drawing: lines, shapes and words at places, in units of 1/72 inch. ``svg.py`` puts it on paper."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from bocl.report.style import Style

Place = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """A line through places."""

    places: tuple[Place, ...]
    colour: str
    width: float = 1.0
    dash: tuple[float, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Shape:
    """A filled polygon, or with ``outline`` its edge around paper."""

    places: tuple[Place, ...]
    colour: str
    opacity: float = 1.0
    outline: bool = False
    note: str = ""


@dataclass(frozen=True)
class Circle:
    """A filled circle, or with ``outline`` its edge: around paper, or around nothing where it is ``empty``."""

    centre: Place
    radius: float
    colour: str
    outline: bool = False
    empty: bool = False
    note: str = ""


@dataclass(frozen=True)
class Box:
    """A filled rectangle."""

    x: float
    y: float
    width: float
    height: float
    colour: str
    note: str = ""


@dataclass(frozen=True)
class Words:
    """A line of text. ``anchor``: which part of it is at the place; ``upward``: turned to read from below."""

    place: Place
    text: str
    size: float = 11.0
    anchor: str = "start"
    colour: str = "ink"
    bold: bool = False
    upward: bool = False


Item = Line | Shape | Circle | Box | Words


@dataclass
class Drawing:
    """Items on a sheet, later ones over earlier ones; ``label`` says what they show."""

    width: float
    height: float
    label: str
    items: list[Item] = field(default_factory=list)


def mark(place: Place, style: Style, size: float = 4.0, note: str = "") -> Shape | Circle:
    """Return the mark of a style at a place; every mark covers about the area of a circle of radius ``size``."""
    if style.mark == "circle":
        return Circle(place, size, style.colour, style.hollow, note=note)
    outline = tuple((place[0] + size * x, place[1] + size * y) for x, y in _OUTLINES[style.mark])
    return Shape(outline, style.colour, outline=style.hollow, note=note)


def text_width(text: str, size: float) -> float:
    """Return about how wide a text is, whatever the reader's font."""
    return 0.61 * size * len(text)


def _ring(corners: int, radius: float, turned: float = 0.0, inner: float | None = None) -> tuple[Place, ...]:
    """Return the corners of a regular shape, the first at the top; with ``inner`` a star."""
    steps = corners if inner is None else 2 * corners
    return tuple(
        (
            (radius if inner is None or not index % 2 else inner) * math.sin(math.tau * index / steps + turned),
            -(radius if inner is None or not index % 2 else inner) * math.cos(math.tau * index / steps + turned),
        )
        for index in range(steps)
    )


def _crossed(turned: float) -> tuple[Place, ...]:
    """Return a plus of arms as wide as long, turned."""
    arm, end = 0.38, 1.15
    corner = [(-arm, -end), (arm, -end), (arm, -arm), (end, -arm), (end, arm), (arm, arm)]
    whole = [*corner, *((-x, -y) for x, y in corner)]
    return tuple(
        (x * math.cos(turned) - y * math.sin(turned), x * math.sin(turned) + y * math.cos(turned)) for x, y in whole
    )


_OUTLINES: dict[str, tuple[Place, ...]] = {
    "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    "diamond": _ring(4, 1.25),
    "triangle": _ring(3, 1.3),
    "wedge": _ring(3, 1.3, math.pi),
    "plus": _crossed(0.0),
    "cross": _crossed(math.pi / 4),
    "pentagon": _ring(5, 1.15),
    "star": _ring(5, 1.45, inner=0.6),
    "bar": ((-1.3, -0.5), (1.3, -0.5), (1.3, 0.5), (-1.3, 0.5)),
    "hexagon": _ring(6, 1.1),
}

"""A drawing in SVG: lines, shapes and text at places, in units of 1/72 inch.

A colour is a role of ``colours``, or fixed. In a page, roles follow the reader's theme; in a file, light paper.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle

from bocl.report.style import Style, colours
from bocl.wording import one_line

Place = tuple[float, float]
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


@dataclass
class Drawing:
    """SVG elements on a sheet, later ones over earlier ones; ``label`` says what they show.

    A ``note`` is shown when the reader hovers over its element.
    """

    width: float
    height: float
    label: str
    elements: list[tuple[str, dict[str, str], str]] = field(default_factory=list)  # tag, attributes, text or note

    def line(
        self, places: Sequence[Place], colour: str, width: float, dash: Sequence[float] = (), note: str = ""
    ) -> None:
        """Draw a line through places."""
        dashes = " ".join(map(_number, dash)) or None
        self._add(
            "path", note, d=_path(places), fill="none", stroke=colour, stroke_width=width, stroke_dasharray=dashes
        )

    def shape(self, places: Sequence[Place], colour: str, inside: str = "", opacity: str = "", note: str = "") -> None:
        """Draw a filled polygon; with ``inside``, its edge around that colour."""
        self._add("path", note, d=f"{_path(places)}z", **_filled(colour, inside), opacity=opacity or None)

    def circle(self, centre: Place, radius: float, colour: str, inside: str = "", note: str = "") -> None:
        """Draw a filled circle; with ``inside``, its edge around that colour."""
        self._add("circle", note, cx=centre[0], cy=centre[1], r=radius, **_filled(colour, inside))

    def mark(self, place: Place, style: Style, size: float, note: str = "") -> None:
        """Draw the mark of a style; every mark covers about the area of a circle of radius ``size``."""
        inside = "paper" if style.hollow else ""
        if style.mark == "circle":
            self.circle(place, size, style.colour, inside, note)
        else:
            outline = [(place[0] + size * x, place[1] + size * y) for x, y in _OUTLINES[style.mark]]
            self.shape(outline, style.colour, inside, note=note)

    def box(self, corner: Place, width: float, height: float, colour: str, note: str = "") -> None:
        """Draw a filled rectangle from its top left corner."""
        self._add("rect", note, x=corner[0], y=corner[1], width=width, height=height, fill=colour)

    def words(
        self, place: Place, text: str, size: float, anchor: str = "start", colour: str = "ink", **more: str
    ) -> None:
        """Write a line of text; ``anchor`` says which part of it is at the place."""
        own = {} if anchor == "middle" else {"text_anchor": anchor}
        self._add("text", text, x=place[0], y=place[1], font_size=size, fill=colour, **own, **more)

    def title(self, place: Place, text: str, size: float) -> None:
        """Write a line of bold text."""
        self.words(place, text, size, font_weight="600")

    def upward(self, place: Place, text: str, size: float) -> None:
        """Write the name of a vertical axis, to be read from below, with its middle at the place."""
        x, y = map(_number, place)
        self.words(place, text, size, "middle", "muted", transform=f"rotate(-90 {x} {y})")

    def inline(self) -> str:
        """Return an SVG element for a page that defines every role of ``colours`` as a variable."""
        roles = colours()
        return self._svg(lambda colour: f"var(--{colour})" if colour in roles else colour)

    def standalone(self) -> str:
        """Return an SVG file."""
        roles = colours()
        head = f' xmlns="http://www.w3.org/2000/svg" font-family="{_FONT}"'
        return self._svg(lambda colour: roles[colour][0] if colour in roles else colour, head) + "\n"

    def _add(self, tag: str, text: str, **attributes: str | float | None) -> None:
        """Add an element with the attributes that are not None."""
        kept = {name.replace("_", "-"): value for name, value in attributes.items() if value is not None}
        self.elements.append((tag, {name: _number(value) for name, value in kept.items()}, text))

    def _svg(self, colour: Callable[[str], str], head: str = "") -> str:
        width, height = _number(self.width), _number(self.height)
        size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        body = [f'<rect width="100%" height="100%" fill="{colour("paper")}"/>'] if head else []
        for tag, attributes, text in self.elements:
            painted = {
                name: colour(value) if name in ("fill", "stroke") else value for name, value in attributes.items()
            }
            element = " ".join([tag, *(f'{name}="{value}"' for name, value in painted.items())])
            inside = f"<title>{_escape(text)}</title>" if text and tag != "text" else _escape(text)
            body.append(f"<{element}>{inside}</{tag}>" if inside else f"<{element}/>")
        # text-anchor: most text is centred, so only the rest has its own
        label = f'role="img" aria-label="{_escape(self.label)}" text-anchor="middle"'
        return f"<svg{head} {size} {label}>{''.join(body)}</svg>"


def _filled(colour: str, inside: str) -> dict[str, str]:
    return {"fill": inside, "stroke": colour, "stroke_width": "1.4"} if inside else {"fill": colour}


def _path(places: Sequence[Place]) -> str:
    return "M" + "L".join(f"{_number(x)} {_number(y)}" for x, y in places)


def _number(value: str | float) -> str:
    """Return a length in tenths; what is text already stays as it is."""
    text = value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def _escape(text: str) -> str:
    return html.escape(one_line(text))


def text_width(text: str, size: float) -> float:
    """Return about how wide a text is, whatever the reader's font."""
    return 0.61 * size * len(text)


def _ring(corners: int, *radii: float, turned: float = 0.0) -> tuple[Place, ...]:
    """Return the corners of a regular shape, the first at the top; with two radii a star."""
    steps = corners * len(radii)
    angles = [math.tau * index / steps + turned for index in range(steps)]
    return tuple((radius * math.sin(at), -radius * math.cos(at)) for at, radius in zip(angles, cycle(radii)))


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
    "wedge": _ring(3, 1.3, turned=math.pi),
    "plus": _crossed(0.0),
    "cross": _crossed(math.pi / 4),
    "pentagon": _ring(5, 1.15),
    "star": _ring(5, 1.45, 0.6),
    "bar": ((-1.3, -0.5), (1.3, -0.5), (1.3, 0.5), (-1.3, 0.5)),
    "hexagon": _ring(6, 1.1),
}

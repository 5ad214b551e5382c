"""Drawings as SVG: inside the page, where colours follow the reader's, or as files of their own, on white."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape as escape_html

from bocl.report.drawing import Box, Circle, Drawing, Item, Line, Place, Shape, Words
from bocl.report.style import colours
from bocl.wording import one_line

NAMESPACE = "http://www.w3.org/2000/svg"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def inline(drawing: Drawing) -> str:
    """Return an SVG for a page that defines every role of ``colours`` as a variable."""
    roles = colours()
    return _svg(drawing, lambda role: f"var(--{role})" if role in roles else role)


def standalone(drawing: Drawing) -> str:
    """Return an SVG file."""
    roles = colours()
    head = f' xmlns="{NAMESPACE}" font-family="{FONT}"'
    return _svg(drawing, lambda role: roles[role][0] if role in roles else role, head) + "\n"


def _escape(text: str) -> str:
    return escape_html(one_line(text))


def _svg(drawing: Drawing, colour: Callable[[str], str], head: str = "") -> str:
    width, height = _number(drawing.width), _number(drawing.height)
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    label = _escape(drawing.label)
    paper = f'<rect width="100%" height="100%" fill="{colour("paper")}"/>' if head else ""
    body = "".join(_item(item, colour) for item in drawing.items)
    # most words stand in the middle of their place, so the others alone say where they stand
    return f'<svg{head} {size} role="img" aria-label="{label}" text-anchor="middle">{paper}{body}</svg>'


def _item(item: Item, colour: Callable[[str], str]) -> str:
    match item:
        case Line():
            dash = f' stroke-dasharray="{" ".join(map(_number, item.dash))}"' if item.dash else ""
            look = f'fill="none" stroke="{colour(item.colour)}" stroke-width="{_number(item.width)}"{dash}'
            return _noted("path", f'd="M{_path(item.places)}" {look}', item.note)
        case Shape():
            look = _filled(item.colour, item.outline, False, colour)
            faint = f' opacity="{item.opacity:g}"' if item.opacity < 1 else ""
            return _noted("path", f'd="M{_path(item.places)}z" {look}{faint}', item.note)
        case Circle():
            x, y = map(_number, item.centre)
            look = _filled(item.colour, item.outline, item.empty, colour)
            return _noted("circle", f'cx="{x}" cy="{y}" r="{_number(item.radius)}" {look}', item.note)
        case Box():
            place = f'x="{_number(item.x)}" y="{_number(item.y)}"'
            size = f'width="{_number(item.width)}" height="{_number(item.height)}"'
            return _noted("rect", f'{place} {size} fill="{colour(item.colour)}"', item.note)
        case Words():
            return _words(item, colour)


def _words(item: Words, colour: Callable[[str], str]) -> str:
    x, y = map(_number, item.place)
    anchor = "" if item.anchor == "middle" else f' text-anchor="{item.anchor}"'
    weight = ' font-weight="600"' if item.bold else ""
    turn = f' transform="rotate(-90 {x} {y})"' if item.upward else ""
    look = f'font-size="{_number(item.size)}" fill="{colour(item.colour)}"{anchor}{weight}{turn}'
    return f'<text x="{x}" y="{y}" {look}>{_escape(item.text)}</text>'


def _filled(role: str, outline: bool, empty: bool, colour: Callable[[str], str]) -> str:
    if not outline:
        return f'fill="{colour(role)}"'
    inside = "none" if empty else colour("paper")
    return f'fill="{inside}" stroke="{colour(role)}" stroke-width="1.4"'


def _noted(tag: str, attributes: str, note: str) -> str:
    return f"<{tag} {attributes}><title>{_escape(note)}</title></{tag}>" if note else f"<{tag} {attributes}/>"


def _path(places: Sequence[Place]) -> str:
    return "L".join(f"{_number(x)} {_number(y)}" for x, y in places)


def _number(value: float) -> str:
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text

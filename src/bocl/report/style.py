"""How things look: colours by their role, marks and dashes.

A method has the colour and the mark of its entry in the table of methods; its variants have dashes and hollow marks.
BOCL with another search has the colour of that search, lighter or darker, because such curves run close together.
"""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

from bocl.method_table import METHODS, MethodEntry
from bocl.report.systems import System, search_kind

_ROLES: dict[str, tuple[str, str]] = {
    "ink": ("#1c2127", "#e6eaee"),
    "muted": ("#5f6b76", "#9aa6b2"),
    "grid": ("#dfe4e9", "#323a43"),
    "paper": ("#ffffff", "#14181d"),
    "panel": ("#f5f7f9", "#1c2229"),
    "known": ("#c3ccd5", "#4a5561"),
    "paper-search": ("#3b2f8f", "#b3a8ff"),
    "random-search": ("#98a1aa", "#717c87"),
    "reinforce-search": ("#056777", "#8fe3ef"),
}

MARKS = ("circle", "square", "diamond", "triangle", "wedge", "plus", "cross", "pentagon", "star", "bar", "hexagon")
DASHES: tuple[tuple[float, ...], ...] = ((), (6, 3), (2, 2.5), (8, 2.5, 2, 2.5), (4, 2), (1, 2), (10, 3))

#: Heat maps, least to most: perceptually even, also for colour-blind readers (after Cividis).
HEAT = ("#fdf3c9", "#e8d98b", "#c5b56c", "#9a9475", "#73787a", "#4d5f77", "#20477a", "#0b2d5e")


@dataclass(frozen=True)
class Style:
    """How one system is drawn.

    colour  a role of ``colours``
    mark    one of MARKS
    dash    lengths of dashes and gaps; () is a solid line
    hollow  whether its marks are outlines
    """

    colour: str
    mark: str = "circle"
    dash: tuple[float, ...] = ()
    hollow: bool = False


def colours() -> dict[str, tuple[str, str]]:
    """Return role → (on light paper, on dark paper); a method's name is the role of its colour."""
    return {**{entry.name: entry.colour for entry in METHODS.values()}, **_ROLES}


def style_of(system: System) -> Style:
    """Return the style of a system: colour and mark of its method; variants have dashes and hollow marks.

    A method that is not in the table is drawn in ink, with a mark picked by its name.
    """
    entry = METHODS.get(system.method)
    if entry is None:
        return Style("ink", _mark_for(system.method), DASHES[system.variant % len(DASHES)], hollow=True)
    dash = DASHES[1 + (system.variant - 1) % (len(DASHES) - 1)] if system.variant else _own_dash(entry)
    mark = entry.mark if entry.mark in MARKS else _mark_for(entry.name)
    searched = f"{search_kind(system)}-search"
    if system.changed == ("search.kind",) and searched in _ROLES:
        return Style(searched, mark, dash, hollow=True)
    later = max(system.variant - 1, 0)  # from the second variant on, marks differ too
    return Style(entry.name, MARKS[(MARKS.index(mark) + later) % len(MARKS)], dash, hollow=system.variant > 0)


def plain_style(method: str) -> Style:
    """Return the style of a run that is shown by itself: its method's colour."""
    return Style(method if method in METHODS else "ink")


def heat(share: float) -> tuple[str, str]:
    """Return the colour for a value at ``share`` of the range, 0 to 1, and a colour to write on it."""
    place = min(max(share, 0.0), 1.0) * (len(HEAT) - 1)
    low = min(int(place), len(HEAT) - 2)
    parts = [
        round(start + (end - start) * (place - low))
        for start, end in zip(bytes.fromhex(HEAT[low][1:]), bytes.fromhex(HEAT[low + 1][1:]), strict=True)
    ]
    dark = 0.299 * parts[0] + 0.587 * parts[1] + 0.114 * parts[2] < 140
    return f"#{bytes(parts).hex()}", "#ffffff" if dark else "#1c2127"


def _own_dash(entry: MethodEntry) -> tuple[float, ...]:
    """Return the dash of a method as it is: none, except for controls and for methods that look like an earlier one."""
    if entry.control:
        controls = [other.name for other in METHODS.values() if other.control]
        return DASHES[1 + controls.index(entry.name) % 3]
    alike = [other.name for other in METHODS.values() if (other.colour, other.mark) == (entry.colour, entry.mark)]
    return DASHES[alike.index(entry.name) % len(DASHES)]


def _mark_for(name: str) -> str:
    return MARKS[crc32(name.encode()) % len(MARKS)]

"""How things look: one colour for each method, told apart by marks and dashes too.

Colours are named by their role, and each has a value on light and on dark paper. Those of the methods follow Okabe
and Ito, whose palette people with any kind of colour blindness can tell apart; controls are greys. Other searches for
BOCL, whose curves run close together, have colours of their own, of unlike lightness; inside, all are BOCL's.
"""

from __future__ import annotations

from dataclasses import dataclass

from bocl.method_table import METHODS
from bocl.report.systems import System, search_kind

#: role → (on light paper, on dark paper)
COLOURS: dict[str, tuple[str, str]] = {
    "ink": ("#1c2127", "#e6eaee"),
    "muted": ("#5f6b76", "#9aa6b2"),
    "grid": ("#dfe4e9", "#323a43"),
    "paper": ("#ffffff", "#14181d"),
    "panel": ("#f5f7f9", "#1c2229"),
    "known": ("#c3ccd5", "#4a5561"),
    "met": ("#00714f", "#3ecf9f"),
    "missed": ("#b34700", "#ff9d5c"),
    "bocl": ("#d55e00", "#f28a3c"),
    "rcl": ("#0072b2", "#4fa8e0"),
    "den": ("#009e73", "#2fc79a"),
    "pgn": ("#b85c92", "#e092c0"),
    "gem": ("#3a9bd1", "#8fd3f7"),
    "ewc": ("#c58a00", "#efb93f"),
    "sn": ("#7a7420", "#d3cc55"),
    "fixed": ("#4b555f", "#c3ccd4"),
    "frozen": ("#85909b", "#8b97a3"),
    "independent": ("#1c2127", "#e6eaee"),
    "joint": ("#a0aab4", "#6f7b87"),
    "paper-search": ("#3b2f8f", "#b3a8ff"),
    "random-search": ("#98a1aa", "#717c87"),
    "reinforce-search": ("#056777", "#8fe3ef"),
}

MARKS = ("circle", "square", "diamond", "triangle", "wedge", "plus", "cross", "pentagon", "star", "bar", "hexagon")
DASHES: tuple[tuple[float, ...], ...] = ((), (6, 3), (2, 2.5), (8, 2.5, 2, 2.5), (4, 2), (1, 2), (10, 3))

#: Heat maps, least to most: perceptually even, and the same to everyone (after Cividis).
HEAT = ("#fdf3c9", "#e8d98b", "#c5b56c", "#9a9475", "#73787a", "#4d5f77", "#20477a", "#0b2d5e")


@dataclass(frozen=True)
class Style:
    """How one system is drawn.

    colour  a role of COLOURS
    mark    one of MARKS
    dash    lengths of dashes and gaps; () is a whole line
    hollow  whether its marks are outlines
    """

    colour: str
    mark: str = "circle"
    dash: tuple[float, ...] = ()
    hollow: bool = False


def style_of(system: System) -> Style:
    """Return the style of a system: colour and mark of its method; a variant has dashes and hollow marks.

    BOCL with another search has that search's colour.
    """
    if system.method not in METHODS:
        return Style("ink", MARKS[-1], DASHES[system.variant % len(DASHES)], hollow=True)
    rank = list(METHODS).index(system.method)
    own = () if rank < 7 else DASHES[1 + (rank - 7) % 3]  # controls are dashed
    dash = DASHES[1 + (system.variant - 1) % (len(DASHES) - 1)] if system.variant else own
    searched = f"{search_kind(system)}-search"
    colour = searched if system.changed == ("search.kind",) and searched in COLOURS else system.method
    return Style(colour, MARKS[rank], dash, hollow=system.variant > 0)


def plain_style(method: str) -> Style:
    """Return how a run is drawn that stands alone: in its method's colour."""
    return Style(method if method in METHODS else "ink")


def heat(share: float) -> tuple[str, str]:
    """Return the colour for a value at ``share`` of the range, 0 to 1, and a colour to write on it."""
    place = min(max(share, 0.0), 1.0) * (len(HEAT) - 1)
    low = min(int(place), len(HEAT) - 2)
    parts = [
        round(start + (end - start) * (place - low))
        for start, end in zip(_channels(HEAT[low]), _channels(HEAT[low + 1]), strict=True)
    ]
    dark = 0.299 * parts[0] + 0.587 * parts[1] + 0.114 * parts[2] < 140
    return "#" + "".join(f"{part:02x}" for part in parts), "#ffffff" if dark else "#1c2127"


def _channels(colour: str) -> list[int]:
    return [int(colour[start : start + 2], 16) for start in (1, 3, 5)]

"""Drawings as PDF, with their fonts inside, for papers. Matplotlib puts our lines and words on its page."""

from __future__ import annotations

import io
from typing import Any

from bocl.errors import InputError
from bocl.report.drawing import Box, Circle, Drawing, Item, Line, Shape, Words
from bocl.report.svg import light
from bocl.wording import one_line

_ANCHORS = {"start": "left", "middle": "center", "end": "right"}


def to_pdf(drawing: Drawing) -> bytes:
    """Return a PDF of one page, the size of the drawing; the same drawing gives the same bytes."""
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_pdf import FigureCanvasPdf
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("figures as PDF need matplotlib; install it with pip install 'bocl[report]'") from error
    with mpl.rc_context({"pdf.fonttype": 42, "font.family": "DejaVu Sans", "text.parse_math": False}):
        figure = Figure(figsize=(drawing.width / 72, drawing.height / 72))
        sheet = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        sheet.set_xlim(0, drawing.width)
        sheet.set_ylim(drawing.height, 0)
        sheet.set_axis_off()
        for order, item in enumerate(drawing.items):
            _put(sheet, item, order)
        page = io.BytesIO()
        FigureCanvasPdf(figure).print_figure(
            page, format="pdf", metadata={"CreationDate": None, "Creator": None, "Producer": None}
        )
    return page.getvalue()


def _put(sheet: Any, item: Item, order: int) -> None:
    from matplotlib import patches
    from matplotlib.lines import Line2D

    match item:
        case Line():
            xs, ys = zip(*item.places, strict=True)
            line = Line2D(xs, ys, color=light(item.colour), linewidth=item.width, zorder=order)
            if item.dash:
                line.set_dashes([length / item.width for length in item.dash])
            sheet.add_line(line)
        case Shape():
            look = _filled(item.colour, item.outline, False)
            sheet.add_patch(patches.Polygon(item.places, closed=True, alpha=item.opacity, zorder=order, **look))
        case Circle():
            look = _filled(item.colour, item.outline, item.empty)
            sheet.add_patch(patches.Circle(item.centre, item.radius, zorder=order, **look))
        case Box():
            look = _filled(item.colour, False, False)
            sheet.add_patch(patches.Rectangle((item.x, item.y), item.width, item.height, zorder=order, **look))
        case Words():
            sheet.text(
                *item.place,
                one_line(item.text),
                fontsize=0.93 * item.size,  # its letters are wider than those of most screens
                color=light(item.colour),
                ha=_ANCHORS[item.anchor],
                va="baseline",
                weight="bold" if item.bold else "normal",
                rotation=90 if item.upward else 0,
                rotation_mode="anchor",
                zorder=order,
            )


def _filled(role: str, outline: bool, empty: bool) -> dict[str, Any]:
    if not outline:
        return {"facecolor": light(role), "edgecolor": "none"}
    return {"facecolor": "none" if empty else light("paper"), "edgecolor": light(role), "linewidth": 1.4}

"""What a drawing shows, read from its SVG."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET


def read_svg(drawing):
    """Return a drawing as an element of a page; colours are ``var(--role)``."""
    return ET.fromstring(drawing.inline())


def titled(root, title):
    """Return the elements that show a title when hovered over."""
    return [element for element in root if element.findtext("title") == title]


def painted(root, tag, role):
    """Return the elements of a kind that are filled with the colour of a role."""
    return [element for element in root.iter(tag) if element.get("fill") == f"var(--{role})"]


def places(element):
    """Return the places of an element: the corners of a path or a box, a centre, or where text is anchored."""
    if element.tag == "path":
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", element.get("d"))]
        return list(zip(numbers[::2], numbers[1::2], strict=True))
    x, y = (float(element.get(name) or element.get(f"c{name}")) for name in "xy")
    if element.tag == "rect":
        return [(x, y), (x + float(element.get("width")), y + float(element.get("height")))]
    return [(x, y)]

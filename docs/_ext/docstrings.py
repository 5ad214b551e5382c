"""Docstrings as they stand in the code → reStructuredText, which Sphinx reads.

A docstring is paragraphs, and each is one of these:

    alpha  the price        names, two spaces or more, what they mean → parameters
        r = A - α c         indented → as it stands
    min_θ L(θ)              one line of mathematics → as it stands
    learner = BOCL(…)       lines that are Python → a code block
    - an item               a list, also right below a line of text
    Raises:                 a section in Google's style → left to Napoleon

and all else is prose.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

_COLUMNS = re.compile(r"(?P<names>[A-Za-z_][\w.]*(?:, [A-Za-z_][\w.]*)*) {2,}(?P<text>\S.*)")
_ITEM = re.compile(r"(?P<mark>-|\d+\.) +(?P<text>\S.*)")
_NAMED_ITEM = re.compile(r"(?P<name>\w+) {2,}(?P<text>\S.*)")
_SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Yields):")
_MATHS = re.compile(r"[=≤≥Σ∈θ‖]")
_LEAD = re.compile(r"(Sources?|Deviations)\b")


def to_rst(docstring: list[str]) -> list[str]:
    """Return the lines of a docstring, its common indentation removed, as reStructuredText."""
    lines: list[str] = []
    for paragraph in _paragraphs(docstring):
        lines += [*_block(paragraph), ""]
    return lines


def _paragraphs(docstring: list[str]) -> Iterator[list[str]]:
    """Yield blocks of lines between blank ones; indented blocks in a row are one, a list is a block of its own."""
    block: list[str] = []
    for line in [*docstring, ""]:
        begins_list = bool(_ITEM.match(line) and block and not _ITEM.match(block[0]))
        if block and (not line.strip() or begins_list):
            yield block
            block = []
        if line.strip():
            block.append(line.rstrip())


def _block(lines: list[str]) -> list[str]:
    if _SECTION.fullmatch(lines[0]):
        return lines
    if all(line.startswith("  ") for line in lines) or _is_equation(lines):
        return _literal(lines, "text", "equation")
    if _ITEM.match(lines[0]):
        return [_item(*found) for found in _rows(lines, _ITEM)]
    if _COLUMNS.fullmatch(lines[0]):
        rows = _rows(lines, _COLUMNS)
        return [f":param {name}: {inline(text)}" for names, text in rows for name in names.split(", ")]
    if _is_python(lines):
        return _literal(lines, "python")
    text = inline(" ".join(line.strip() for line in lines))
    return [_LEAD.sub(r"**\1**", text, count=1) if _LEAD.match(text) else text]


def _rows(lines: list[str], row: re.Pattern[str]) -> list[tuple[str, str]]:
    """Join each row with the lines that go on with it, which are indented."""
    rows: list[list[str]] = []
    for line in lines:
        found = row.match(line)
        if found:
            rows.append([found[1], found["text"]])
        else:
            rows[-1][1] += " " + line.strip()
    return [(first, text) for first, text in rows]


def _item(mark: str, text: str) -> str:
    named = _NAMED_ITEM.fullmatch(text)
    return f"{mark} **{named['name']}**: {inline(named['text'])}" if named else f"{mark} {inline(text)}"


def _literal(lines: list[str], language: str, of_class: str = "") -> list[str]:
    indent = min(len(line) - len(line.lstrip()) for line in lines)
    head = [f".. code-block:: {language}", *([f"   :class: {of_class}"] if of_class else []), ""]
    return head + [f"   {line[indent:]}" for line in lines]


def _is_equation(lines: list[str]) -> bool:
    return len(lines) == 1 and bool(_MATHS.search(lines[0])) and not lines[0].endswith((".", ":"))


def _is_python(lines: list[str]) -> bool:
    if len(lines) < 2:
        return False
    try:
        ast.parse("\n".join(lines))
    except SyntaxError:
        return False
    return True


def inline(text: str) -> str:
    """Keep words between backticks as code and everything else as it is written."""
    words = re.split(r"(``.+?``|`.+?`)", re.sub(r" {2,}", " ", text))
    return "".join(f"``{word.strip('`')}``" if place % 2 else _escaped(word) for place, word in enumerate(words))


def _escaped(text: str) -> str:
    return re.sub(r"([\\*|]|_(?!\w))", r"\\\1", text)

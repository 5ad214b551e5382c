"""How far runs are, as a table on a terminal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rich.cells import cell_len, set_cell_size
from rich.console import Group, RenderableType
from rich.text import Text

from bocl.records.outlook import Outlook, Standing, State
from bocl.records.progress import Progress
from bocl.wording import counted, one_line, roughly, shortened

_TITLES = (("", "children", "", "", "", ""), ("tasks", "(rounds)", "ACC", "on", "wrote", "left"))
_LEFT = 3  # the one column that is aligned to the left
_GAP = 2
_NARROWEST = 12  # columns for the name of a run, and for that of its host
_MOST_PROBLEMS = 3  # where the table has to fit a screen
_LEGEND = "ACC in %; children (rounds): of the task under way; wrote: time since then"
_URGENT: tuple[State, ...] = ("under way", "unreadable", "silent", "finished")  # first, where not all fit


def overview(found: Outlook, width: int, height: int | None = None) -> RenderableType:
    """Return a table of runs, in the order in which they were found, and a line about all of them.

    It is ``width`` columns wide at most. With a ``height``, it has no more lines than that: runs under way stay, and
    what does not fit is counted.
    """
    problems = [one.run.problem for one in found.runs if one.run.problem]
    shown = problems if height is None else problems[:_MOST_PROBLEMS]
    around = 5 + len(shown)  # the folder, two lines of titles, the legend, the totals
    rows = list(found.runs) if height is None else _most_urgent(found.runs, max(height - around, 1))
    base, hidden = _common_folder([one.run.folder for one in found.runs]), len(found.runs) - len(rows)
    wraps = height is None
    return Group(
        _line(f"runs in {base}", wraps),
        _table(rows, base, width),
        *([_line(f"and {hidden:,} more", wraps)] if hidden else []),
        _line(_LEGEND, wraps, style="dim"),
        *(_line(problem, wraps) for problem in shown),
        _line(totals(found), wraps),
    )


def totals(found: Outlook) -> str:
    """Return how many runs are in which state, and how long all will take."""
    others: tuple[State, ...] = ("under way", "silent", "unreadable")
    counts = [(state, found.count(state)) for state in others]
    every = len(found.runs) + found.to_come
    words = [f"{found.count('finished'):,} of {counted(every, 'run')} finished"]
    words += [f"{count:,} {state}" for state, count in counts if count]
    line = ", ".join(words + ([f"{found.to_come:,} not begun"] if found.to_come else []))
    if found.left is None:
        return f"{line}; time left not known"
    if found.left or not found.whole:
        return f"{line}; {'' if found.whole else 'over '}{roughly(found.left)} left"
    return line


def _table(runs: Sequence[Standing], base: Path, width: int) -> Text:
    """Return titles and a row for every run, padded by hand: rich's own tables take seconds for thousands of rows."""
    cells = [_cells(one) for one in runs]
    taken = [max(map(cell_len, column)) for column in zip(*_TITLES, *cells, strict=True)]
    room = max(width - sum(taken) - _GAP * len(taken), _NARROWEST)
    names = [_ending(_name(one.run, base), room) for one in runs]
    room = max(map(cell_len, ["run", *names]))
    table = Text(no_wrap=True, overflow="ellipsis", end="")
    for name, row, one in zip(("", "run", *names), (*_TITLES, *cells), (None, None, *runs), strict=True):
        padded = [set_cell_size(name, room)]
        for place, (cell, size) in enumerate(zip(row, taken, strict=True)):
            padded.append(set_cell_size(cell, size) if place == _LEFT else " " * (size - cell_len(cell)) + cell)
        style = "bold" if one is None else "dim" if one.state == "finished" else ""
        table.append((" " * _GAP).join(padded).rstrip() + "\n", style)
    return table


def _cells(one: Standing) -> tuple[str, ...]:
    run = one.run
    left = roughly(one.left) if one.state == "under way" and one.left is not None else "–"
    return (
        f"{run.done}/{run.tasks}" if run.tasks else "",
        f"{run.children} ({run.rounds})" if run.rounds else "",
        "" if run.accuracy is None else f"{100 * run.accuracy:.2f}",
        _place(run),
        "" if run.problem else roughly(one.age),
        left if one.state == "under way" else one.state,
    )


def _place(run: Progress) -> str:
    return " ".join(_beginning(one_line(word), _NARROWEST) for word in (run.node, run.device) if word)


def _name(run: Progress, base: Path) -> str:
    """Return a run by its folder, and by its method and seed where the folder is not called after them."""
    name = one_line(os.path.relpath(run.folder, base))
    if not run.method or run.folder.name == f"{run.method}-seed{run.seed}":
        return name
    return f"{name} ({one_line(shortened(run.method))}, seed {run.seed})"


def _common_folder(folders: Sequence[Path]) -> Path:
    """Return the nearest folder that all these are in."""
    try:
        return Path(os.path.commonpath([os.path.dirname(folder) for folder in folders]) or ".")
    except ValueError:  # there are none, or some begin at the root and others do not
        return Path(".")


def _most_urgent(runs: Sequence[Standing], most: int) -> list[Standing]:
    if len(runs) <= most:
        return list(runs)
    kept = sorted(range(len(runs)), key=lambda place: (_URGENT.index(runs[place].state), place))[: most - 1]
    return [runs[place] for place in sorted(kept)]


def _beginning(text: str, most: int) -> str:
    return text if cell_len(text) <= most else f"{set_cell_size(text, most - 1).rstrip()}…"


def _ending(text: str, most: int) -> str:
    """Return the end of a text that is too long: of a path, it tells runs apart."""
    if cell_len(text) <= most:
        return text
    while cell_len(text) >= most:
        text = text[1:]
    return f"…{text}"


def _line(text: str, wraps: bool, style: str = "") -> Text:
    return Text(one_line(text), style=style, no_wrap=not wraps, overflow="fold" if wraps else "ellipsis")

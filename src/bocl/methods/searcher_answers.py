"""What a searcher answers, checked: it may be a user's own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from numbers import Integral
from typing import Any

import numpy as np
from torch import Tensor

from bocl.errors import InputError
from bocl.search.problem import Problem
from bocl.widths import Widths
from bocl.wording import counted


def check_searcher(searcher: Any) -> None:
    """Refuse an object without ask(), tell() or best()."""
    missing = [name for name in ("ask", "tell", "best") if not callable(getattr(searcher, name, None))]
    if missing:
        raise InputError(
            f"the searcher, of type {type(searcher).__name__}, has no {', '.join(missing)}; it needs ask(count), "
            "tell(trials) and best()"
        )


def asked_widths(answer: Any, problem: Problem, trained: Collection[Widths]) -> list[Widths]:
    """Return a searcher's answer to ask() as new widths within bounds and budget; empty when it is done."""
    if answer is None or isinstance(answer, str | Mapping) or not hasattr(answer, "__iter__"):
        raise InputError(f"the searcher's ask() returned {answer!r}; it must return a list of widths, or [] to stop")
    asked: list[Widths] = []
    for entry in answer:
        z = as_widths(entry, problem.bounds, "ask()")
        if z in trained or z in asked:
            raise InputError(f"the searcher's ask() gave {z}, which is trained or asked for already; ask for new ones")
        asked.append(z)
    row = np.array(asked, dtype=np.int64).reshape(-1, len(problem.bounds))
    for z, allowed, added in zip(asked, problem.allowed(row), problem.parameters(row), strict=True):
        if not allowed:
            raise InputError(
                f"the searcher's ask() gave {z}, which adds {added:,} parameters; the budget is {problem.budget:,}: "
                "ask only for what Problem.allowed() allows"
            )
    return asked


def as_widths(answer: Any, bounds: Widths, call: str) -> Widths:
    """Return one entry of a searcher's answer as a tuple of integers; ``call`` names where it came from."""
    entries = answer.tolist() if isinstance(answer, np.ndarray | Tensor) else answer
    right = isinstance(entries, list | tuple) and len(entries) == len(bounds)
    right = right and all(isinstance(units, Integral) and not isinstance(units, bool) for units in entries)
    if not right or not all(0 <= units <= bound for units, bound in zip(entries, bounds, strict=True)):
        shown = " ".join(repr(answer).split())
        raise InputError(
            f"the searcher's {call} gave the widths {shown}; widths are {counted(len(bounds), 'integer')} from 0 to "
            f"the bounds {bounds}"
        )
    return tuple(int(units) for units in entries)

"""Checks of single settings. Each returns the value as it is kept, or raises a ConfigError that names it.

``settle`` runs the checks of a dataclass and tells all its problems at once:

    settle(self, "recipe", epochs=whole(least=1), learning_rate=number(above=0))
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, TypeVar

from bocl.errors import ConfigError

LARGEST = 1e30  # of a setting that has no other end: float32 holds it, and a few times its size
T = TypeVar("T")
Check = Callable[[str, object], Any]  # (name, value) → the value as it is kept


def settle(settings: object, table: str, **checks: Check) -> None:
    """Replace fields of a frozen dataclass by what their checks return; ``table`` begins their dotted names."""
    problems = []
    for field, check in checks.items():
        try:
            object.__setattr__(settings, field, check(f"{table}.{field}", getattr(settings, field)))
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("; ".join(problems))


def whole(*, least: int = 0, most: int | None = None) -> Callable[[str, object], int]:
    """Check for a whole number; numpy's are taken and become Python's."""

    def check(name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise _wrong(name, value, f"a whole number of at least {least}")
        kept = int(value)
        if kept < least:
            raise _wrong(name, value, f"at least {least}")
        if most is not None and kept > most:
            raise _wrong(name, value, f"at most {most}")
        return kept

    return check


def number(
    *, above: float | None = None, least: float | None = None, below: float | None = None, most: float | None = None
) -> Callable[[str, object], float]:
    """Check for a finite number, in the range whose ends ``above`` and ``below`` leave out."""
    if most is None and below is None:
        most = LARGEST
    ends = {"above": above, "at least": least, "below": below, "at most": most}
    wanted = "a finite number " + " and ".join(f"{words} {end:g}" for words, end in ends.items() if end is not None)

    def check(name: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, Real):
            raise _wrong(name, value, wanted.strip())
        try:
            kept = float(value)
        except OverflowError:
            kept = math.inf
        inside = (
            math.isfinite(kept)
            and (above is None or kept > above)
            and (least is None or kept >= least)
            and (below is None or kept < below)
            and (most is None or kept <= most)
        )
        if not inside:
            raise _wrong(name, value, wanted.strip())
        return kept

    return check


def word(*words: str) -> Callable[[str, object], str]:
    """Check for one of a few words."""

    def check(name: str, value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise _wrong(name, value, " or ".join(words))
        return value

    return check


def optional(check: Callable[[str, object], T]) -> Callable[[str, object], T | None]:
    """Check a value that may also be left out, None."""
    return lambda name, value: None if value is None else check(name, value)


def flag(name: str, value: object) -> bool:
    """Check for True or False; other values with a truth are refused, because "no" has the wrong one."""
    if not isinstance(value, bool):
        raise _wrong(name, value, "True or False")
    return value


def instance(name: str, value: object, kind: type[T]) -> T:
    """Check for settings of a kind, such as a Recipe."""
    if not isinstance(value, kind):
        raise _wrong(name, value, f"a {kind.__name__}, such as {kind.__name__}()")
    return value


def one_or_each(one: Callable[[str, object], T]) -> Callable[[str, object], T | tuple[T, ...]]:
    """Check for one value for all hidden groups, or a list with one per group, which becomes a tuple."""

    def check(name: str, value: object) -> T | tuple[T, ...]:
        if not isinstance(value, list | tuple):
            return one(name, value)
        if not value:
            raise ConfigError(f"{name} is empty; give one number, or one number per hidden group")
        return tuple(one(f"{name}[{position}]", entry) for position, entry in enumerate(value))

    return check


def widths(*, most: int) -> Callable[[str, object], int | tuple[int, ...]]:
    """Check for units to add: one number, or one number per hidden group."""
    return one_or_each(whole(least=0, most=most))


def per_group(name: str, value: T | tuple[T, ...], groups: int) -> tuple[T, ...]:
    """Return one number for each of a network's hidden groups."""
    if not isinstance(value, tuple):
        return (value,) * groups
    if len(value) != groups:
        raise ConfigError(
            f"{name} has {counted(len(value), 'entry', 'entries')} {shown(value)}, but the network has "
            f"{counted(groups, 'hidden group')}; give one entry per group, or one number for all"
        )
    return value


def shown(value: object) -> str:
    """Return a value short enough for one line."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # a user's own __repr__ may fail in any way, and Python refuses to write very large integers
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "…"


def beyond_memory(size: int) -> str | None:
    """Say how far so many bytes are beyond this machine's memory; None where they are not."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{size / 1e9:,.0f} GB, and this machine has {memory / 1e9:,.0f} GB of memory" if size > memory else None


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return ``1 group``, ``2 groups``."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def _wrong(name: str, value: object, wanted: str) -> ConfigError:
    return ConfigError(f"{name} is {shown(value)}; it must be {wanted}")

"""What every part of the torture is made of: cases, in groups that share what is made ready once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path


def check(fact: bool, otherwise: str) -> None:
    """Raise an AssertionError unless it is a fact."""
    if not fact:
        raise AssertionError(otherwise)


@dataclass(frozen=True)
class Case:
    """One thing done to a folder.

    what  in words, enough to do it again
    do    does it and judges what came of it: raises what is wrong, or returns what is to be counted
    """

    what: str
    do: Callable[[], Mapping[str, int]]


@dataclass(frozen=True)
class Group:
    """Cases that share a beginning, such as a run that nobody disturbed.

    cases  makes them, in a folder of their own; the same in the same order every time
    few    how many of them the test suite does
    """

    name: str
    cases: Callable[[Path], Iterable[Case]]
    few: int = 0

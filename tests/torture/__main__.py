"""Torture bocl, and see that nothing is lost.

    python tests/torture                    all parts, from where the last call stopped
    python tests/torture kills disks        only these
    python tests/torture --minutes 10       as much of it as that time allows
    python tests/torture kills --short      a few cases of a part, for the test suite; nothing is kept
    python tests/torture --only "call 17"   the cases whose words, as a failure tells them, hold these; nothing is kept

Once all parts are done, with the same source, the result is written to tests/torture-last-run.json and to the page of
the documentation.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

import torch
from cases import Case, Group
from record import Done, Progress, describe, last_result, publish, write_table

from bocl.errors import GoalWarning

PARTS = ("kills", "corruption", "sequences", "disks", "soak")


def main() -> int:
    """Do what the command line asks for; return 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description="Torture bocl, and see that nothing is lost.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--minutes", type=float, help="stop after so many; the next call goes on")
    parser.add_argument("--short", action="store_true", help="a few cases, for the test suite")
    parser.add_argument("--only", metavar="WORDS", help="cases whose words hold these")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", GoalWarning)  # networks that are trained for a moment are of no use
    parts = options.parts or PARTS
    if options.short or options.only:
        return max(_some(part, options.only) for part in parts)
    print(describe(last_result()))
    until = time.monotonic() + 60 * options.minutes if options.minutes else float("inf")
    wrong = 0
    for part in parts:
        progress = Progress(part)
        print(f"{part}: kept in {progress.path}", flush=True)
        for group in import_module(part).groups():
            done = progress.of(group.name)
            if not done.finished:
                _go_on(group, done, progress, until)
            _tell(group.name, done)
            wrong += len(done.wrong)
            if time.monotonic() > until:
                print("the time is up; the next call goes on from here")
                return 1 if wrong else 0
    if result := publish({part: [group.name for group in import_module(part).groups()] for part in PARTS}):
        write_table(result)
        print(describe(result))
    return 1 if wrong else 0


def _go_on(group: Group, done: Done, progress: Progress, until: float) -> None:
    """Do the cases of a group that were not done yet, until the time is up."""
    with tempfile.TemporaryDirectory() as place:
        for number, case in enumerate(_cases(group, Path(place), done)):
            if number < done.cases:
                continue
            if time.monotonic() > until:
                return
            _do(case, done)
            progress.keep()
    done.finished = True
    progress.keep()


def _some(part: str, words: str | None) -> int:
    """Do the cases of a part that hold some words, or a few; return whether any was wrong."""
    wrong = 0
    for group in import_module(part).groups():
        if group.few or words:
            done = Done()
            with tempfile.TemporaryDirectory() as place:
                cases = list(_cases(group, Path(place), done))
                few = random.Random(group.name).sample(cases, min(group.few, len(cases)))
                for case in [case for case in cases if words in case.what] if words else few:
                    _do(case, done)
            _tell(group.name, done)
            wrong += len(done.wrong)
    return 1 if wrong else 0


def _cases(group: Group, place: Path, done: Done) -> Iterable[Case]:
    """Yield the cases of a group; one that cannot even be made ready is wrong."""
    try:
        yield from group.cases(place)
    except Exception as error:
        done.wrong.append(f"{group.name}: not ready: {_words(error)}")


def _do(case: Case, done: Done) -> None:
    began = time.perf_counter()
    try:
        done.add(case.do())
    except Exception as error:
        done.add({})
        done.wrong.append(f"{case.what}: {_words(error)}")
        print(f"  wrong: {done.wrong[-1]}", file=sys.stderr, flush=True)
    done.seconds += time.perf_counter() - began


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"


def _tell(name: str, done: Done) -> None:
    figures = ", ".join(f"{count} {what}" for what, count in done.figures.items())
    print(f"  {name}: {done.cases} cases, {len(done.wrong)} wrong; {figures}; {done.seconds:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())

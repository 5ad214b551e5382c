"""What every fuzz test needs: how many cases, what each must look like from outside, and a tally of what came of them.

A few hundred fixed cases run in the test suite; ``make fuzz`` sets BOCL_FUZZ, which multiplies them and draws others.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from hypothesis import HealthCheck, settings

from bocl.cli.main import main
from bocl.experiment.store import RunStore

TIMES = int(os.environ.get("BOCL_FUZZ", "1"))
TALLY: Counter[tuple[str, str]] = Counter()  # (kind of input, what came of it) → cases


def cases(count: int) -> settings:
    """Return settings for ``count`` cases, the same ones every time unless BOCL_FUZZ asks for more."""
    return settings(
        max_examples=count * TIMES,
        derandomize=TIMES == 1,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


class Began(BaseException):
    """A run is about to begin: all its input was accepted, and its folder is open."""


@dataclass(frozen=True)
class Answer:
    """What a command said: its exit code, or None where a run was about to begin."""

    code: int | None
    out: str
    err: str


def call(*words: str) -> Answer:
    """Call the command line in this process; nothing is trained, a warning is printed as it would be."""
    out, err = io.StringIO(), io.StringIO()

    def begin(*_arguments: object, **_about: object) -> None:
        raise Began

    with (
        mock.patch.object(sys, "argv", ["bocl", *words]),
        mock.patch.object(sys, "path", [*sys.path]),
        mock.patch.object(RunStore, "start", begin),
        mock.patch.object(os, "_exit", sys.exit),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(warnings, "showwarning", lambda message, *_: print(message, file=err)),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("always")
        try:
            main()
        except SystemExit as ended:
            return Answer(int(ended.code or 0), out.getvalue(), err.getvalue())
        except Began:
            return Answer(None, out.getvalue(), err.getvalue())
    raise AssertionError("main() returned")


def judge(kind: str, answer: Answer) -> bool:
    """Count a case and check how it ended; return whether it was accepted."""
    accepted = answer.code in (0, None)
    TALLY[kind, "accepted" if accepted else "refused"] += 1
    if not accepted:
        damaged = "audit" in kind and answer.code == 1  # an audit that found a damaged run, and may have shown others
        assert damaged or (answer.code, answer.out) == (2, ""), answer
        first, *entries = answer.err.removesuffix("\n").split("\n")
        assert first.startswith("bocl: "), answer
        if entries:  # several mistakes of a config, told at once
            assert first.startswith(f"bocl: {len(entries)} problems in "), answer
            assert all(entry.startswith("  ") for entry in entries), answer
        assert len(first.splitlines()) == 1, answer
    return accepted


def contents(folder: Path) -> dict[str, str]:
    """Return everything below a folder, by path: what it is, and a hash of what it holds."""
    return {str(path.relative_to(folder)): _content(path) for path in sorted(folder.rglob("*"))}


def _content(path: Path) -> str:
    if path.is_symlink():
        return f"link to {path.readlink()}"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"


@contextlib.contextmanager
def untouched(folder: Path) -> Iterator[None]:
    """Check that what happens inside leaves everything below a folder as it was, and adds nothing."""
    before = contents(folder)
    yield
    assert contents(folder) == before

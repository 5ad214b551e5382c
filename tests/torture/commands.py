"""The commands of bocl, called in this process."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from states import all_it_learnt, timeless
from typer.main import get_command

import bocl.cli.main as command_line
from bocl.errors import InputError, WorkError
from bocl.methods.saving import load
from bocl.records.journal import read
from bocl.records.run_log import JOURNAL

BUILT = get_command(command_line.app)  # once, not for every call
BUILT.info = command_line.app.info


@dataclass(frozen=True)
class Answer:
    """What a command did: its exit code, what it said, and what it found, where it found something."""

    code: int
    said: str
    found: Any = None


def call(*words: str) -> tuple[int, str, str]:
    """Call the command line in this process: exit code, standard output, standard error."""
    out, err = io.StringIO(), io.StringIO()
    before = sys.argv, list(sys.path), os._exit
    sys.argv = ["bocl", *words]
    os._exit = _escaped
    try:
        with redirect_stdout(out), redirect_stderr(err):
            command_line.main(BUILT)
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue(), err.getvalue()
    finally:
        sys.argv, sys.path[:], os._exit = before
    raise AssertionError("the command line did not exit")


def _escaped(code: int) -> None:
    raise AssertionError(f"an OSError reached the end of the command line: {sys.exception()!r}")


def told(*words: str) -> tuple[int, str]:
    """Call the command line: exit code, and the last line it says to whoever watches."""
    code, _, err = call(*words)
    return code, "".join(err.splitlines(keepends=True)[-1:])


def from_python(work: Callable[[], object]) -> tuple[int, str]:
    """Do what a script would, and end as the command line does."""
    try:
        work()
    except (InputError, WorkError) as error:
        return (2 if isinstance(error, InputError) else 1), f"bocl: {error}\n"
    return 0, ""


def run_words(method: str, settings: tuple[str, ...], out: Path, seeds: str = "0") -> list[str]:
    """Return the arguments of ``bocl run digits``."""
    sets = [word for setting in settings for word in ("--set", setting)]
    return ["run", "digits", *sets, "--methods", method, "--seeds", seeds, "--device", "cpu", "--out", str(out)]


def show(folder: Path) -> Answer:
    """Call ``bocl show``, as a table and as JSON."""
    table = call("show", str(folder))
    code, out, err = call("show", str(folder), "--json")
    assert (code, err) == (table[0], table[2]), "the table and the JSON disagree"
    return Answer(code, err, timeless(json.loads(out)[0]) if code == 0 else None)


def audit(folder: Path) -> Answer:
    """Call ``bocl audit``."""
    code, out, err = call("audit", str(folder), "--device", "cpu")
    return Answer(code, err, out if code == 0 else None)


def load_it(folder: Path) -> Answer:
    """Call ``bocl.load``, and hash all it has learnt."""
    found: list[str] = []
    code, said = from_python(lambda: found.append(all_it_learnt(load(folder, device="cpu"))))
    return Answer(code, said, found[0] if found else None)


def pareto(folder: Path) -> Answer:
    """Call ``bocl pareto``."""
    code, out, err = call("pareto", str(folder), "--json")
    return Answer(code, err, timeless(json.loads(out)) if code == 0 else None)


def report(folder: Path) -> Answer:
    """Call ``bocl report``, for a page outside."""
    return _written("report", folder, "report.html")


def trials(folder: Path) -> Answer:
    """Call ``bocl trials``, for a file outside."""
    return _written("trials", folder, "trials.json")


def _written(command: str, folder: Path, name: str) -> Answer:
    place = folder.parents[1] / name
    place.unlink(missing_ok=True)
    code, _, err = call(command, str(folder), "-o", str(place))
    return Answer(code, err, place.read_bytes() if code == 0 else None)


def pick(folder: Path, widths: tuple[int, ...] | None) -> Answer:
    """Call ``bocl pick``; what is found is the records of its tasks."""
    chosen = ",".join(map(str, widths)) if widths else "1,1"
    code, _, err = call("pick", str(folder), "--widths", chosen, "--device", "cpu")
    return Answer(code, err, _records(folder) if code == 0 else None)


def run_again(folder: Path, settings: tuple[str, ...]) -> Answer:
    """Call ``bocl run`` as the run was called; what is found is its results, and the records of its tasks."""
    method, _, seed = folder.name.partition("-seed")
    code, out, err = call(*run_words(method, settings, folder.parent, seed), "--json")
    if code:
        return Answer(code, "".join(err.splitlines(keepends=True)[-1:]))
    return Answer(0, "", (timeless(json.loads(out)[0]), _records(folder)))


def _records(folder: Path) -> list[Any]:
    return [timeless(record) for record in read(folder / JOURNAL) if record["kind"] in ("task", "round", "pick")]

"""The arrows between the rooms, read from the source: right may import left, never the reverse.

    errors, wording, checks, extras, packages, settings, seeding, widths, version, method_table, presets
        │
        ├──▶ tasks ──▶ training ──┐               ┌──▶ experiment ──┐
        ├──▶ networks ────────────┼──▶ methods ───┤                 ├──▶ cli ──▶ __main__
        └──▶ records ─┬▶ search ──┤               └──▶ benchmarks ──┤
                      ├▶ progress ┘                                 │
                      └▶ report, tracking ──────────────────────────┤
                                       experiment ──▶ engines ──────┤
                           experiment, report ──▶ serving ──────────┘

Beside experiment and benchmarks stand sklearn and avalanche, which nobody imports.

An arrow reads "is imported by": a room may import every room from which arrows lead to it. Imports inside functions and
under TYPE_CHECKING count like any other, and so do data files read with ``importlib.resources``: they are dependencies.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Collection, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import bocl.errors

SOURCE = Path(bocl.errors.__file__).parent

# Room → the rooms it imports besides itself, neither more nor fewer. A file directly under bocl/ is a room of its own.
ARROWS = {
    "method_table": "",
    "version": "",
    "wording": "",
    "errors": "",
    "presets": "",
    "seeding": "",
    "widths": "",
    "__init__": "method_table version",
    "checks": "errors wording",
    "extras": "errors",
    "settings": "checks errors wording",
    "packages": "errors",
    "tasks": "checks errors extras packages seeding wording",
    "networks": "checks errors packages seeding settings widths wording",
    "records": "checks errors method_table settings widths wording",
    "training": "checks errors seeding tasks wording",
    "progress": "errors method_table records widths wording",
    "report": "method_table records wording",
    "tracking": "errors extras records",
    "search": "checks errors records seeding widths",
    "methods": "checks errors extras method_table networks progress records search seeding settings tasks training version widths wording",  # noqa: E501
    "benchmarks": "methods networks tasks training widths wording",
    "experiment": "checks errors method_table methods networks presets progress records search seeding settings tasks training version widths wording",  # noqa: E501
    "engines": "errors experiment extras methods networks records settings tasks training wording",
    "serving": "errors experiment extras methods records report version wording",
    "cli": "benchmarks engines errors experiment method_table methods presets progress records report search serving settings tasks tracking training version wording",  # noqa: E501
    "__main__": "cli",
    "sklearn": "checks errors methods networks search tasks training",
    "avalanche": "checks errors extras methods tasks training",
}
ALLOWED = {room: set(rooms.split()) for room, rooms in ARROWS.items()}

# Rooms that run where no torch is: a report is made from records alone.
WITHOUT_TORCH = {
    "errors",
    "extras",
    "checks",
    "method_table",
    "seeding",
    "settings",
    "version",
    "widths",
    "wording",
    "records",
    "progress",
    "report",
    "tracking",
}
TORCH = {"torch", "botorch", "gpytorch", "linear_operator", "safetensors.torch"}


def breaches(source: Path) -> list[str]:
    """Return one line for each import under the package folder ``source`` that goes against an arrow."""
    found = []
    for path in sorted(source.rglob("*.py")):
        place = path.relative_to(source)
        room = place.parts[0].removesuffix(".py")
        if room not in ALLOWED:
            found.append(f"{place}: a new room '{room}'; say in ALLOWED what it may import")
            continue
        for line, module in imported_modules(path, source):
            package, _, rest = module.partition(".")
            if package == "bocl":
                target = room_of(rest, ALLOWED)
                if target != room and target not in ALLOWED[room]:
                    found.append(f"{place}:{line}: {room} may not import {target} ({module})")
            elif room in WITHOUT_TORCH and any(f"{module}.".startswith(f"{name}.") for name in TORCH):
                found.append(f"{place}:{line}: {room} may not import torch ({module})")
    return found


def room_of(name: str, rooms: Collection[str]) -> str:
    """Return the room of a dotted name in bocl; one that is no room comes through the front door, bocl/__init__.py."""
    first = name.partition(".")[0]
    return first if first in rooms else "__init__"


def arrows(source: Path) -> dict[str, set[str]]:
    """Return the rooms that each room under the package folder ``source`` imports besides itself."""
    files = {path: path.relative_to(source).parts[0].removesuffix(".py") for path in sorted(source.rglob("*.py"))}
    found: dict[str, set[str]] = {room: set() for room in files.values()}
    for path, room in files.items():
        for _, module in imported_modules(path, source):
            package, _, rest = module.partition(".")
            if package == "bocl":
                found[room] |= {room_of(rest, found | ALLOWED)} - {room}
    return found


def as_table(found: dict[str, set[str]]) -> str:
    """Return arrows as the source of ARROWS, each room below those that it imports."""
    order = TopologicalSorter({room: sorted(found[room]) for room in sorted(found)}).static_order()
    lines = [f'    "{room}": "{" ".join(sorted(found[room]))}",' for room in order]
    return "\n".join(["ARROWS = {", *(f"{line}  # noqa: E501" if len(line) > 120 else line for line in lines), "}"])


def imported_modules(path: Path, source: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) for everything ``path`` imports, relative imports resolved."""
    package = ("bocl", *path.relative_to(source).parent.parts)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *([node.module] if node.module else [])))
            # "from bocl import tasks" and "from safetensors import torch" name a module last.
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "files":
            for name in node.args:
                if isinstance(name, ast.Constant):
                    yield node.lineno, str(name.value)


def test_no_import_goes_against_an_arrow():
    assert breaches(SOURCE) == []


def test_the_source_is_really_read():
    modules = {module for _, module in imported_modules(SOURCE / "records" / "journal.py", SOURCE)}
    assert {"bocl.errors.FolderError", "json"} <= modules


def test_the_table_says_exactly_what_is_imported():
    found = arrows(SOURCE)
    assert found == ALLOWED, f"the arrows are now (right may import left!):\n{as_table(found)}"


def test_the_arrows_make_no_circle():
    TopologicalSorter(ALLOWED).prepare()  # raises CycleError


def test_an_arrow_nobody_uses_and_a_circle_would_be_found(tmp_path):
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "a.py").write_text("from bocl.records import record\nfrom bocl.search import problem")
    assert arrows(tmp_path) == {"search": {"records"}}
    assert arrows(tmp_path)["search"] != ALLOWED["search"]
    with pytest.raises(CycleError):
        TopologicalSorter(ALLOWED | {"errors": {"cli"}}).prepare()


@pytest.mark.parametrize(
    ("place", "code", "breach"),
    [
        ("search/a.py", "import bocl.networks.graph", "search may not import networks"),
        ("search/a.py", "from bocl.tasks.task import Task", "search may not import tasks"),
        ("search/a.py", "from bocl import training", "search may not import training"),
        ("networks/a.py", "from bocl.search import problem", "networks may not import search"),
        ("networks/a.py", "from bocl.records.record import Trial", "networks may not import records"),
        ("networks/a.py", "from bocl.tasks.task import Task", "networks may not import tasks"),
        ("training/a.py", "from bocl.search import problem", "training may not import search"),
        ("training/a.py", "from bocl.networks.graph import Graph", "training may not import networks"),
        ("tasks/a.py", "from bocl.networks import graph", "tasks may not import networks"),
        ("methods/a.py", "from bocl.experiment import config", "methods may not import experiment"),
        ("experiment/a.py", "from bocl.report import tables", "experiment may not import report"),
        ("experiment/a.py", "from bocl.cli import main", "experiment may not import cli"),
        ("report/a.py", "from bocl.methods import bocl", "report may not import methods"),
        ("errors.py", "from bocl import seeding", "errors may not import seeding"),
        # each way of writing an import
        ("search/a.py", "from ..networks import graph", "search may not import networks"),
        ("search/a.py", "from .. import networks", "search may not import networks"),
        ("search/deep/a.py", "from ...networks.graph import trace", "search may not import networks"),
        ("search/a.py", "def f():\n    import bocl.networks", "a.py:2: search may not import networks"),
        (
            "search/a.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from bocl.networks.graph import Graph",
            "a.py:3: search may not import networks",
        ),
        ("search/a.py", "import json, bocl.networks as n", "search may not import networks"),
        ("search/a.py", "import bocl", "search may not import __init__"),
        ("search/a.py", "from bocl import BOCL", "search may not import __init__"),
        ("cli/a.py", "import bocl", "cli may not import __init__"),
        ("search/a.py", "from importlib import resources\nresources.files('bocl.presets')", "a.py:2: search may not"),
        # torch
        ("records/a.py", "import torch", "records may not import torch"),
        ("records/a.py", "import torch.nn as nn", "records may not import torch"),
        ("report/a.py", "def f():\n    from torch import Tensor", "report may not import torch"),
        ("report/a.py", "from safetensors import torch", "report may not import torch"),
        ("records/a.py", "from botorch.models import SingleTaskGP", "records may not import torch"),
        # a room that nobody has placed
        ("utils/a.py", "", "a new room 'utils'"),
        ("helpers.py", "", "a new room 'helpers'"),
    ],
)
def test_a_planted_breach_is_caught(tmp_path, place, code, breach):
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code)
    found = breaches(tmp_path)
    assert len(found) == 1
    assert breach in found[0]


@pytest.mark.parametrize(
    ("place", "code"),
    [
        ("search/a.py", "import torch\nfrom bocl.records.record import Trial\nfrom . import problem"),
        ("networks/a.py", "from bocl.errors import NetworkError\nfrom bocl.networks.graph import Graph"),
        ("training/a.py", "from bocl.tasks.task import Task"),
        ("experiment/a.py", "from importlib import resources\nresources.files('bocl.presets')"),
        ("methods/a.py", "from bocl.search import searcher\nfrom bocl.networks import expandable"),
        ("experiment/a.py", "from bocl.methods.bocl import BOCL"),
        ("report/a.py", "import torchless\nfrom safetensors.numpy import load_file"),
        ("cli/a.py", "from bocl import tasks\nfrom bocl.report import page"),
    ],
)
def test_what_follows_the_arrows_passes(tmp_path, place, code):
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code)
    assert breaches(tmp_path) == []


def test_what_reads_records_loads_without_torch():
    """What the source says, at run time: nothing they import brings torch in by a side door."""
    modules = [
        ".".join(("bocl", *path.relative_to(SOURCE).with_suffix("").parts))
        for room in ("records", "progress", "report", "tracking")
        for path in sorted((SOURCE / room).glob("*.py"))
        if path.stem != "__init__"
    ]
    assert "bocl.records.journal" in modules
    script = f"import sys, {', '.join(modules)}\nprint('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(SOURCE.parent)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")

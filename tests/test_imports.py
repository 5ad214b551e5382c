"""The arrows between the rooms, read from the source: right may import left, never the reverse.

    errors, checks, seeding, settings, version ─┬▶ tasks ▶ networks ▶ training ─┐
                                                └▶ records ─┬▶ search ──────────┴▶ methods ▶ experiment ▶ cli
                                                            └▶ report ────────────────────────────────────▲

Imports inside functions and under TYPE_CHECKING count like any other: they are dependencies too.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import bocl.errors

SOURCE = Path(bocl.errors.__file__).parent

GROUND = {"errors", "checks", "method_table", "seeding", "settings", "version", "wording"}
LEARNING = {"tasks", "networks", "training"}
BELOW_METHODS = GROUND | LEARNING | {"records", "search"}
BELOW_CLI = BELOW_METHODS | {"methods", "experiment", "report", "presets", "benchmarks"}

# Room → the rooms it may import besides itself. A file directly under bocl/ is a room of its own.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "checks": {"errors", "wording"},
    "method_table": set(),
    "seeding": {"errors"},
    "settings": {"errors", "checks", "wording"},
    "version": set(),
    "wording": set(),
    "presets": set(),
    "tasks": GROUND,
    "networks": GROUND | {"tasks"},
    "training": GROUND | {"tasks", "networks"},
    "records": GROUND,
    "search": GROUND | {"records"},
    "report": GROUND | {"records"},
    "methods": BELOW_METHODS,
    "experiment": BELOW_METHODS | {"methods", "presets"},
    "benchmarks": BELOW_METHODS | {"methods", "experiment", "presets"},
    "cli": BELOW_CLI | {"__init__"},
    "__main__": {"cli"},
    "__init__": BELOW_CLI | {"cli"},
}

# Rooms that run where no torch is: a report is made from records alone.
WITHOUT_TORCH = {"errors", "checks", "method_table", "seeding", "settings", "version", "wording", "records", "report"}
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
                target = rest.partition(".")[0]
                # A name that is no room comes through the front door, bocl/__init__.py.
                target = target if target in ALLOWED else "__init__"
                if target != room and target not in ALLOWED[room]:
                    found.append(f"{place}:{line}: {room} may not import {target} ({module})")
            elif room in WITHOUT_TORCH and any(f"{module}.".startswith(f"{name}.") for name in TORCH):
                found.append(f"{place}:{line}: {room} may not import torch ({module})")
    return found


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


def test_no_import_goes_against_an_arrow():
    assert breaches(SOURCE) == []


def test_the_source_is_really_read():
    modules = {module for _, module in imported_modules(SOURCE / "records" / "journal.py", SOURCE)}
    assert {"bocl.errors.FolderError", "json"} <= modules


def test_the_arrows_make_no_circle():
    order = [
        "errors",
        "wording",
        "method_table",
        "checks",
        "seeding",
        "settings",
        "version",
        "presets",
        "tasks",
        "networks",
        "training",
        "records",
        "search",
    ]
    order += ["report", "methods", "experiment", "benchmarks"]
    for index, room in enumerate(order):
        assert ALLOWED[room] <= set(order[:index]), room


@pytest.mark.parametrize(
    ("place", "code", "breach"),
    [
        ("search/a.py", "import bocl.networks.graph", "search may not import networks"),
        ("search/a.py", "from bocl.tasks.task import Task", "search may not import tasks"),
        ("search/a.py", "from bocl import training", "search may not import training"),
        ("networks/a.py", "from bocl.search import problem", "networks may not import search"),
        ("networks/a.py", "from bocl.records.record import Widths", "networks may not import records"),
        ("training/a.py", "from bocl.search import problem", "training may not import search"),
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
        # torch
        ("records/a.py", "import torch", "records may not import torch"),
        ("records/a.py", "import torch.nn as nn", "records may not import torch"),
        ("report/a.py", "def f():\n    from torch import Tensor", "report may not import torch"),
        ("report/a.py", "from safetensors import torch", "report may not import torch"),
        ("records/a.py", "from botorch.models import SingleTaskGP", "records may not import torch"),
        # a room nobody has placed
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
        ("networks/a.py", "from bocl.errors import NetworkError\nfrom bocl.tasks.task import Task"),
        ("methods/a.py", "from bocl.search import searcher\nfrom bocl.networks import expandable"),
        ("experiment/a.py", "from bocl.methods.bocl import BOCL"),
        ("report/a.py", "import torchless\nfrom safetensors.numpy import load_file"),
        ("cli/a.py", "import bocl\nfrom bocl import BOCL\nfrom bocl.report import page"),
        ("__init__.py", "def __getattr__(name):\n    from bocl.methods.bocl import BOCL"),
    ],
)
def test_what_follows_the_arrows_passes(tmp_path, place, code):
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code)
    assert breaches(tmp_path) == []


def test_records_and_report_load_without_torch():
    """What the source says, at run time: nothing they import brings torch in by a side door."""
    modules = [
        ".".join(("bocl", *path.relative_to(SOURCE).with_suffix("").parts))
        for room in ("records", "report")
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

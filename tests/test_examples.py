"""The examples run, say something, and say what they promise."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name, capsys, **arguments):
    runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](**arguments)
    return capsys.readouterr().out


def test_first_run_forgets_nothing(capsys):
    out = run("first_run", capsys, tasks=3, trials=2)
    assert out.count("same bits as on its first day: True") == 3
    assert "False" not in out


def test_own_data_survives_a_save(capsys):
    out = run("own_data", capsys)
    assert [line.split(":")[0] for line in out.splitlines()[:3]] == ["top half", "three corners", "diagonal"]
    assert "loaded from its folder: 100.0%" in out


def test_own_searcher_is_asked(capsys):
    out = run("own_searcher", capsys)
    assert "tried (0, 0) (16, 16) (8, 8)" in out


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_every_example_says_how_to_run_it(path):
    assert f"python examples/{path.name}" in path.read_text()

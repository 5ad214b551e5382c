"""Docstrings become reStructuredText without losing anything: what the documentation is made from."""

from __future__ import annotations

import inspect
import re
import runpy
from importlib import import_module
from pathlib import Path

import pytest

import bocl
from bocl.method_table import METHODS

to_rst = runpy.run_path(str(Path(__file__).parents[1] / "docs" / "_ext" / "docstrings.py"))["to_rst"]


def converted(text: str) -> str:
    return "\n".join(to_rst(inspect.cleandoc(text).split("\n"))).strip()


def test_two_columns_become_parameters():
    text = """
    alpha      the price of a unit, or
               of several
    mean, std  one per channel
    """
    assert converted(text).splitlines() == [
        ":param alpha: the price of a unit, or of several",
        ":param mean: one per channel",
        ":param std: one per channel",
    ]


def test_equations_stay_as_they_are_written():
    text = "Above.\n\n    r(z) = A(z)    for all z\n\nmin_θ L(θ), from a fresh start\n\nBelow: x = 1."
    assert converted(text).count(".. code-block:: text\n   :class: equation\n") == 2
    assert "   r(z) = A(z)    for all z" in converted(text)
    assert converted(text).endswith("\n\nBelow: x = 1.")


def test_lists_are_lists_also_below_a_line_of_text():
    text = "Deviations:\n- one, which goes\n  on here;\n- two.\n\n1. first     with a name"
    assert converted(text).splitlines() == [
        "**Deviations**:",
        "",
        "- one, which goes on here;",
        "- two.",
        "",
        "1. **first**: with a name",
    ]


def test_words_in_backticks_are_code_and_the_rest_is_not_markup():
    assert converted("Takes `x`, ``y`` and (n, *shape) | W_ of P_i.") == (
        r"Takes ``x``, ``y`` and (n, \*shape) \| W\_ of P_i."
    )


def test_python_is_a_code_block():
    assert converted("A class.\n\nlearner = BOCL(net)\nlearner.learn(task)").splitlines()[2:] == [
        ".. code-block:: python",
        "",
        "   learner = BOCL(net)",
        "   learner.learn(task)",
    ]


def test_a_google_section_is_left_to_napoleon():
    assert converted("Trace.\n\nRaises:\n    NetworkError: when it cannot.") == (
        "Trace.\n\nRaises:\n    NetworkError: when it cannot."
    )


PUBLIC = {name: getattr(bocl, name) for name in bocl.__all__ if not name.startswith("_")}
MODULES = {entry.home: import_module(entry.home) for entry in METHODS.values()}


@pytest.mark.parametrize("name", [*PUBLIC, *MODULES])
def test_no_word_of_a_public_docstring_is_lost(name):
    text = inspect.getdoc({**PUBLIC, **MODULES}[name])
    assert set(re.findall(r"\w+", text)) <= set(re.findall(r"\w+", converted(text).replace("\\", "")))

"""Methods look like their entries in the table, however many there are."""

from __future__ import annotations

from itertools import pairwise

import pytest

from bocl.method_table import METHODS, MethodEntry
from bocl.report.page import page
from bocl.report.sections import compare
from bocl.report.style import DASHES, MARKS, colours, style_of
from bocl.report.systems import arrange
from report_examples import a_run


def styles(*runs):
    (stream,) = arrange(runs)
    return {system.name: style_of(system) for system in stream.systems}


def more_methods(monkeypatch, count, mark=None):
    """Fill the table up to ``count`` methods whose looks repeat those that are there; return the new names."""
    looks = [(entry.colour, entry.mark) for entry in METHODS.values()]
    added = {}
    for number in range(len(METHODS), count):
        colour, own = looks[number % len(looks)]
        added[f"method{number}"] = MethodEntry(f"method{number}", "nowhere", "Nothing", colour, mark or own)
    for name, entry in added.items():
        monkeypatch.setitem(METHODS, name, entry)
    return [*added]


def test_a_method_has_one_colour_and_its_variants_other_marks():
    found = styles(*map(a_run, METHODS), a_run(growth__attention=False))
    assert found["bocl"].colour == found["bocl, no attention"].colour
    assert len(set(found.values())) == len(found) == len(METHODS) + 1
    assert all(found[name].colour == name and found[name].mark == METHODS[name].mark for name in METHODS)
    assert all(bool(found[name].dash) == entry.control for name, entry in METHODS.items()), "controls are dashed"


def test_variants_of_one_method_are_told_apart_without_colour():
    changes = [{"growth__attention": False}, {"reward__weighting": "uniform"}, {"search__round_size": 4}]
    found = styles(a_run(), *(a_run(**change) for change in changes))
    assert len({(style.mark, style.hollow) for style in found.values()}) == len(found) == 4
    assert {style.colour for style in found.values()} == {"bocl"}


def test_a_search_with_a_colour_of_its_own_keeps_the_method_s_mark():
    found = styles(a_run(search__kind="bayesian"), *(a_run(search__kind=kind) for kind in ("paper", "random")))
    assert [(style.colour, style.mark) for style in found.values()] == [
        ("bocl", "circle"),
        ("paper-search", "circle"),
        ("random-search", "circle"),
    ]


def test_every_mark_of_the_table_can_be_drawn():
    assert {entry.mark for entry in METHODS.values()} <= set(MARKS)


@pytest.mark.parametrize("count", [len(METHODS) + 1, 30, 40])
def test_any_number_of_methods_has_a_page(monkeypatch, count):
    added = more_methods(monkeypatch, count)
    runs = [a_run(method, tasks=2) for method in METHODS]
    found = styles(*runs)
    assert len(found) == count
    text = page(compare(runs))
    for name in added:
        assert f"--{name}:{METHODS[name].colour[0]};" in text
        assert f"var(--{name})" in text
    for one, other in pairwise([name for name in METHODS if METHODS[name].colour == METHODS["bocl"].colour]):
        assert found[one].dash != found[other].dash, "what looks alike is told apart by its line"


def test_a_mark_that_no_one_can_draw_is_replaced(monkeypatch):
    (name,) = more_methods(monkeypatch, len(METHODS) + 1, mark="a rose")
    assert styles(a_run(name))[name].mark in MARKS


def test_methods_that_are_not_in_the_table_are_drawn_in_ink_and_told_apart():
    found = styles(a_run("mine"), a_run("mine", growth__attention=False), a_run("yours"))
    assert {style.colour for style in found.values()} == {"ink"} <= set(colours())
    assert len(set(found.values())) == 3
    assert all(style.dash in DASHES for style in found.values())

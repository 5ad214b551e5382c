"""The page: whole, well-formed, alone, the same every time, whatever runs it is given."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from report_examples import a_run, a_search, a_trial, an_evaluation, some_diagnostics

from bocl.report.page import page
from bocl.report.style import COLOURS

VOID = {"meta", "br", "link", "img", "input", "hr"}


class Reader(HTMLParser):
    """Check that what is opened is closed, and keep what is seen."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.ids, self.links, self.text = [], [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        values = dict(attributes)
        if "id" in values:
            self.ids.append(values["id"])
        if "href" in values:
            self.links.append(values["href"])
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def read(html):
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


GRIDS = {
    "one run": lambda: [a_run(trials=a_search(), attention=0.9)],
    "one task": lambda: [a_run(tasks=1)],
    "a method without search": lambda: [a_run("sn", loss=0.01)],
    "a method nobody knows": lambda: [a_run("mine"), a_run("mine", seed=1)],
    "a run that is not finished": lambda: [a_run(done=2, trials=a_search())],
    "a run that has only begun": lambda: [a_run(done=0)],
    "runs finished and not": lambda: [a_run(), a_run("rcl", done=3, trials=a_search())],
    "a search that tells what it believes": lambda: [a_run(trials=a_search(), diagnostics=some_diagnostics())],
    "failed trials": lambda: [a_run(trials=[a_trial((1, 1), float("nan"), 4)])],
    "an evaluation": lambda: an_evaluation(seeds=2, tasks=10),
}


@pytest.mark.parametrize("name", GRIDS)
def test_it_is_well_formed_alone_and_the_same_every_time(name):
    html = page(GRIDS[name]())
    reader = read(html)
    assert "script" not in reader.tags
    assert not re.search(r"https?://|//[a-z]|url\(|@import|src=", html), "it needs nothing from elsewhere"
    assert len(set(reader.ids)) == len(reader.ids)
    assert {link.removeprefix("#") for link in reader.links} <= set(reader.ids)
    assert html == page(GRIDS[name]())


def test_every_colour_it_uses_is_defined_for_light_and_dark():
    html = page(GRIDS["an evaluation"]())
    assert set(re.findall(r"var\(--([\w-]+)\)", html)) <= set(COLOURS)
    for role, (light, dark) in COLOURS.items():
        assert f"--{role}:{light};" in html
        assert f"--{role}:{dark};" in html


def test_names_cannot_break_out():
    evil = '<script>alert("x")</script>&'
    html = page([a_run(name=evil, groups=(evil, "b"), folder=f"runs/{evil}", stream=evil, recipe__epochs=evil)])
    reader = read(html)
    assert "script" not in reader.tags
    assert any(evil in text for text in reader.text)


def test_an_evaluation_has_every_figure_and_claim():
    reader = read(page(an_evaluation(seeds=2)))
    for key in ("claims", "comparison", "figure-2", "figure-3", "figure-4", "figure-5", "table-1", "attention"):
        assert key in reader.ids
    words = " ".join(reader.text)
    assert "✓ met" in words
    assert "✗ missed" in words
    assert "open:" not in words
    assert "paper 36 %" in words
    assert "What the search believed in the end" in words


def test_settings_that_do_not_stand_for_their_system_are_folded():
    html = page([a_run(), a_run(reward__alpha=0.2, accuracy=0.5), a_run("sn")])
    shown, _, folded = html.partition("<summary>1 other setting</summary>")
    assert "alpha 0.2" not in shown
    assert "alpha 0.2" in folded.partition("</details>")[0]
    assert "other setting" not in page([a_run(), a_run("sn")])


def test_shared_runs_are_said_to_tell_no_time():
    def words(*runs):
        return " ".join(read(page(runs)).text)

    together = words(a_run(at_once=16), a_run("rcl", at_once=16))
    assert "no claim about time is judged" in together
    assert "10.0 s on a shared device" in together
    assert "systems whose runs shared one are not in (c)" in words(a_run(at_once=16), a_run("rcl"))
    alone = words(a_run(), a_run("rcl"))
    assert not re.search("shared (its|one|device)", alone)


def test_a_claim_without_a_figure_is_counted_as_open():
    reader = read(page([a_run(), a_run("rcl")]))
    assert "attention" not in reader.ids
    assert re.search(r"Attention, with and without\s+0\s+met,\s+0\s+missed, 1 open", " ".join(reader.text))


def test_what_runs_cannot_tell_is_left_out():
    reader = read(page([a_run("sn", loss=0.01, stream="permuted-digits")]))
    assert "figure-5" not in reader.ids
    assert "attention" not in reader.ids
    assert "table-1" not in reader.ids
    assert "None of these runs" in " ".join(reader.text)


def test_the_stamp_says_what_the_records_are_worth():
    words = " ".join(read(page([a_run(), a_run(seed=1, done=1), a_run(folder="again")])).text)
    assert "ab" * 8 in words
    assert "not finished" in words
    assert "a repeat: at most its time counts" in words


def test_a_whole_evaluation_stays_small():
    runs = an_evaluation()
    assert len(runs) > 350
    assert len(page(runs).encode()) < 6e6

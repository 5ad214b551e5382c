"""The page: whole, well-formed, alone, the same every time, whatever runs it is given."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace

import pytest

from bocl.report.page import page
from bocl.report.sections import Section, compare
from bocl.report.style import colours
from html_reader import read
from report_examples import a_run, a_search, a_trial, an_evaluation, some_diagnostics

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
    html = page(compare(GRIDS[name]()))
    reader = read(html)
    assert "script" not in reader.tags
    without_hash = re.sub(r"sha256-[\w+/=]+", "", html)
    assert not re.search(r"https?://|//[a-z]|url\(|@import|src=", without_hash), "it needs nothing from elsewhere"
    assert len(set(reader.ids)) == len(reader.ids)
    assert {link.removeprefix("#") for link in reader.links} <= set(reader.ids)
    assert html == page(compare(GRIDS[name]()))


def test_every_colour_it_uses_is_defined_for_light_and_dark():
    html = page(compare(GRIDS["an evaluation"]()))
    assert set(re.findall(r"var\(--([\w-]+)\)", html)) <= set(colours())
    for role, (light, dark) in colours().items():
        assert f"--{role}:{light};" in html
        assert f"--{role}:{dark};" in html


def test_names_cannot_break_out():
    evil = '<script>alert("x")</script>&'
    runs = [a_run(name=evil, groups=(evil, "b"), folder=f"runs/{evil}", stream=evil, recipe__epochs=evil)]
    html = page(compare(runs))
    reader = read(html)
    assert "script" not in reader.tags
    assert any(evil in text for text in reader.text)


def test_characters_that_turn_text_around_or_steer_are_shown_escaped():
    odd = "a\u202eb\x1b\x9b\u2066c"
    runs = [a_run(name=odd, groups=(odd, "b"), folder=f"runs/{odd}", stream=odd, recipe__epochs=odd)]
    html = page(compare(runs))
    assert all(line.isprintable() for line in html.split("\n"))
    assert "a\\u202eb\\x1b\\x9b\\u2066c" in html


def test_a_browser_may_apply_its_style_and_nothing_else():
    html = page(replace(compare([a_run()]), css=".own{color:red}"))
    (style,) = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    (policy,) = re.findall(r'<meta http-equiv=Content-Security-Policy content="(.*?)">', html)
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert html.index("Content-Security-Policy") < html.index("<style>")


def test_an_evaluation_has_every_section_and_no_word_of_any_paper_s_claims():
    reader = read(page(compare(an_evaluation(seeds=2))))
    assert reader.ids == ["comparison", "bars", "size", "first-task", "trials", "inside", "runs"]
    words = " ".join(reader.text)
    assert "What the search believed in the end" in words
    assert not re.search(r"[Cc]laim|Figure|Table 1|the paper\b", words)


def test_a_section_of_another_s_own_is_shown_as_it_is():
    report = compare([a_run()])
    own = Section("own", "Ours: more", "", html="<p class=own>as it is</p>")
    text = page(replace(report, sections=(own, *report.sections), title="Mine & yours", css=".own{color:red}"))
    reader = read(text)
    assert reader.ids[0] == "own"
    assert "<h1>Mine &amp; yours</h1>" in text
    assert "<p class=own>as it is</p>" in text
    assert ".own{color:red}</style>" in text


def test_settings_that_do_not_stand_for_their_system_are_folded():
    html = page(compare([a_run(), a_run(reward__alpha=0.2, accuracy=0.5), a_run("sn")]))
    shown, _, folded = html.partition("<summary>1 other setting</summary>")
    assert "alpha 0.2" not in shown
    assert "alpha 0.2" in folded.partition("</details>")[0]
    assert "other setting" not in page(compare([a_run(), a_run("sn")]))


def test_shared_runs_are_said_to_tell_no_time():
    def words(*runs):
        return " ".join(read(page(compare(runs))).text)

    together = words(a_run(shares_device=16), a_run("rcl", shares_device=16))
    assert "No run here had its device to itself" in together
    assert "10.0 s on a shared device" in together
    assert "systems whose runs shared one have no bar" in words(a_run(shares_device=16), a_run("rcl"))
    alone = words(a_run(), a_run("rcl"))
    assert not re.search("shared (its|one|device)", alone)


def test_what_runs_cannot_tell_is_left_out():
    reader = read(page(compare([a_run("sn", loss=0.01, stream="permuted-digits")])))
    assert "trials" not in reader.ids
    assert "#trials" not in reader.links


def test_the_stamp_says_what_the_records_are_worth():
    words = " ".join(read(page(compare([a_run(), a_run(seed=1, done=1), a_run(folder="again")]))).text)
    assert "ab" * 8 in words
    assert "not finished" in words
    assert "a repeat: only its time may count" in words


def test_a_whole_evaluation_stays_small():
    runs = an_evaluation()
    assert len(runs) > 350
    assert len(page(compare(runs)).encode()) < 6e6

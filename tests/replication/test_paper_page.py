"""The page of the replication: the paper's figures, and its claims next to ours."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bocl.report.assets import write_assets
from bocl.report.page import page
from chromium import check_rendering, needs_chromium
from html_reader import read
from replication.sections import replicate
from report_examples import a_run, a_search, an_evaluation

ROOT = Path(__file__).parents[2]


def test_an_evaluation_has_every_figure_and_claim():
    reader = read(page(replicate(an_evaluation(seeds=2))))
    figures = ["figure-2", "figure-3", "figure-4", "figure-5", "table-1", "attention"]
    assert reader.ids == ["claims", "comparison", *figures, "inside", "runs"]
    assert {link.removeprefix("#") for link in reader.links} == set(reader.ids)
    words = " ".join(reader.text)
    assert "✓ met" in words
    assert "✗ missed" in words
    assert "open:" not in words
    assert "paper 36 %" in words


def test_a_claim_without_a_figure_is_counted_as_open():
    reader = read(page(replicate([a_run(), a_run("rcl")])))
    assert "attention" not in reader.ids
    assert re.search(r"Attention, with and without\s+0\s+met,\s+0\s+missed, 1 open", " ".join(reader.text))


def test_other_streams_have_no_claims():
    reader = read(page(replicate([a_run("sn", loss=0.01, stream="permuted-digits")])))
    assert not {"figure-5", "attention", "table-1"} & set(reader.ids)
    assert "None of these runs" in " ".join(reader.text)


def test_without_a_run_alone_on_its_device_no_claim_about_time_is_judged():
    shared, alone = (
        " ".join(read(page(replicate([a_run(name, shares_device=count) for name in ("bocl", "rcl")]))).text)
        for count in (16, 1)
    )
    assert "No claim about time is judged" in shared
    assert "No claim about time is judged" not in alone


def test_figures_and_claims_become_files_named_by_their_place_in_the_paper(tmp_path):
    runs = [a_run(seed=seed, trials=a_search(4)) for seed in (0, 1)]
    write_assets(replicate([*runs, a_run("pgn")]), tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    for figure in ("2a", "2b", "2c", "3", "4", "5", "5-reward"):
        assert {f"figure-{figure}-permuted-mnist-10.{kind}" for kind in ("svg", "csv", "tex")} <= names
    assert {"table-1.csv", "claims-figure-2.csv", "claims-attention.tex"} <= names


@needs_chromium
@pytest.mark.parametrize("dark", [False, True])
def test_it_renders_in_narrow_and_wide_windows(tmp_path, dark):
    runs = [run for run in an_evaluation(seeds=1) if run.config["stream"]["name"] == "split-cifar100"]
    keys = ("claims", "figure-2", "figure-3", "figure-4", "figure-5", "table-1", "attention", "inside")
    check_rendering(page(replicate(runs)), tmp_path, keys, dark=dark)


def test_the_command_writes_the_page_and_tells_mistakes_in_one_line(tmp_path):
    def command(*words):
        line = [sys.executable, "-m", "replication.page", *map(str, words)]
        return subprocess.run(line, cwd=ROOT, capture_output=True, text=True)

    done = command(ROOT / "tests" / "fixtures" / "run-format-2", "-o", tmp_path / "page.html")
    assert (done.returncode, done.stderr) == (0, "")
    assert "BOCL replicated" in (tmp_path / "page.html").read_text(encoding="utf-8")
    wrong = command("nowhere")
    assert (wrong.returncode, wrong.stderr) == (2, "python -m replication.page: nowhere: there is no such folder\n")

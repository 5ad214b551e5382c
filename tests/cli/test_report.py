"""``bocl report`` as a user meets it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bocl.records.summary import summarise
from bocl.wording import percent

ROOT = Path(__file__).parents[2]
OLD = ROOT / "tests" / "fixtures" / "run-format-2"
SMALL = ROOT / "replication" / "measurements" / "small"


def test_a_run_becomes_a_page(bocl, tmp_path):
    code, out, err = bocl("report", OLD)
    assert (code, err) == (0, "")
    assert out.startswith("report.html: 1 run, 0.")
    assert "permuted-digits" in (tmp_path / "report.html").read_text()


def test_an_earlier_page_is_replaced_and_nothing_else(bocl, tmp_path):
    assert bocl("report", OLD)[0] == 0
    first = (tmp_path / "report.html").read_bytes()
    assert bocl("report", OLD)[0] == 0
    assert (tmp_path / "report.html").read_bytes() == first
    run = shutil.copytree(OLD, tmp_path / "run")
    before = (run / "journal.jsonl").read_bytes()
    assert bocl("report", "run", "-o", "run/journal.jsonl")[0] == 2
    assert (run / "journal.jsonl").read_bytes() == before


def test_grids_and_journals_kept_alone_are_read_together(bocl, tmp_path):
    shutil.copytree(OLD, tmp_path / "grid" / "one")
    code, out, _ = bocl("report", "grid", "grid/one", SMALL, SMALL / "mnist-small.jsonl", "-o", "new/page.html")
    assert code == 0
    assert out.startswith("new/page.html: 3 runs")
    text = (tmp_path / "new" / "page.html").read_text()
    assert "mnist-small.jsonl" in text
    assert "cifar-small.jsonl" in text


def test_figures_go_to_a_folder(bocl, tmp_path):
    code, out, _ = bocl("report", OLD, "--assets", "figures")
    assert code == 0
    assert "figures: " in out
    assert (tmp_path / "figures" / "accuracy-permuted-digits-2.svg").is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "nowhere: there is no such folder"),
        (["empty"], "empty holds no runs"),
        (["some.txt"], "some.txt holds no runs"),
        (["wrong.jsonl"], "wrong.jsonl, line 1: damaged"),
        ([OLD, "-o", "empty"], "empty cannot be written: it is not a file; give another file with -o"),
        ([OLD, "-o", "some.txt"], "some.txt is there already and is not a report of bocl; give another file with -o"),
        ([OLD, "-o", "some.txt/page.html"], "page.html cannot be written: Not a directory; give another file with -o"),
        ([OLD, "-o", "/proc/page.html"], "cannot be written: No such file or directory; give another file with -o"),
        ([OLD, "--assets", "some.txt"], "some.txt is not a folder; give one with --assets"),
        ([], "Missing argument"),
    ],
)
def test_wrong_input_is_told_in_one_line(bocl, tmp_path, words, said):
    (tmp_path / "empty").mkdir()
    (tmp_path / "some.txt").write_text("text")
    (tmp_path / "wrong.jsonl").write_text("{}\n")
    before = sorted(path.name for path in tmp_path.iterdir())
    code, out, err = bocl("report", *words)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_journal_kept_alone_is_shown_too(bocl):
    code, out, _ = bocl("show", SMALL / "mnist-small.jsonl")
    assert code == 0
    assert percent(summarise(SMALL / "mnist-small.jsonl").figures()["accuracy"]) in out

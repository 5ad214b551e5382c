"""Figures and numbers as files."""

from __future__ import annotations

import csv
import xml.etree.ElementTree as ET

from bocl.report.assets import to_csv, to_latex, write_assets
from bocl.report.charts import Table
from bocl.report.sections import Report, Section, compare
from report_examples import a_run, a_search

RUNS = [a_run(seed=seed, trials=a_search(4), attention=0.5, tasks=2) for seed in (0, 1)]


def test_every_figure_is_there_in_every_form(tmp_path):
    count = write_assets(compare([*RUNS, a_run("pgn", tasks=2)]), tmp_path / "figures")
    files = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert len(files) == count
    figures = [name.removesuffix(".svg") for name in files if name.endswith(".svg")]
    assert {f"{name}.{kind}" for name in figures for kind in ("svg", "csv", "tex")} <= set(files)
    for name in (
        "accuracy-permuted-mnist-2",
        "trials-permuted-mnist-2",
        "permuted-mnist-2-bocl-seed-0-growth",
        "permuted-mnist-2-bocl-seed-0-attention-head",
        "permuted-mnist-2-bocl-seed-0-search-02",
        "permuted-mnist-2-pgn-seed-0-accuracy",
    ):
        assert name in figures
    for path in (tmp_path / "figures").glob("*.svg"):
        ET.fromstring(path.read_text())
    assert "comparison-permuted-mnist-2.csv" in files
    with (tmp_path / "figures" / "parameters-permuted-mnist-2.csv").open() as file:
        assert next(iter(csv.DictReader(file)))["parameters stored"] == "1000.0"


def test_tables_keep_numbers_and_escape_words():
    table = Table("t", ("a_b", "50 %"), (("x & y\\z", 1 / 3), (None, 12)))
    assert to_csv(table) == f"a_b,50 %\nx & y\\z,{1 / 3}\n,12\n"
    assert to_latex(table).splitlines() == [
        r"\begin{tabular}{ll}",
        r"a\_b & 50 \% \\",
        r"\hline",
        r"x \& y\textbackslash{}z & 0.333333 \\",
        r" & 12 \\",
        r"\end{tabular}",
    ]
    assert r"$\pm$" in to_latex(Table("t", ("1 ± 2",), ()))


def test_tables_of_a_section_that_are_files_only_are_written_too(tmp_path):
    section = Section("key", "title", "caption", files=(Table("behind it", ("a",), (("b",),)),))
    assert write_assets(Report((), (section,)), tmp_path) == 2
    assert (tmp_path / "behind-it.csv").read_text() == "a\nb\n"


def test_no_word_is_a_formula_and_numbers_stay_numbers():
    words = ("=1+1", "+1+cmd|' /C calc'!A0", "-x", "@SUM(A1)", " =1", "\t=1", "\r=1", "＝1")
    figures = ("+0.10", "-1.5 ± 0.25", "-12,345", "+1.00 %")
    table = Table("t", ("=head", "b"), tuple((word, -1.5) for word in (*words, *figures)))
    rows = list(csv.reader(to_csv(table).splitlines()))
    assert rows[0] == ["'=head", "b"]
    for (cell, number), word in zip(rows[1:], words, strict=False):
        assert number == "-1.5"
        assert not cell.lstrip().startswith(("=", "+", "-", "@", "＝")), word
    assert [row[0] for row in rows[-4:]] == list(figures)


def test_a_name_without_a_letter_is_still_a_file_name(tmp_path):
    write_assets(
        Report((), (Section("key", "title", "caption", files=(Table("../..", ("a",), ()),)),)), tmp_path / "in"
    )
    assert sorted(path.name for path in tmp_path.rglob("*.*")) == ["unnamed.csv", "unnamed.tex"]

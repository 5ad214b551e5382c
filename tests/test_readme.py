"""The README and the results are true: their tables and figures come from the records."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from bocl.experiment.study import jobs, load_study, studies
from bocl.records.summary import summarise_all
from bocl.report.layout import draw
from bocl.report.page import page
from bocl.report.sections import sections
from bocl.report.svg import standalone
from bocl.report.systems import arrange

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "results" / "paper"


def test_every_table_is_what_the_records_say():
    tables = runpy.run_path(str(ROOT / "results" / "tables.py"))
    texts = [path.read_text(encoding="utf-8") for path in tables["READMES"]]
    for text in texts:
        assert tables["filled"](text) == text, "run `python results/tables.py --write`"
    for name in tables["TABLES"]:
        assert f"<!-- {name} -->" in "".join(texts)


def test_the_records_are_those_of_the_studies():
    every = [load_study(name) for name in studies()]
    made = {f"{job.preset}/{job.name}-seed-{job.seed}" for job in jobs(every)}
    kept = {str(path.relative_to(RECORDS).with_suffix("")) for path in RECORDS.glob("*/*.jsonl")}
    assert kept == made
    assert jobs(every, seeds=[0])  # a run of one name is the same in all of them


def test_make_replicate_makes_every_study():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    together = re.search(r"^STUDIES := .*paper/,(.*)\)$", makefile, re.MULTILINE)[1].split()
    alone = re.search(r"^TIMED := .*paper/,(.*)\)$", makefile, re.MULTILINE)[1].split()
    assert {f"paper/{name}" for name in (*together, *alone)} == set(studies())
    assert all(load_study(f"paper/{name}").alone == (name in alone) for name in (*together, *alone))


def test_the_page_and_its_figures_are_what_the_records_say(monkeypatch):
    monkeypatch.chdir(ROOT)
    runs = summarise_all(["results/paper"])
    kept = RECORDS
    stale = page(runs) != (kept / "report.html").read_text(encoding="utf-8")  # megabytes, which pytest would compare
    assert not stale, "run `make page`"
    charts = {
        chart.name: chart for section in sections(arrange(runs)) for _, charts in section.rows for chart in charts
    }
    figures = {path.stem: path.read_text(encoding="utf-8") for path in (kept / "figures").glob("*.svg")}
    assert set(figures) == set(charts), "run `make page`"
    assert [name for name in charts if figures[name] != standalone(draw(charts[name], legend=True))] == []

"""What stands in the documents is what the archives of journals say, and they hold what the studies ask for."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from bocl.experiment.study import Job, jobs, load_study
from bocl.records.journal import encode
from bocl.records.summary import find_runs
from bocl.report.layout import draw
from replication import records, tables
from replication.pack import archive_bytes, pack
from replication.records import RESULTS, name_of, preset_of
from replication.sections import paper_sections

ROOT = Path(__file__).parents[2]
STUDIES = sorted(records.STUDIES.glob("*.toml"))
START = {
    **{"kind": "start", "format": 2, "digest": "d", "groups": ["a"], "versions": {}, "data": "f", "machine": {}},
    **{"config": {"method": "sn", "seed": 0, "stream": {"tasks": 2}}, "shares_device": 1, "time": "now"},
}


def test_every_table_is_what_the_records_say():
    texts = [path.read_text(encoding="utf-8") for path in tables.PAGES]
    for text in texts:
        assert tables.filled(text) == text, "run `make page`"
    for name in tables.TABLES:
        assert f"<!-- {name} -->" in "".join(texts)


def test_the_figure_of_the_readme_is_what_the_records_say():
    (kept,) = (ROOT / "replication" / "figures").glob("*.svg")
    charts = {
        chart.name: chart for section in paper_sections(tables.paper()) for _, row in section.rows for chart in row
    }
    assert kept.read_text(encoding="utf-8") == draw(charts[kept.stem], legend=True).standalone(), "run `make page`"


@cache
def all_jobs() -> list[Job]:
    """Return the runs of all studies; each is built, which takes seconds."""
    return jobs([load_study(str(path)) for path in STUDIES])


def test_every_study_says_what_it_is_for_and_makes_each_run_once():
    assert {"systems", "search", "attention", "front"} <= {path.stem for path in STUDIES}
    places = set()
    for path in STUDIES:
        assert path.read_text(encoding="utf-8").startswith("# ")
        found = jobs([load_study(str(path))])
        assert len({(job.preset, job.name, job.seed) for job in found}) == len(found)
        places |= {job.run_place for job in found}
    assert {job.run_place for job in all_jobs()} == places
    assert len(places) == len(all_jobs())


def test_the_headlines_are_the_runs_that_are_called_after_their_method():
    assert [job for job in all_jobs() if job.headline != (job.name == job.method)] == []


def test_the_records_are_those_of_the_studies():
    every = [load_study(str(path)) for path in STUDIES]
    made = {(job.preset, job.name, job.seed): job.method for job in all_jobs()}
    kept = {(preset_of(run), name_of(run), run.seed): run.method for run in tables.all_runs()}
    assert kept == made
    assert jobs(every, seeds=[0])  # a run of one name is the same in all of them


def test_make_replicate_makes_every_study():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    together, alone = (
        re.search(rf"^{name} := (.*)$", makefile, re.MULTILINE)[1].split() for name in ("TOGETHER", "ALONE")
    )
    assert sorted([*together, *alone]) == sorted(path.stem for path in STUDIES)
    assert {path.stem for path in STUDIES if load_study(str(path)).alone} == set(alone)


def test_loose_journals_are_packed_beside_what_is_packed(tmp_path):
    first, second, third = (encode({**START, "time": time})[0] for time in ("1", "2", "3"))
    folder = tmp_path / "digits"
    folder.mkdir()
    for name, content in (("b.jsonl", second), ("a.jsonl", first)):
        (folder / name).write_bytes(content)
    assert pack(folder) == 2
    archive = tmp_path / "digits.tar.xz"
    assert archive.read_bytes() == archive_bytes({"a.jsonl": first, "b.jsonl": second}), "the same bytes every time"
    assert not folder.exists()
    folder.mkdir()
    (folder / "b.jsonl").write_bytes(third)
    (folder / "notes").touch()
    assert pack(folder) == 2
    assert [path.name for path in folder.iterdir()] == ["notes"]
    assert archive.read_bytes() == archive_bytes({"a.jsonl": first, "b.jsonl": third}), "the loose one is later"
    (folder / "c.jsonl").write_bytes(first.replace(b"now", b"new"))
    (folder / "d.jsonl").write_bytes(b"x" + first)
    before = archive.read_bytes()
    with pytest.raises(ValueError, match=r"d\.jsonl"):
        pack(folder)
    assert archive.read_bytes() == before
    assert (folder / "c.jsonl").exists()


def test_our_journals_are_all_packed():
    assert {run.parent.suffix for run in find_runs(RESULTS)} == {".xz"}, "run `python -m replication.pack`"

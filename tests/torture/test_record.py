"""The last torture is on record, and the documentation shows it."""

from __future__ import annotations

import json

import pytest
from record import Progress, describe, last_result, publish, table, table_on, write_table

RUN = {
    "date": "2026-01-02",
    "commit": "",
    "source": "0",
    "versions": {"python": "3.12", "torch": "2.6", "system": "Linux"},
    "parts": {"kills": {"cases": 1200, "wrong": 1, "minutes": 2.5, "figures": {"kills": 1199}}},
}


def test_the_page_shows_the_result_on_record():
    run = last_result()
    if run is None:
        pytest.skip(describe(run))
    assert table_on() == table(run)
    assert all(part["wrong"] == 0 and part["cases"] > 0 for part in run["parts"].values())


def test_a_result_is_told_in_one_line_and_in_a_table(tmp_path):
    assert describe(RUN) == ("last torture: 1,200 cases, 1 wrong, 2026-01-02, torch 2.6; the source has changed since")
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- torture -->\nold\n<!-- /torture -->\nafter\n")
    write_table(RUN, page)
    assert table_on(page) == table(RUN)
    assert "| `kills` | 1,200 | 1 | 2.5 | 1,199 kills |" in page.read_text()
    assert page.read_text().startswith("before\n")
    assert page.read_text().endswith("\nafter\n")


def test_a_result_is_written_once_all_groups_of_all_parts_are_done(tmp_path):
    place, parts = tmp_path / "run.json", {"one": ["a", "b"], "two": ["c"]}
    for part, groups in parts.items():
        for name in groups:
            progress = Progress(part, tmp_path)
            done = progress.of(name)
            for kills in (2, 1):
                done.add({"kills": kills})
            progress.keep()
            assert publish(parts, place, tmp_path) is None
            assert Progress(part, tmp_path).of(name).cases == 2
            done.finished = True
            progress.keep()
    run = publish(parts, place, tmp_path)
    assert json.loads(place.read_text()) == run
    assert run["parts"]["one"] == {"cases": 4, "wrong": 0, "minutes": 0.0, "figures": {"kills": 6}}
    assert "of this source" in describe(run)

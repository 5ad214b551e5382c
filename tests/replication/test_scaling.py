"""The simulator of large studies: cases that can be worked out by hand."""

from __future__ import annotations

import pytest

from replication.scaling import tables
from replication.scaling.simulate import Costs, simulate
from replication.tables import filled

RUN = ((2.0, 10), (3.0, 20))


def test_one_worker_takes_as_long_as_all_its_work_and_all_its_starts():
    found = simulate([RUN] * 4, 1, Costs(engine=1.0, worker=2.0, run=0.5))
    assert found.seconds == pytest.approx(1 + 2 + 4 * (0.5 + 5))
    assert (found.work, found.bytes, found.driver) == (pytest.approx(20), 120, 0)


@pytest.mark.parametrize(("workers", "seconds"), [(2, 10), (3, 10), (4, 5), (9, 5)])
def test_runs_go_to_free_workers(workers, seconds):
    found = simulate([RUN] * 4, workers, Costs())
    assert found.seconds == pytest.approx(seconds)
    assert found.efficiency == pytest.approx(20 / (workers * seconds))


def test_a_long_run_at_the_end_leaves_the_others_idle():
    short, long = ((1.0, 0),), ((8.0, 0),)
    assert simulate([*[short] * 8, long], 2, Costs()).seconds == pytest.approx(12)
    assert simulate([long, *[short] * 8], 2, Costs()).seconds == pytest.approx(8)


def test_a_driver_that_is_too_slow_sets_the_pace():
    found = simulate([((1.0, 100),)] * 40, 10, Costs(record=0.5, byte=0.005))
    assert found.seconds == pytest.approx(1 + 40 * 1.0)
    assert found.driver_share == pytest.approx(40 / 41)
    assert found.waiting == 1000
    assert found.late == pytest.approx(10)


def test_a_driver_that_is_fast_enough_only_delays_the_last_record():
    found = simulate([((1.0, 0), (1.0, 0))] * 3, 3, Costs(record=0.01))
    assert found.seconds == pytest.approx(2 + 3 * 0.01)
    assert found.late == pytest.approx(0.03)


def test_a_study_without_runs_ends_when_its_workers_are_there():
    assert simulate([], 2, Costs(engine=1.0, worker=2.0)).seconds == pytest.approx(3)


def test_the_tables_of_the_page_are_what_the_records_say():
    text = tables.PAGE.read_text(encoding="utf-8")
    assert filled(text, tables.TABLES) == text, "run `python -m replication.scaling.tables --write`"

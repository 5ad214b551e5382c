"""Tests that need a GPU leave a record, and it is read out where there is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpu_record import PLACE, describe, source_hash

pytest_plugins = ["pytester"]

CONFTEST = """
import sys
sys.path.insert(0, {tests!r})
import gpu_record
gpu_record.gpu = lambda: {name!r}

def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: needs a GPU")
    config.pluginmanager.register(gpu_record.GpuTests(config.rootpath / "run.json"))
"""
TESTS = """
import pytest

@pytest.mark.gpu
@pytest.mark.parametrize("right", [True, True, False])
def test_on_a_gpu(right):
    assert right

@pytest.mark.gpu
def test_never_begun(absent):
    pass

def test_anywhere():
    pass
"""


@pytest.fixture
def suite(pytester):
    """Return a function that runs five tests with a GPU of some name: (outcomes, lines, the record or None)."""
    pytester.makepyfile(TESTS)

    def call(name, *options):
        pytester.makeconftest(CONFTEST.format(tests=str(Path(__file__).parent), name=name))
        result = pytester.runpytest_subprocess("-n", "0", *options)
        place = pytester.path / "run.json"
        record = json.loads(place.read_text()) if place.exists() else None
        return result.parseoutcomes(), result.stdout, record

    return call


def test_without_a_gpu_they_are_skipped_and_nothing_is_recorded(suite):
    for options in ((), ("-m", "gpu")):
        outcomes, lines, record = suite(None, *options)
        assert outcomes["skipped"] == 4
        assert record is None
        lines.fnmatch_lines(["no GPU run is on record: `make test-gpu`*"])


def test_a_whole_run_is_recorded_with_its_failures(suite):
    outcomes, lines, record = suite("A fast one", "-m", "gpu")
    assert (outcomes["passed"], outcomes["failed"], outcomes["errors"]) == (2, 1, 1)
    assert (record["passed"], record["failed"], record["device"]) == (2, 2, "A fast one")
    assert record["source"] == source_hash()
    lines.fnmatch_lines(["last GPU run: 2 passed, 2 failed, *on A fast one; of this source"])


@pytest.mark.parametrize("options", [(), ("-m", "gpu", "-k", "on_a_gpu"), ("-m", "gpu", "."), ("-m", "not gpu")])
def test_a_part_of_them_is_not_recorded(suite, options):
    assert suite("A fast one", *options)[2] is None


def test_a_record_of_other_source_says_so(tmp_path):
    run = {"date": "2026-01-02", "commit": "", "source": "0", "torch": "2.6", "device": "X", "passed": 3, "failed": 0}
    (tmp_path / "run.json").write_text(json.dumps(run))
    line = "last GPU run: 3 passed, 0 failed, 2026-01-02, torch 2.6 on X; the source has changed since"
    assert describe(tmp_path / "run.json") == line


def test_nothing_failed_in_the_last_run_on_record():
    if not PLACE.exists():
        pytest.skip(describe(PLACE))
    run = json.loads(PLACE.read_text(encoding="utf-8"))
    assert run["failed"] == 0
    assert run["passed"] > 0

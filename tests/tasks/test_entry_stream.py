"""Streams of tasks in files, each read when it is needed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bocl.errors import DataError
from bocl.tasks import entry_stream
from bocl.tasks.entries import find_entries, find_entry
from bocl.tasks.entry_stream import EntryStream
from bocl.tasks.own import Cuts


def table(path: Path, shift: float) -> Path:
    rows = [f"{shift + row},{-row},{'cat' if row % 2 else 'dog'}" for row in range(20)]
    path.write_text("\n".join(["a,b,label", *rows, ""]))
    return path


@pytest.fixture
def folder(tmp_path):
    for number, name in enumerate(("a", "b", "c")):
        table(tmp_path / f"{name}.csv", 10.0 * number)
    return tmp_path


def test_a_task_has_its_name_labels_columns_and_scale(folder):
    stream = EntryStream(find_entries(folder), Cuts(validation=0.2, test=0.25))
    task = stream[1]
    assert (len(stream), task.name, task.index, task.labels, task.columns) == (3, "b", 1, ("cat", "dog"), ("a", "b"))
    test = stream.test_split(1)
    assert (len(task.train.labels), len(task.validation.labels), len(test.labels)) == (12, 3, 5)
    found = np.concatenate([split.raw.numpy() for split in (task.train, task.validation, test)])
    np.testing.assert_array_equal(np.sort(found[:, 0]), np.arange(10, 30))
    scaled = task.train.inputs().numpy()  # columns of a table have units of their own
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(scaled.std(0), 1, atol=1e-6)
    assert [each.name for each in stream] == ["a", "b", "c"]


def test_floats_of_arrays_are_scaled_only_where_that_is_asked_for(tmp_path):
    x, y = np.linspace(3, 5, 40, dtype=np.float32).reshape(20, 2), np.array([0, 1] * 10)
    np.savez(tmp_path / "a.npz", x=x, y=y, x_test=x, y_test=y)
    entries = [find_entry(tmp_path / "a.npz")]
    assert EntryStream(entries, Cuts()).test_split(0).inputs().numpy().tolist() == x.tolist()
    scaled = EntryStream(entries, Cuts(), standardise=True).test_split(0)
    assert abs(float(scaled.inputs().mean())) < 0.2


def test_parts_that_do_not_fit_are_refused_by_name(tmp_path):
    x, y = np.zeros((8, 2), np.float32), np.array([0, 1] * 4)
    np.savez(tmp_path / "a.npz", x=x, y=y, x_test=x[:, :1], y_test=y)
    with pytest.raises(DataError, match=r"a\.npz, test: samples of shape \(1,\), but the training samples have \(2,\)"):
        EntryStream([find_entry(tmp_path / "a.npz")], Cuts())[0]
    np.savez(tmp_path / "b.npz", x=x, y=y, x_validation=x, y_validation=y + 1)
    with pytest.raises(DataError, match=r"b\.npz, validation: no training sample has the label 2; "):
        EntryStream([find_entry(tmp_path / "b.npz")], Cuts())[0]


def test_values_that_are_not_finite_are_refused_by_name(tmp_path):
    x = np.full((8, 2), np.nan, np.float32)
    np.savez(tmp_path / "a.npz", x=x, y=np.array([0, 1] * 4))
    with pytest.raises(DataError, match=r"a\.npz: sample 0 holds nan, not a finite float32 number \(16 such values"):
        EntryStream([find_entry(tmp_path / "a.npz")], Cuts())[0]


def test_a_task_is_read_when_it_is_needed_and_two_are_kept(folder, monkeypatch):
    read, reads = entry_stream.read_entry, []
    monkeypatch.setattr(entry_stream, "read_entry", lambda entry, *rest: reads.append(entry.name) or read(entry, *rest))
    stream = EntryStream(find_entries(folder), Cuts())
    assert reads == []
    first = stream[0]
    stream[1]
    assert stream[0] is first  # while it is learnt, the next one is read
    stream.test_split(0), stream.test_split(1), stream[2]
    assert reads == ["a", "b", "c"]
    stream[0]
    assert reads == ["a", "b", "c", "a"]


def test_a_file_that_has_changed_is_refused_by_name(folder):
    entries = find_entries(folder)
    stream, before = EntryStream(entries, Cuts()), EntryStream(entries, Cuts()).fingerprint()
    table(folder / "b.csv", 11.0)
    stream[0]
    with pytest.raises(DataError, match=r"b\.csv has changed since task 'b' began; restore it, or begin another run"):
        stream[1]
    assert EntryStream(find_entries(folder), Cuts()).fingerprint() != before
    (folder / "c.csv").unlink()
    with pytest.raises(DataError, match=r"c\.csv: there is no such file or folder; "):
        stream[2]


def test_a_name_is_part_of_the_fingerprint(folder):
    path = folder / "a.csv"
    one, other = (EntryStream([find_entry(path, name)], Cuts()).fingerprint() for name in ("a", "z"))
    assert one != other

"""Tables in Parquet files."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

import numpy as np
import pytest

from bocl.errors import InputError
from bocl.tasks import tables
from bocl.tasks.entries import find_entry, read_entry, read_inputs

needs_pyarrow = pytest.mark.extras("pyarrow")


def parquet(path: Path, **columns) -> Path:
    import pyarrow
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_entry(find_entry(path))
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(str(path), "FILE")


@needs_pyarrow
def test_a_parquet_file_is_read_by_the_names_of_its_columns(tmp_path):
    path = parquet(tmp_path / "a.parquet", height=[1.5, 2.0], label=["cat", "dog"], tall=[False, True], legs=[4, 2])
    parts, columns = read_entry(find_entry(path))
    assert columns == ("height", "tall", "legs")
    assert parts.train[0].dtype == np.float32
    assert parts.train[0].tolist() == [[1.5, 0, 4], [2, 1, 2]]
    assert parts.train[1] == ["cat", "dog"]
    inputs, names = read_inputs(path, ["legs", "height"])
    assert (inputs.tolist(), names) == ([[4, 1.5], [2, 2]], ["0", "1"])


@needs_pyarrow
def test_the_parts_may_be_of_both_kinds(tmp_path):
    parquet(tmp_path / "a" / "train.parquet", a=[1.0, 2.0], label=[0, 1])
    (tmp_path / "a" / "test.csv").write_text("label,a\n1,5\n")
    parts, columns = read_entry(find_entry(tmp_path / "a"))
    assert (columns, parts.train[1]) == (("a",), [0, 1])
    assert (parts.test[0].tolist(), parts.test[1]) == ([[5]], [1])


@needs_pyarrow
@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ({"a": [1.0]}, "FILE has no label column 'label' (known: a)"),
        ({"a": [1.0, 2.0], "label": ["x", None]}, "FILE: row 2 has no 'label'; fill it in"),
        ({"a": ["1", "red"], "label": [0, 1]}, "FILE: column 'a' holds 'red' in row 2"),
        ({"a": [1.0, None], "label": [0, 1]}, "FILE: column 'a' holds None in row 2"),
        ({"a": [1.0, float("nan")], "label": [0, 1]}, "FILE: column 'a' holds nan in row 2"),
        ({"a": [[1, 2], [3, 4]], "label": [0, 1]}, "FILE: column 'a' holds [1, 2] in row 1"),
        ({"a": [[1, 2], [3]], "label": [0, 1]}, "FILE: column 'a' holds [1, 2] in row 1"),
        ({"a": [datetime.date(2020, 1, 1)], "label": [0]}, "FILE: column 'a' holds datetime.date(2020, 1, 1) in row 1"),
    ],
)
def test_a_wrong_parquet_file_is_refused(tmp_path, columns, fault):
    assert refusal(parquet(tmp_path / "a.parquet", **columns)).startswith(fault)


@needs_pyarrow
def test_a_damaged_parquet_file_is_refused_wherever_it_is_cut(tmp_path):
    path = parquet(tmp_path / "a.parquet", a=[1.0, 2.0], label=[0, 1])
    whole = path.read_bytes()
    for content in (b"", b"PAR1", b"text", whole[:50], whole[:-1], whole[:4] + bytes(40) + whole[44:]):
        path.write_bytes(content)
        assert refusal(path).startswith("FILE cannot be read as a Parquet file: ")


@needs_pyarrow
def test_a_parquet_file_that_unpacks_to_more_than_the_memory_is_refused_unread(tmp_path, monkeypatch):
    path = parquet(tmp_path / "a.parquet", a=np.zeros(100_000), label=np.zeros(100_000))
    assert path.stat().st_size < 10_000
    monkeypatch.setattr(tables, "exceeds_memory", lambda size: "too much" if size > 1_000_000 else None)
    assert refusal(path) == "FILE takes too much once unpacked; split it"


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert refusal(tmp_path / "a.parquet") == (
        "FILE is a Parquet file, which needs the extra 'parquet'; pip install 'bocl[parquet]'"
    )

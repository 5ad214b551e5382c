"""Tasks in files and folders of the user's: what is read, and what is refused in one line that names the file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from bocl.errors import DataError
from bocl.tasks import entries, tables
from bocl.tasks.entries import find_entries, find_entry, is_table, read_entry, read_inputs

X = np.arange(24, dtype=np.float32).reshape(8, 3)
Y = np.array([0, 1] * 4)


def refusal(path: Path, label: str | None = None) -> str:
    """Return the one line with which a task is refused; it names the file."""
    with pytest.raises(DataError) as caught:
        read_entry(find_entry(path), label)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message.replace(str(path), "FILE")


def written(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def npz(path: Path, **arrays) -> Path:
    np.savez(path, **arrays)
    return path


# .npz


def test_an_npz_with_all_parts_is_read_as_it_is(tmp_path):
    path = npz(tmp_path / "spring.npz", x=X, y=Y, x_validation=X + 1, y_validation=Y, x_test=X + 2, y_test=1 - Y)
    entry = find_entry(path)
    parts, columns = read_entry(entry)
    assert (entry.name, columns, is_table(path)) == ("spring", (), False)
    for (inputs, labels), wanted in zip(
        (parts.train, parts.validation, parts.test), ((X, Y), (X + 1, Y), (X + 2, 1 - Y)), strict=True
    ):
        np.testing.assert_array_equal(inputs, wanted[0])
        np.testing.assert_array_equal(labels, wanted[1])


def test_an_npz_may_have_the_training_samples_only_and_any_labels(tmp_path):
    parts, _ = read_entry(find_entry(npz(tmp_path / "a.npz", x=X.astype(np.uint8), y=np.array(["no", "yes"] * 4))))
    assert (parts.validation, parts.test) == (None, None)
    assert parts.train[0].dtype == np.uint8
    assert list(parts.train[1][:2]) == ["no", "yes"]


@pytest.mark.parametrize(
    ("arrays", "fault"),
    [
        ({"x": X}, "FILE holds no array 'y', only x"),
        ({"y": Y}, "FILE holds no array 'x', only y"),
        ({"x": X, "y": Y, "x_test": X}, "FILE holds no array 'y_test', only x, x_test, y"),
        ({"x": X, "y": Y, "weights": Y}, "FILE holds 'weights'; it may hold x, x_test, x_validation, y, y_"),
        ({"x": X, "y": np.array([{}, 1], dtype=object)}, "allow_pickle=False; save text as a numpy array of strings"),
    ],
)
def test_a_wrong_npz_is_refused(tmp_path, arrays, fault):
    assert fault in refusal(npz(tmp_path / "a.npz", **arrays))


def test_a_damaged_npz_is_refused_wherever_it_is_cut(tmp_path):
    whole = npz(tmp_path / "whole.npz", x=X, y=Y).read_bytes()
    for size in (0, 1, 30, 100, len(whole) // 2, len(whole) - 1):
        assert "FILE cannot be read as arrays of numpy.savez: " in refusal(written(tmp_path / "a.npz", whole[:size]))


def test_an_npz_that_unpacks_to_more_than_the_memory_is_refused_unread(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.zeros(1_000_000), y=Y)
    assert path.stat().st_size < 10_000
    monkeypatch.setattr(entries, "exceeds_memory", lambda size: "too much" if size > 1_000_000 else None)
    assert refusal(path) == "FILE takes too much once unpacked; split it into tasks"


class Runs:
    """What makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


def test_an_npz_runs_nothing(tmp_path):
    path = npz(tmp_path / "a.npz", x=X, y=np.array([Runs(tmp_path / "ran")], dtype=object))
    with np.load(path, allow_pickle=True) as arrays:
        assert arrays["y"] is not None
    (tmp_path / "ran").rmdir()  # so it does run where pickles are allowed
    refusal(path)
    assert not (tmp_path / "ran").exists()


# .csv

TABLE = "height,label,width\n1,cat,0.5\n2.5,dog,-1e3\n3,cat,7\n"


def test_a_csv_is_read_by_the_names_of_its_columns(tmp_path):
    parts, columns = read_entry(find_entry(written(tmp_path / "spring.csv", TABLE)))
    assert columns == ("height", "width")
    assert parts.train[0].dtype == np.float32
    assert parts.train[0].tolist() == [[1, 0.5], [2.5, -1000], [3, 7]]
    assert parts.train[1] == ["cat", "dog", "cat"]
    assert (parts.validation, parts.test) == (None, None)


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("a,label\n1,3\n2,-1\n3,0\n", [3, -1, 0]),
        ("a,label\n1,007\n2,7\n", ["007", "7"]),
        ("a,label\n1,1.0\n2,2\n", ["1.0", "2"]),
        (f"a,label\n1,{'9' * 5000}\n2,2\n", ["9" * 5000, "2"]),
        ("\ufeffa,label\r\n1,x\r\n\r\n2,y\r\n", ["x", "y"]),
        ('a,label\n1,"x, with a\nbreak"\n2,Zürich\n', ["x, with a\nbreak", "Zürich"]),
    ],
    ids=["integers", "leading zeros", "floats", "long", "bom and empty lines", "quotes"],
)
def test_labels_of_a_csv_are_integers_or_text(tmp_path, text, labels):
    parts, _ = read_entry(find_entry(written(tmp_path / "a.csv", text)))
    assert parts.train[1] == labels


def test_another_column_may_hold_the_labels(tmp_path):
    parts, columns = read_entry(find_entry(written(tmp_path / "a.csv", "a,b\n1,2\n3,4\n")), "a")
    assert (columns, parts.train[0].tolist(), parts.train[1]) == (("b",), [[2], [4]], [1, 3])


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "FILE holds no samples; give a line of column names and one line per sample"),
        ("a,label\n", "FILE holds no samples"),
        ("a,label\n1,x\n1\n", "FILE: row 2 has 1 values for 2 columns; mend that line"),
        ("a,a,label\n1,2,x\n", "FILE has two columns called 'a'; rename one of them"),
        ("a,lable\n1,x\n", "FILE has no label column 'label' (did you mean 'lable'?)"),
        ("label\nx\n", "FILE has no column besides the label's; give one column for each feature"),
        ("a,label\n1,x\nred,y\n", "FILE: column 'a' holds 'red' in row 2, which is not a finite float32 number; turn"),
        ("a,label\n1,x\n,y\n", "FILE: column 'a' holds '' in row 2"),
        ("a,label\n1,x\nnan,y\n", "FILE: column 'a' holds 'nan' in row 2"),
        ("a,label\n1e300,x\n2,y\n", "FILE: column 'a' holds '1e300' in row 1"),
        ("a,label\n1,x\n2,\n", "FILE: row 2 has no 'label'; fill it in, or leave the row out"),
        ('a,label\n1,"x\n', "FILE cannot be read as comma-separated text in UTF-8: unexpected end of data"),
        ("a,label\n1,Zürich\n".encode("latin-1"), "FILE cannot be read as comma-separated text in UTF-8: 'utf-8' "),
        ("a,label\n1,x\n".encode("utf-16"), "FILE cannot be read as comma-separated text in UTF-8: 'utf-8' "),
        ("a,label\n1," + "x" * 200_000 + "\n", "FILE cannot be read as comma-separated text in UTF-8: field larger"),
    ],
)
def test_a_wrong_csv_is_refused(tmp_path, text, fault):
    assert refusal(written(tmp_path / "a.csv", text)).startswith(fault)


def test_a_table_larger_than_the_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "exceeds_memory", lambda size: "too much" if size >= 8 * len(TABLE) else None)
    assert refusal(written(tmp_path / "a.csv", TABLE)) == "FILE takes too much; split it, or keep it as .npz"


# A folder with a table for every part


def test_the_tables_of_a_folder_are_its_parts(tmp_path):
    folder = tmp_path / "spring"
    written(folder / "train.csv", "a,b,label\n1,2,0\n3,4,1\n")
    written(folder / "validation.csv", "b,label,a,note\n6,1,5,good\n")
    written(folder / "test.csv", "a,b,label\n7,8,0\n")
    written(folder / ".notes", "hidden")
    parts, columns = read_entry(find_entry(folder))
    assert (columns, is_table(folder), find_entry(folder).name) == (("a", "b"), True, "spring")
    found = [(inputs.tolist(), labels) for inputs, labels in (parts.train, parts.validation, parts.test)]
    assert found == [([[1, 2], [3, 4]], [0, 1]), ([[5, 6]], [1]), ([[7, 8]], [0])]


def test_labels_are_integers_in_all_parts_or_in_none(tmp_path):
    written(tmp_path / "a" / "train.csv", "a,label\n1,0\n3,1\n")
    written(tmp_path / "a" / "test.csv", "a,label\n1,0\n3,other\n")
    parts, _ = read_entry(find_entry(tmp_path / "a"))
    assert (parts.train[1], parts.test[1]) == (["0", "1"], ["0", "other"])


@pytest.mark.parametrize(
    ("test", "fault"),
    [
        ("a,label\n1,0\n", "test.csv has no feature column 'b' (known: a, label)"),
        ("a,b\n1,0\n", "test.csv has no label column 'label' (known: a, b)"),
        ("", "test.csv holds no samples"),
    ],
)
def test_a_wrong_part_is_refused_by_name(tmp_path, test, fault):
    written(tmp_path / "a" / "train.csv", "a,b,label\n1,2,0\n3,4,1\n")
    written(tmp_path / "a" / "test.csv", test)
    assert refusal(tmp_path / "a").startswith(f"FILE/{fault}")


def test_a_folder_without_a_training_part_is_refused(tmp_path):
    written(tmp_path / "a" / "test.csv", "a,label\n1,0\n")
    assert refusal(tmp_path / "a").startswith("FILE holds no folders of images; ")


# Entries


def test_the_tasks_of_a_folder_come_by_name_without_hidden_ones(tmp_path):
    for name in ("b.csv", "a.csv", ".hidden.csv", "C/train.csv"):
        written(tmp_path / name, TABLE)
    assert [entry.name for entry in find_entries(tmp_path)] == ["C", "a", "b"]


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        ([], "FILE is empty; give it an entry per task: .npz, .csv, "),
        ([".hidden.csv"], "FILE is empty; "),
        (["a.csv", "notes.txt"], "FILE/notes.txt is not a task's data; give .npz, "),
        (["a.csv", "a.npz"], "FILE: two tasks are called 'a'; give each a name of its own"),
        (["a.csv", "a/train.csv"], "FILE: two tasks are called 'a'; "),
    ],
)
def test_a_folder_of_something_else_is_refused(tmp_path, names, fault):
    for name in names:
        written(tmp_path / name, TABLE)
    with pytest.raises(DataError) as caught:
        find_entries(tmp_path)
    assert str(caught.value).replace(str(tmp_path), "FILE").startswith(fault)


def test_a_file_is_no_folder_of_tasks(tmp_path):
    with pytest.raises(DataError, match=r"a\.csv is not a folder; give one with an entry per task"):
        find_entries(written(tmp_path / "a.csv", TABLE))


@pytest.mark.parametrize("kind", [".npz", ".csv", ".parquet", ""])
def test_what_is_no_file_is_refused(tmp_path, kind):
    missing, pipe, loop = (tmp_path / f"{name}{kind}" for name in ("missing", "pipe", "loop"))
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    assert refusal(missing).startswith("FILE: there is no such file or folder; ")
    assert refusal(loop).startswith("FILE: there is no such file or folder; ")
    assert refusal(pipe) == "FILE is not a file"


def test_a_folder_named_like_a_file_is_refused(tmp_path):
    for name in ("a.npz", "a.csv"):
        (tmp_path / name).mkdir()
        assert refusal(tmp_path / name).startswith("FILE")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_cannot_be_read_is_refused(tmp_path):
    path = written(tmp_path / "a.csv", TABLE)
    path.chmod(0)
    assert refusal(path) == "FILE cannot be read: Permission denied"


def fails(path: Path) -> bytes:
    raise OSError(5, "Input/output error")


def test_a_failing_disk_is_told_by_name(tmp_path, monkeypatch):
    path = written(tmp_path / "a.csv", TABLE)
    entry = find_entry(path)
    monkeypatch.setattr(Path, "read_bytes", fails)
    with pytest.raises(DataError, match=r"a\.csv cannot be read: Input/output error"):
        read_entry(entry)


def test_a_folder_that_cannot_be_listed_is_refused_and_not_taken_for_empty(tmp_path, monkeypatch):
    written(tmp_path / "a" / "cat" / "1.png", b"")
    listed = Path.iterdir

    def iterdir(self):
        if self.name == "cat":
            raise PermissionError(13, "Permission denied", str(self))
        return listed(self)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    with pytest.raises(DataError, match="cat cannot be read: Permission denied"):
        find_entry(tmp_path / "a")


def test_a_label_column_is_only_for_what_has_columns(tmp_path):
    path = npz(tmp_path / "a.npz", x=X, y=Y)
    assert refusal(path, "species") == "FILE has no columns; leave out the name of the label's"


# What an entry is known by


def test_every_change_of_a_folder_shows_in_its_sha256(tmp_path):
    folder, elsewhere = tmp_path / "a", tmp_path / "elsewhere"
    written(folder / "train.csv", TABLE)
    written(elsewhere / "1.png", b"one")
    (folder / "cat").symlink_to(elsewhere)
    hashes = [find_entry(folder).sha256]
    written(folder / ".hidden" / "file", b"hidden")
    assert find_entry(folder).sha256 == hashes[0]
    written(elsewhere / "1.png", b"two")  # through a link
    hashes.append(find_entry(folder).sha256)
    (elsewhere / "1.png").rename(elsewhere / "2.png")
    hashes.append(find_entry(folder).sha256)
    written(folder / "test.csv", TABLE)
    hashes.append(find_entry(folder).sha256)
    assert len({*hashes}) == 4


def test_a_folder_may_not_contain_itself(tmp_path):
    written(tmp_path / "a" / "cat" / "1.png", b"one")
    (tmp_path / "a" / "cat" / "more").symlink_to(tmp_path / "a")
    assert refusal(tmp_path / "a").startswith("FILE/cat/more is a link to a folder that it lies in; ")


def test_what_is_no_file_in_a_folder_is_refused_by_name(tmp_path):
    written(tmp_path / "a" / "train.csv", TABLE)
    os.mkfifo(tmp_path / "a" / "pipe")
    assert refusal(tmp_path / "a") == "FILE/pipe is not a file"


# Samples to predict for


def test_samples_to_predict_for_are_read_by_the_columns_of_the_task(tmp_path):
    path = written(tmp_path / "new.csv", "width,name,height\n1,x,2\n3,y,4\n")
    inputs, names = read_inputs(path, ["height", "width"])
    assert (inputs.tolist(), names) == ([[2, 1], [4, 3]], ["0", "1"])
    inputs, names = read_inputs(npz(tmp_path / "new.npz", x=X))
    np.testing.assert_array_equal(inputs, X)
    assert names == [str(row) for row in range(8)]


@pytest.mark.parametrize(
    ("name", "columns", "fault"),
    [
        ("new.csv", (), "FILE is a table, but the task was not learnt from one; give data of the same kind"),
        ("new.csv", ("colour",), "FILE has no feature column 'colour' (known: height, label, width)"),
        ("new.txt", (), "FILE holds no samples; give .npz, "),
        ("missing", (), "FILE holds no samples; give .npz, "),
    ],
)
def test_wrong_samples_to_predict_for_are_refused(tmp_path, name, columns, fault):
    written(tmp_path / "new.csv", TABLE)
    written(tmp_path / "new.txt", TABLE)
    with pytest.raises(DataError) as caught:
        read_inputs(tmp_path / name, columns)
    assert str(caught.value).replace(str(tmp_path / name), "FILE").startswith(fault)

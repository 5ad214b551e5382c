"""One task in a file or folder of the user's.

    NAME.npz                  arrays x and y; x_validation, y_validation, x_test and y_test where there are such parts
    NAME.csv, NAME.parquet    a table (tables.py)
    NAME/                     train.csv, and validation.csv and test.csv where there are such parts; or .parquet
    NAME/                     a folder of images for every class (image_folders.py)
    NAME/                     a Hugging Face dataset saved to disk (hugging_face.py)

Data stays where it is. An entry is known by the sha256 of its content, so that a change shows.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bocl.checks import exceeds_memory
from bocl.errors import DataError
from bocl.tasks.folders import files_under, visible
from bocl.tasks.hugging_face import is_dataset, read_dataset, read_features
from bocl.tasks.image_folders import read_image_folder, read_images
from bocl.tasks.own import PARTS, Pair, Parts
from bocl.tasks.tables import LABEL, read_labels, read_table
from bocl.tasks.texts import TextFormat

TABLES = (".csv", ".parquet")
KINDS = ".npz, .csv, .parquet, or a folder with train.csv, with a folder of images per class, or saved by datasets"


@dataclass(frozen=True)
class Entry:
    """A task's file or folder.

    name    of the task: that of the file, without its ending
    sha256  of its content
    label   its column of labels, if it is a table or a dataset
    """

    name: str
    path: Path
    sha256: str
    label: str | None = None


def find_entry(path: str | Path, name: str | None = None, label: str | None = None) -> Entry:
    """Return a task's file or folder, known by its content."""
    path = Path(path)
    if not os.path.exists(path):  # unlike Path.exists, it takes any name
        raise DataError(f"{path}: there is no such file or folder; give a task's data: {KINDS}")
    named = name if name is not None else path.name if path.is_dir() else path.stem
    return Entry(named, path, _sha256(path), label)


def find_entries(folder: str | Path) -> list[Entry]:
    """Return the tasks in a folder, one per entry, by name; hidden entries are left out."""
    folder = Path(folder)
    if not os.path.isdir(folder):
        raise DataError(f"{folder} is not a folder; give one with an entry per task: {KINDS}")
    paths = visible(folder)
    if not paths:
        raise DataError(f"{folder} is empty; give it an entry per task: {KINDS}")
    for path in paths:
        if not path.is_dir() and path.suffix.lower() not in (".npz", *TABLES):
            raise DataError(f"{path} is not a task's data; give {KINDS}, or move it elsewhere")
    entries = [find_entry(path) for path in paths]
    check_names([entry.name for entry in entries], folder)
    return entries


def check_names(names: Sequence[str], where: object) -> None:
    """Refuse a name that two tasks have."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{where}: two tasks are called '{twice}'; give each a name of its own")


def is_table(path: Path) -> bool:
    """Whether a task's data is a table, whose columns have names."""
    return path.suffix.lower() in TABLES or _table_parts(path) is not None


def read_entry(
    entry: Entry, label: str | None = None, text: tuple[str, TextFormat] | None = None
) -> tuple[Parts, tuple[str, ...]]:
    """Return the parts of a task, and of a table or dataset the names of its feature columns.

    label  the column of labels, in a table or a dataset
    text   the column of texts of a table, and how they become token ids
    """
    path = entry.path
    tables = _table_parts(path)
    if tables is not None or path.suffix.lower() in TABLES:
        return _tables(tables or {"train": path}, label or LABEL, text)
    if text is not None:
        raise DataError(f"{path} is no table; give texts as .csv or .parquet, with the column '{text[0]}'")
    if label is not None and not is_dataset(path):
        raise DataError(f"{path} has no columns; leave out the name of the label's")
    if path.suffix.lower() == ".npz":
        return _npz(path), ()
    if is_dataset(path):
        return read_dataset(path, label or LABEL)
    return read_image_folder(path), ()


def read_inputs(path: str | Path, columns: Sequence[str] = (), *, texts: bool = False) -> tuple[Any, list[str]]:
    """Return samples to predict for, and what to call each of them.

    columns  of the table or dataset the task was learnt from; there may be others, and they may come in another order
    texts    whether the one column holds texts
    """
    path = Path(path)
    if path.suffix.lower() in TABLES:
        if not columns:
            raise DataError(f"{path} is a table, but the task was not learnt from one; give data of the same kind")
        table = read_table(path, _bytes(path))
        inputs: Any = table.texts(columns[0]) if texts else table.inputs(columns)
    elif path.suffix.lower() == ".npz":
        inputs = _array(_arrays(path), "x", path)
    elif is_dataset(path):
        inputs = read_features(path, columns)
    elif os.path.isdir(path):
        return read_images(path)
    else:
        raise DataError(f"{path} holds no samples; give .npz, .csv, .parquet, a folder of images, or a dataset")
    return inputs, [str(row) for row in range(len(inputs))]


def _table_parts(folder: Path) -> dict[str, Path] | None:
    """Return the tables of a folder's parts, or None if it holds none."""
    found = {
        part: folder / f"{part}{kind}" for part in PARTS for kind in TABLES if (folder / f"{part}{kind}").is_file()
    }
    return found if "train" in found else None


def _tables(paths: dict[str, Path], label: str, text: tuple[str, TextFormat] | None) -> tuple[Parts, tuple[str, ...]]:
    tables = {part: read_table(path, _bytes(path)) for part, path in paths.items()}
    labels = dict(zip(tables, read_labels(tables.values(), label), strict=True))
    if text is not None:
        column, how = text
        encoded = {
            part: (how.encode(table.texts(column), f"{paths[part]}, column '{column}'"), labels[part])
            for part, table in tables.items()
        }
        return Parts(**encoded), (column,)
    columns = tuple(name for name in tables["train"].columns if name != label)
    return Parts(**{part: (table.inputs(columns), labels[part]) for part, table in tables.items()}), columns


def _npz(path: Path) -> Parts:
    arrays = _arrays(path)
    known = {f"{name}{suffix}" for name in "xy" for suffix in ("", "_validation", "_test")}
    if strange := sorted(arrays.keys() - known):
        raise DataError(f"{path} holds '{strange[0]}'; it may hold {', '.join(sorted(known))}")
    pairs: dict[str, Pair] = {}
    for part in PARTS:
        suffix = "" if part == "train" else f"_{part}"
        if part == "train" or f"x{suffix}" in arrays or f"y{suffix}" in arrays:
            pairs[part] = (_array(arrays, f"x{suffix}", path), _array(arrays, f"y{suffix}", path))
    return Parts(**pairs)


def _array(arrays: dict[str, Any], name: str, path: Path) -> Any:
    if name not in arrays:
        raise DataError(f"{path} holds no array '{name}', only {', '.join(sorted(arrays)) or 'nothing'}")
    return arrays[name]


def _arrays(path: Path) -> dict[str, Any]:
    content = _bytes(path)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if excess := exceeds_memory(size):
            raise DataError(f"{path} takes {excess} once unpacked; split it into tasks")
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except DataError:
        raise
    except Exception as error:  # a damaged archive raises nearly anything
        reason = " ".join(str(error).split())
        hint = "; save text as a numpy array of strings" if "pickle" in reason else ""
        raise DataError(f"{path} cannot be read as arrays of numpy.savez: {reason}{hint}") from error


def _bytes(path: Path) -> bytes:
    if not path.is_file():
        raise DataError(f"{path} is not a file")
    if excess := exceeds_memory(path.stat().st_size):
        raise DataError(f"{path} takes {excess}; split it")
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


def _sha256(path: Path) -> str:
    """Return the sha256 of a file, or of the names and hashes of a folder's files; hidden files are left out."""
    if not path.is_dir():
        return _sha256_of_file(path)
    digest = hashlib.sha256()
    for file in files_under(path):
        digest.update(
            f"{file.relative_to(path).as_posix()}\0{_sha256_of_file(file)}\0".encode(errors="surrogateescape")
        )
    return digest.hexdigest()


def _sha256_of_file(path: Path) -> str:
    if not path.is_file():
        raise DataError(f"{path} is not a file")
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error

"""A Hugging Face dataset that was saved to disk with ``save_to_disk``; it is read with the extra `datasets`.

Its features are one column of images or of arrays, or several columns of numbers; its labels are one more column. The
splits of a dictionary of datasets are the parts of the task: train, validation, test.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bocl.errors import DataError, did_you_mean
from bocl.extras import needed
from bocl.tasks.own import PARTS, Pair, Parts
from bocl.tasks.pictures import read_pictures


def is_dataset(folder: Path) -> bool:
    """Whether a folder was written by ``save_to_disk``."""
    return any((folder / name).is_file() for name in ("dataset_info.json", "dataset_dict.json"))


def read_dataset(folder: Path, label: str) -> tuple[Parts, tuple[str, ...]]:
    """Read a dataset, or a dictionary of datasets by part, and the names of its feature columns."""
    datasets, found = _load(folder)
    if not isinstance(found, datasets.DatasetDict):
        found = {"train": found}
    if strange := sorted(found.keys() - {*PARTS}):
        raise DataError(f"{folder} has a split '{strange[0]}'; rename it to train, validation or test, or leave it out")
    if "train" not in found:
        raise DataError(f"{folder} has no split 'train'")
    names = found["train"].column_names
    if label not in names:
        raise DataError(f"{folder} has no label column '{label}'{did_you_mean(label, names)}")
    features = [name for name in names if name != label]
    if not features:
        raise DataError(f"{folder} has no column besides the label's; give one or more for the features")
    pairs: dict[str, Pair] = {}
    for part, samples in found.items():
        if {*samples.column_names} != {*names}:
            raise DataError(f"{folder}: the splits train and {part} have different columns; give all the same")
        labels = _labels(datasets, samples.select_columns([label])[:][label], samples.features[label], folder)
        pairs[part] = (_inputs(datasets, samples, features, folder), labels)
    return Parts(**pairs), tuple(features)


def read_features(folder: Path, columns: Sequence[str]) -> Any:
    """Return the samples in these columns of a dataset, to predict for; without any, in all."""
    datasets, found = _load(folder)
    if isinstance(found, datasets.DatasetDict):
        raise DataError(f"{folder} has the splits {', '.join(found)}; give the folder of one of them")
    for name in columns:
        if name not in found.column_names:
            raise DataError(f"{folder} has no feature column '{name}'{did_you_mean(name, found.column_names)}")
    return _inputs(datasets, found, list(columns or found.column_names), folder)


def _load(folder: Path) -> tuple[Any, Any]:
    """Return the library and what it reads from a folder."""
    datasets = needed("datasets", "datasets", f"{folder} is a Hugging Face dataset")
    try:
        return datasets, datasets.load_from_disk(str(folder)).with_format(None)
    except Exception as error:  # a damaged folder raises nearly anything
        raise DataError(f"{folder} cannot be read as a dataset: {' '.join(str(error).split())}") from error


def _inputs(datasets: Any, found: Any, features: list[str], folder: Path) -> Any:
    images = [name for name in features if isinstance(found.features[name], datasets.Image)]
    if images and len(features) > 1:
        raise DataError(f"{folder} has more columns than the images in '{images[0]}'; leave the others out")
    return (_pictures if images else _numbers)(datasets, found, features, folder)


def _labels(datasets: Any, values: list[Any], kind: Any, folder: Path) -> list[Any]:
    """Return labels as they are, those of a ClassLabel by name; there, -1 says that a label is not known."""
    named = isinstance(kind, datasets.ClassLabel)
    missing = next((row for row, value in enumerate(values) if value is None or (named and value < 0)), None)
    if missing is not None:
        raise DataError(f"{folder}: row {missing} has no label; fill it in, or leave the row out")
    return [kind.int2str(value) for value in values] if named else values


def _numbers(datasets: Any, found: Any, features: list[str], folder: Path) -> Any:
    """Return one column of arrays, or several of numbers, in the type that the dataset has them in."""
    arrays = []
    for name in features:
        if not _is_plain(datasets, found.features[name]):
            raise DataError(
                f"{folder}: the column '{name}' holds {found.features[name]}, not numbers; convert it, or leave it out"
            )
        # The format's own choice would be int64 for bytes.
        values = found.select_columns([name]).with_format("numpy", dtype=None)[:][name]
        try:
            array = np.stack([*values]) if len(values) else np.empty((0, 1), dtype=np.float32)
        except ValueError as error:
            raise DataError(f"{folder}: the arrays in '{name}' differ in shape; bring all to one shape") from error
        if array.dtype.kind not in "fiub":
            raise DataError(f"{folder}: the column '{name}' holds text or nothing in places; give numbers everywhere")
        arrays.append(array)
    if len(arrays) == 1:
        return arrays[0][:, None] if arrays[0].ndim == 1 else arrays[0]
    for name, array in zip(features, arrays, strict=True):
        if array.ndim > 1:
            raise DataError(
                f"{folder} has more columns than the arrays in '{name}'; leave the others out, or give only numbers"
            )
    return np.stack(arrays, axis=1)


def _is_plain(datasets: Any, kind: Any) -> bool:
    """Whether a column holds numbers or arrays, and not what must be decoded, such as sound."""
    if isinstance(kind, datasets.List | datasets.LargeList):
        return _is_plain(datasets, kind.feature)
    arrays = (datasets.Array2D, datasets.Array3D, datasets.Array4D, datasets.Array5D)
    return isinstance(kind, (datasets.Value, datasets.ClassLabel, *arrays))


def _pictures(datasets: Any, found: Any, features: list[str], folder: Path) -> Any:
    """Return the images in one column; they are decoded here, because the library would also fetch them by address."""
    (name,) = features
    stored = found.select_columns([name]).cast_column(name, datasets.Image(decode=False))[:][name]
    if not stored:
        raise DataError(f"{folder} holds no samples; give it some, or leave the task out")
    pictures = []
    for row, image in enumerate(stored):
        if not image or not image["bytes"]:
            raise DataError(f"{folder}: the image in row {row} of '{name}' is not in the dataset; save it again")
        pictures.append((f"{folder}: the image in row {row} of '{name}'", image["bytes"]))
    return read_pictures(pictures)

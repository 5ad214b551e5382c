"""A Hugging Face dataset that was saved to disk with ``save_to_disk``; it is read with the extra `datasets`.

Its features are one column of images or of arrays, or several columns of numbers; its labels are one more column. The
splits of a dictionary of datasets are the parts of the task: train, validation, test.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bocl.errors import DataError, did_you_mean
from bocl.tasks.extras import needed
from bocl.tasks.own import PARTS, Pair, Parts


def is_dataset(folder: Path) -> bool:
    """Whether a folder was written by ``save_to_disk``."""
    return any((folder / name).is_file() for name in ("dataset_info.json", "dataset_dict.json"))


def read_dataset(folder: Path, label: str | None) -> Parts:
    """Read a dataset, or a dictionary of datasets by part; without a label column, labels are left empty."""
    datasets = needed("datasets", "datasets", f"{folder} is a Hugging Face dataset")
    try:
        found = datasets.load_from_disk(str(folder))
    except Exception as error:  # a damaged folder raises nearly anything
        raise DataError(f"{folder} cannot be read as a dataset: {' '.join(str(error).split())}") from error
    if not isinstance(found, datasets.DatasetDict):
        return Parts(_pair(datasets, found, label, folder))
    if strange := sorted(found.keys() - {*PARTS}):
        raise DataError(f"{folder} has a split '{strange[0]}'; rename it to train, validation or test, or leave it out")
    if "train" not in found:
        raise DataError(f"{folder} has no split 'train'")
    return Parts(**{part: _pair(datasets, found[part], label, folder) for part in found})


def _pair(datasets: Any, found: Any, label: str | None, folder: Path) -> Pair:
    names = list(found.column_names)
    if label is not None and label not in names:
        raise DataError(f"{folder} has no label column '{label}'{did_you_mean(label, names)}")
    features = [name for name in names if name != label]
    if not features:
        raise DataError(f"{folder} has no column besides the label's")
    kinds = found.features
    images = [name for name in features if isinstance(kinds[name], datasets.Image)]
    if images and len(features) > 1:
        raise DataError(f"{folder} has more columns than the images in '{images[0]}'; leave the others out")
    labels: Any = [] if label is None else found[:][label] if images else found.with_format("numpy")[:][label]
    if label is not None and isinstance(kinds[label], datasets.ClassLabel):
        labels = [kinds[label].int2str(int(number)) for number in labels]
    if images:
        return _pictures(found, images[0], folder), labels
    columns = found.with_format("numpy")[:]
    try:
        arrays = [np.stack(list(columns[name])) for name in features]
        inputs = arrays[0] if len(arrays) == 1 else np.stack(arrays, axis=1)
    except (ValueError, TypeError) as error:
        raise DataError(
            f"{folder}: the columns {', '.join(features)} cannot be put together as numbers of one shape; leave out "
            "those that are not"
        ) from error
    return inputs[:, None] if inputs.ndim == 1 else inputs, labels


def _pictures(found: Any, name: str, folder: Path) -> Any:
    images = [np.asarray(image.convert("L" if image.mode in ("1", "L") else "RGB")) for image in found[:][name]]
    if len({image.shape for image in images}) > 1:
        raise DataError(f"{folder}: the images in '{name}' differ in size; bring all to the same size")
    pixels = np.stack(images)
    return pixels[:, None] if pixels.ndim == 3 else np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))

"""MNIST: 60,000 training and 10,000 test images of handwritten digits, (1, 28, 28)."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bocl.errors import DataError
from bocl.tasks.files import LARGEST, FoundFile, PublishedFile, obtain, read_verified
from bocl.tasks.formats import gunzip, idx_array
from bocl.tasks.images import LabelledImages, labelled_images

MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
GZIP_MAGIC = b"\x1f\x8b"
HASHES = {  # name: (sha256 of the .gz file, sha256 of its content)
    "train-images-idx3-ubyte": (
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    "train-labels-idx1-ubyte": (
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    "t10k-images-idx3-ubyte": (
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    "t10k-labels-idx1-ubyte": (
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
}


def load_mnist(data: Path | str | None = None) -> LabelledImages:
    """Find (or download), verify and read MNIST; a second call returns the same object."""
    return _read(tuple(obtain(f"MNIST's {name}", _editions(name), data)[0] for name in HASHES))


def _editions(name: str) -> list[tuple[PublishedFile]]:
    zipped, plain = (f"sha256:{digest}" for digest in HASHES[name])
    mirrors = tuple(f"{mirror}{name}.gz" for mirror in MIRRORS)
    return [
        (PublishedFile(f"MNIST/raw/{name}.gz", zipped, mirrors),),
        (PublishedFile(f"MNIST/raw/{name}", plain),),
        (PublishedFile(f"{name}.gz", zipped),),
        (PublishedFile(name, plain),),
    ]


@lru_cache(maxsize=1)
def _read(files: tuple[FoundFile, ...]) -> LabelledImages:
    return labelled_images("MNIST", _read_part(*files[:2]), _read_part(*files[2:]))


def _read_part(images_file: FoundFile, labels_file: FoundFile) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    images, labels = _read_array(images_file), _read_array(labels_file)
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise DataError(f"{images_file.path} has shape {images.shape} for labels {labels.shape}; get both again")
    return images[:, None], labels.astype(np.int64)


def _read_array(file: FoundFile) -> NDArray[np.uint8]:
    content = read_verified(file)
    if content.startswith(GZIP_MAGIC):
        content = gunzip(content, LARGEST, str(file.path))
    return idx_array(content, str(file.path))

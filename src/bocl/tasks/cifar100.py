"""CIFAR-100: 50,000 training and 10,000 test photographs in 100 classes, (3, 32, 32)."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from bocl.tasks.files import LARGEST, FoundFile, PublishedFile, obtain, read_verified, verify_bytes
from bocl.tasks.formats import cifar_pickle, cifar_records, tar_members
from bocl.tasks.images import LabelledImages, labelled_images

BINARY_ARCHIVE = PublishedFile(
    "cifar-100-binary.tar.gz",
    "md5:03b5dce01913d631647c71ecec9e9cb8",
    (
        "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
        "https://mindspore-website.obs.cn-north-4.myhuaweicloud.com/notebook/datasets/cifar-100-binary.tar.gz",
    ),
)
PYTHON_ARCHIVE = PublishedFile(
    "cifar-100-python.tar.gz",
    "md5:eb9058c3a382ffc7106e4002c42a8d85",
    ("https://dataset.bj.bcebos.com/cifar/cifar-100-python.tar.gz",),
)
BINARY_FILES = (  # also the members of the archive
    PublishedFile(
        "cifar-100-binary/train.bin",
        "sha256:f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
    ),
    PublishedFile(
        "cifar-100-binary/test.bin", "sha256:d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"
    ),
)
PYTHON_FILES = (
    PublishedFile("cifar-100-python/train", "md5:16019d7e3df5f24257cddd939b257f8d"),
    PublishedFile("cifar-100-python/test", "md5:f0ef6b0ae62326f3e7ffdfab6717acfc"),
)


def load_cifar100(data: Path | str | None = None) -> LabelledImages:
    """Find (or download), verify and read CIFAR-100; a second call returns the same object."""
    editions = (BINARY_FILES, (BINARY_ARCHIVE,), PYTHON_FILES, (PYTHON_ARCHIVE,))
    return _read(obtain("CIFAR-100", editions, data))


@lru_cache(maxsize=1)
def _read(files: tuple[FoundFile, ...]) -> LabelledImages:
    is_binary = files[0].hash in (BINARY_ARCHIVE.hash, BINARY_FILES[0].hash)
    members, parse = (BINARY_FILES, cifar_records) if is_binary else (PYTHON_FILES, cifar_pickle)
    contents = [read_verified(file) for file in files]
    if len(files) == 1:
        unpacked = tar_members(contents[0], {member.place: LARGEST for member in members}, str(files[0].path))
        for member in members:
            verify_bytes(unpacked[member.place], member.hash, f"{files[0].path}: {member.place}")
        contents = [unpacked[member.place] for member in members]
    train, test = contents
    return labelled_images(
        "CIFAR-100",
        parse(train, f"{files[0].path} (training part)"),
        parse(test, f"{files[-1].path} (test part)"),
    )

"""Small files in the published formats, and the constants that make the loaders believe them."""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bocl.tasks import cifar100, mnist


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def md5(content: bytes) -> str:
    return f"md5:{hashlib.md5(content).hexdigest()}"


def idx_file(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


def small_mnist(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Return name → idx file of a ten-class set of 200 + 50 images, whose hashes the loader now wants."""
    generator = np.random.default_rng(0)
    plain = {
        "train-images-idx3-ubyte": idx_file(generator.integers(0, 256, (200, 28, 28))),
        "train-labels-idx1-ubyte": idx_file(np.arange(200) % 10),
        "t10k-images-idx3-ubyte": idx_file(generator.integers(0, 256, (50, 28, 28))),
        "t10k-labels-idx1-ubyte": idx_file(np.arange(50) % 10),
    }
    hashes = {
        name: (sha256(zipped(content)).split(":")[1], sha256(content).split(":")[1]) for name, content in plain.items()
    }
    monkeypatch.setattr(mnist, "HASHES", hashes)
    return plain


def zipped(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


def small_cifar(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Return place → content of every edition of a 100-class data set, whose hashes the loader now wants."""
    generator = np.random.default_rng(1)
    contents: dict[str, bytes] = {}
    for part, count in (("train", 400), ("test", 200)):
        images = generator.integers(0, 256, (count, 3072)).astype(np.uint8)
        fine = (np.arange(count) % 100).astype(np.uint8)
        records = np.concatenate([(fine // 5)[:, None], fine[:, None], images], axis=1)
        contents[f"cifar-100-binary/{part}.bin"] = records.tobytes()
        contents[f"cifar-100-python/{part}"] = python2_pickle(images, fine.tolist())
    for edition in ("binary", "python"):
        members = {place: content for place, content in contents.items() if f"100-{edition}/" in place}
        contents[f"cifar-100-{edition}.tar.gz"] = tar_file(members)
    for constant in ("BINARY_FILES", "PYTHON_FILES"):
        files = tuple(replace(f, hash=sha256(contents[f.place])) for f in getattr(cifar100, constant))
        monkeypatch.setattr(cifar100, constant, files)
    for constant in ("BINARY_ARCHIVE", "PYTHON_ARCHIVE"):
        file = getattr(cifar100, constant)
        monkeypatch.setattr(cifar100, constant, replace(file, hash=md5(contents[file.place])))
    return contents


def tar_file(members: dict[str, bytes], extra: list[tarfile.TarInfo] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for member in extra or []:
            archive.addfile(member)
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def write(folder: Path, contents: dict[str, bytes]) -> Path:
    for place, content in contents.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_bytes(content)
    return folder


def python2_pickle(images: np.ndarray, fine_labels: list[int]) -> bytes:
    """Write {'data': array, 'fine_labels': list} the way Python 2 did, where text and bytes were one type."""
    rows, columns = images.shape
    array = (
        # an empty array of bytes, to be filled by the state that follows
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR"
        + b"(K\x01"
        + b"".join(b"J" + struct.pack("<i", size) for size in (rows, columns))
        + b"\x86"  # version 1, shape (rows, columns)
        + b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        + b"\x89T"
        + struct.pack("<i", images.size)
        + images.tobytes()
        + b"tb"
    )
    labels = b"](" + b"".join(bytes([ord("K"), label]) for label in fine_labels) + b"e"
    return b"\x80\x02}(U\x04data" + array + b"U\x0bfine_labels" + labels + b"u."

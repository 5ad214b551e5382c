"""A stream of real texts: descriptions of packages, news of 1987, and mails of 2002."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bocl.checks import PositiveInt, checked
from bocl.errors import DataError
from bocl.seeding import seed_for
from bocl.tasks.files import search_folders
from bocl.tasks.images import fingerprint_of
from bocl.tasks.partition import cut
from bocl.tasks.samples import Samples, make_split, make_task
from bocl.tasks.task import Split, Task, checked_index
from bocl.tasks.text_files import Texts, mails, package_texts, reuters_texts
from bocl.tasks.texts import TextFormat, read_tokenizer

SECTIONS, CLASSES = 48, 8  # the largest sections, so many in a task
TOPICS = (
    ("earn", "acq", "crude", "trade"),
    ("money-fx", "interest", "ship", "sugar"),
    ("coffee", "money-supply", "gold", "gnp"),
)
TASKS = SECTIONS // CLASSES + len(TOPICS) + 1
TEST = 0.2  # of the texts of a class
VALIDATION = 0.1  # of the others
FEWEST = 20  # texts of a class, so that every part has some
TOKENIZER = "all-minilm-l6-v2"


@dataclass(frozen=True, eq=False)
class TextTask:
    """The token ids of one task: those to learn from, and those to test with."""

    name: str
    labels: tuple[str, ...]
    train: Samples
    test: Samples


class TextStream:
    """Tasks of texts, encoded when the stream is made; a seed decides which are validation samples."""

    def __init__(self, tasks: Sequence[TextTask], text: TextFormat, seed: int) -> None:
        self._tasks, self._text, self._seed = tuple(tasks), text, seed

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, index: int) -> Task:
        made = self._tasks[checked_index(index, len(self))]
        size = round(VALIDATION * len(made.train.labels))
        train, validation = cut(made.train, size, seed_for(self._seed, "validation", index))
        task = make_task(made.name, index, train, validation, (0.0,), (1.0,), made.labels)
        return replace(task, text=self._text)

    def test_split(self, index: int) -> Split:
        """Return the sealed samples of task ``index``."""
        return make_split(self._tasks[checked_index(index, len(self))].test, (0.0,), (1.0,))

    def fingerprint(self) -> str:
        """Return a sha256 of all token ids and labels, and of the tokenizer."""
        digest = hashlib.sha256(self._text.sha256.encode())
        for task in self._tasks:
            arrays = [array for part in (task.train, task.test) for array in (part.inputs, part.labels)]
            digest.update(fingerprint_of(*arrays).encode())
        return digest.hexdigest()


def text_sections(
    tasks: int = TASKS, seed: int = 0, data: Path | str | None = None, each: int = 375, length: int = 128
) -> TextStream:
    """Debian's sections, Reuters topics and spam, as token ids of MiniLM; up to 270 / 30 / 75 texts a class.

    each    most texts of a class, in all parts
    length  most tokens of a text; longer ones are cut off
    """
    if not 1 <= tasks <= TASKS or checked("each", each, PositiveInt) < FEWEST:
        raise DataError(f"text-sections has 1 to {TASKS} tasks, with {FEWEST} texts or more of a class")
    text = read_tokenizer(TOKENIZER, length, truncate=True, folders=search_folders(data))
    kinds = _kinds(data)[:tasks]
    return TextStream([_encoded(name, labels, found, each, text) for name, labels, found in kinds], text, seed)


def _kinds(data: Path | str | None) -> list[tuple[str, tuple[str, ...], Texts]]:
    """Return the name, the classes and the texts of every task."""
    sections = package_texts(data)
    largest = sorted(sections, key=lambda section: (-len(sections[section]), section))[:SECTIONS]
    dealt = [largest[at] for at in _draws("sections").permutation(SECTIONS)]
    groups = [tuple(sorted(dealt[at : at + CLASSES])) for at in range(0, SECTIONS, CLASSES)]
    found = [(f"sections {number}", group, sections) for number, group in enumerate(groups, start=1)]
    found += [(f"topics {number}", topics, reuters_texts(data)) for number, topics in enumerate(TOPICS, start=1)]
    return [*found, ("mails", ("ham", "spam"), mails(data))]


def _encoded(name: str, labels: tuple[str, ...], texts: Texts, each: int, how: TextFormat) -> TextTask:
    parts: tuple[list[tuple[str, int]], list[tuple[str, int]]] = ([], [])
    for number, label in enumerate(labels):
        chosen = [texts[label][at] for at in _draws(label).permutation(len(texts[label]))[:each]]
        kept = len(chosen) - round(TEST * len(chosen))
        parts[0].extend((text, number) for text in chosen[:kept])
        parts[1].extend((text, number) for text in chosen[kept:])
    train, test = (
        Samples(
            how.encode([text for text, _ in part], name).ids,
            np.array([number for _, number in part], dtype=np.int64),
            how.padding,
        )
        for part in parts
    )
    return TextTask(name, labels, train, test)


def _draws(name: str) -> np.random.Generator:
    return np.random.default_rng(seed_for("text-sections", name))

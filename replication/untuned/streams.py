"""The streams, task by task, fixed before any method was run on them. Every draw has a seed by its own name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bocl.seeding import seed_for
from bocl.tasks.cifar100 import load_cifar100
from bocl.tasks.mnist import load_mnist
from bocl.tasks.table_files import keel_table
from bocl.tasks.text_files import mails, package_texts, reuters_texts
from replication.untuned.features import (
    STEP,
    WINDOW,
    Floats,
    hashed_words,
    movements,
    padded,
    small_images,
    spectra,
    standardised,
)
from replication.untuned.sources import (
    LANGUAGES,
    Sources,
    fashion_images,
    prompts,
    recordings,
)

TEST = 0.2  # share of samples, where no test part is published
WORDS = 512  # bins
TABLES = ("spambase", "satimage", "chess", "texture", "magic", "phoneme")
TOPICS = (("earn", "acq"), ("crude", "trade"), ("money-fx", "interest"), ("ship", "sugar"))
ACTIVITIES = {1: "walking", 2: "upstairs", 3: "downstairs", 4: "sitting", 5: "standing", 6: "lying"}
CLOTHES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
MANY, MANY_INPUTS, MANY_TEST = 200, 64, 40  # tasks, numbers of a sample, most test samples of a class


@dataclass(frozen=True, eq=False)
class TaskArrays:
    """One task: inputs (n, …) of uint8 or float16 and labels (n,), to learn from and to test with."""

    name: str
    x: NDArray[Any]
    y: NDArray[Any]
    x_test: NDArray[Any]
    y_test: NDArray[Any]


@dataclass(frozen=True, eq=False)
class Pool:
    """Samples of every class, {class: (n, …)}, in the order in which they are taken."""

    train: dict[str, NDArray[Any]]
    test: dict[str, NDArray[Any]]

    def task(
        self, name: str, classes: Iterable[str], most: int | None = None, most_test: int | None = None
    ) -> TaskArrays:
        """Return a task of some classes, with at most so many samples of each."""
        parts = []
        for by_class, limit in ((self.train, most), (self.test, most_test)):
            rows = [(label, by_class[label][:limit]) for label in classes]
            parts += [np.concatenate([found for _, found in rows]), np.repeat(*_counted(rows))]
        return TaskArrays(name, *parts)


def _counted(rows: Sequence[tuple[str, NDArray[Any]]]) -> tuple[list[str], list[int]]:
    return [label for label, _ in rows], [len(found) for _, found in rows]


def draws(*names: str | int) -> np.random.Generator:
    """Return a generator of its own for a name."""
    return np.random.default_rng(seed_for("untuned", *names))


def pool_of(name: str, by_class: dict[str, NDArray[Any]]) -> Pool:
    """Return classes in a random order of their samples, with the last fifth of each to test with."""
    train, test = {}, {}
    for label in sorted(by_class):
        rows = by_class[label][draws(name, "order", label).permutation(len(by_class[label]))]
        kept = len(rows) - round(TEST * len(rows))
        train[label], test[label] = rows[:kept], rows[kept:]
    return Pool(train, test)


@cache
def keel_pool(sources: Sources, name: str) -> Pool:
    """Return a KEEL table by class."""
    features, labels = keel_table(name, sources.raw)
    return pool_of(name, {str(label): features[labels == label] for label in np.unique(labels)})


def scaled(task: TaskArrays, width: int | None = None) -> TaskArrays:
    """Return a task with standardised features, followed by zeros up to a width."""
    x, x_test = standardised(task.x, task.x_test)
    width = width or x.shape[1]
    return TaskArrays(task.name, _half(padded(x, width)), task.y, _half(padded(x_test, width)), task.y_test)


def _half(features: Floats) -> NDArray[np.float16]:
    return features.astype(np.float16)


def letters(sources: Sources) -> list[TaskArrays]:
    """Printed letters by 16 measures of their shape: A to E, …, U to Y."""
    pool = keel_pool(sources, "letter")
    groups = ["ABCDE", "FGHIJ", "KLMNO", "PQRST", "UVWXY"]
    return [scaled(pool.task(f"{group[0]}-{group[-1]}", group)) for group in groups]


def tables(sources: Sources) -> list[TaskArrays]:
    """Six tables that have nothing in common: mail, soil, endgames, surfaces, showers of particles, vowels."""
    pools = {name: keel_pool(sources, name) for name in TABLES}
    made = []
    for name, pool in pools.items():
        share = min(1.0, 3000 / sum(len(rows) for rows in pool.train.values()))
        train, test = (
            {label: rows[: round(share * len(rows))] for label, rows in part.items()}
            for part in (pool.train, pool.test)
        )
        made.append(Pool(train, test).task(name, pool.train))
    width = max(task.x.shape[1] for task in made)
    return [scaled(task, width) for task in made]


def sections(sources: Sources) -> list[TaskArrays]:
    """One-line descriptions of Debian packages: which of eight sections?"""
    pool = _section_pool(sources, WORDS)
    names = draws("sections", "groups").permutation(sorted(pool.train))
    return [_in_halves(pool.task(f"sections-{at // 8 + 1}", names[at : at + 8], 300, 75)) for at in range(0, 40, 8)]


@cache
def _section_pool(sources: Sources, bins: int) -> Pool:
    """Return the 40 largest sections."""
    texts = package_texts(sources.raw)
    largest = sorted(texts, key=lambda section: (-len(texts[section]), section))[:40]
    chosen = {section: _some("sections", section, texts[section], 375) for section in largest}
    return pool_of("sections", {section: hashed_words(found, bins) for section, found in chosen.items()})


def _some(stream: str, label: str, texts: Sequence[str], most: int) -> list[str]:
    return [texts[at] for at in draws(stream, label).permutation(len(texts))[:most]]


def _in_halves(task: TaskArrays) -> TaskArrays:
    return TaskArrays(task.name, _half(task.x), task.y, _half(task.x_test), task.y_test)


def news(sources: Sources) -> list[TaskArrays]:
    """Reuters articles of 1987: which of two topics? Then mails of 2002: spam?"""
    texts = {**{topic: reuters_texts(sources.raw)[topic] for pair in TOPICS for topic in pair}, **mails(sources.raw)}
    chosen = {label: _some("news", label, found, 750) for label, found in texts.items()}
    pool = pool_of("news", {label: hashed_words(found, WORDS) for label, found in chosen.items()})
    return [_in_halves(pool.task("-".join(pair), pair)) for pair in (*TOPICS, ("ham", "spam"))]


def activity(sources: Sources) -> list[TaskArrays]:
    """What a person with a phone does, of six activities; each task has six people of its own."""
    subjects = draws("activity", "groups").permutation(np.arange(1, 31)).reshape(5, 6)
    groups = [tuple(sorted(map(int, group))) for group in subjects]
    return [
        scaled(movement_pool(sources, group).task(f"people-{number}", ACTIVITIES.values()))
        for number, group in enumerate(groups, 1)
    ]


@cache
def movement_pool(sources: Sources, subjects: tuple[int, ...]) -> Pool:
    """Return windows of some people by activity; the last fifth of every stretch of one activity is to test with."""
    train: dict[str, list[Floats]] = {name: [] for name in ACTIVITIES.values()}
    test: dict[str, list[Floats]] = {name: [] for name in ACTIVITIES.values()}
    for recording in (each for each in recordings(sources.raw) if each.subject in subjects):
        edges = [0, *(np.flatnonzero(np.diff(recording.labels)) + 1), len(recording.labels)]
        for begin, end in pairwise(edges):
            name = ACTIVITIES.get(int(recording.labels[begin]))
            if name is None or end - begin < 2 * WINDOW:
                continue
            border = end - max(WINDOW, round(TEST * (end - begin) / STEP) * STEP)
            train[name].append(movements(recording.sensors[:, begin:border]))
            test[name].append(movements(recording.sensors[:, border:end]))
    pools = [{name: np.concatenate(found) for name, found in part.items()} for part in (train, test)]
    mixed = [
        {name: rows[draws("activity", name, *subjects).permutation(len(rows))] for name, rows in pool.items()}
        for pool in pools
    ]
    return Pool(*mixed)


def spoken(sources: Sources) -> list[TaskArrays]:
    """A quarter of a second of a telephone's voice: which of three languages? Each task has prompts of its own."""
    common = sorted(set.intersection(*(set(prompts(sources.raw, language)) for language in LANGUAGES)))
    order = draws("spoken", "prompts").permutation(len(common))
    made = []
    for number, rows in enumerate(np.array_split(order, 5)):
        group = [common[at] for at in rows]
        kept = len(group) - round(TEST * len(group))
        chosen = [LANGUAGES[(number + step) % 5] for step in range(3)]
        train, test = (
            {language: _voice(sources, language, part) for language in chosen} for part in (group[:kept], group[kept:])
        )
        made.append(scaled(Pool(train, test).task(f"prompts-{number + 1}", chosen, 600, 150)))
    return made


def _voice(sources: Sources, language: str, names: Sequence[str]) -> Floats:
    windows = np.concatenate([spectra(prompts(sources.raw, language)[name]) for name in names])
    return windows[draws("spoken", language, *names).permutation(len(windows))]


def clothes(sources: Sources) -> list[TaskArrays]:
    """Fashion-MNIST: which of two kinds of clothes?"""
    pool = _clothes_pool(sources)
    pairs = [CLOTHES[at : at + 2] for at in range(0, 10, 2)]
    return [_with_channel(pool.task("-".join(pair), pair, 1500, 400)) for pair in pairs]


@cache
def _clothes_pool(sources: Sources) -> Pool:
    return pool_of("clothes", dict(zip(CLOTHES, fashion_images(sources.raw), strict=True)))


def _with_channel(task: TaskArrays) -> TaskArrays:
    return TaskArrays(task.name, task.x[:, None], task.y, task.x_test[:, None], task.y_test)


def permuted(sources: Sources) -> list[TaskArrays]:
    """MNIST with the same pixels in another order in every task; images of its own in every task."""
    mnist = load_mnist(sources.published)
    made = []
    for number in range(1, 6):
        order = draws("permuted", "pixels", number).permutation(784)
        train = draws("permuted", "train", number).permutation(len(mnist.train_labels))[:6000]
        test = draws("permuted", "test", number).permutation(len(mnist.test_labels))[:2000]
        x, x_test = (
            images[rows].reshape(len(rows), 784)[:, order]
            for images, rows in ((mnist.train_images, train), (mnist.test_images, test))
        )
        made.append(TaskArrays(f"order-{number}", x, mnist.train_labels[train], x_test, mnist.test_labels[test]))
    return made


def objects(sources: Sources) -> list[TaskArrays]:
    """CIFAR-100: which of ten kinds of things? 50 classes in all."""
    cifar = load_cifar100(sources.published)
    classes = draws("objects", "classes").permutation(100)[:50].reshape(5, 10)
    made = []
    for number, group in enumerate(classes, 1):
        train, test = (
            np.concatenate([np.flatnonzero(labels == label)[:most] for label in group])
            for labels, most in ((cifar.train_labels, 200), (cifar.test_labels, 50))
        )
        made.append(
            TaskArrays(
                f"things-{number}",
                cifar.train_images[train],
                cifar.train_labels[train],
                cifar.test_images[test],
                cifar.test_labels[test],
            )
        )
    return made


def many(sources: Sources) -> list[TaskArrays]:
    """200 small tasks of eight kinds in a random order: 2 to 5 classes, 100 to 300 samples, 64 numbers."""
    kinds = (_letters, _pens, _digits, _measures, _people, _words, _numerals, _garments)
    made = [kind(sources, number) for kind in kinds for number in range(MANY // len(kinds))]
    return [made[at] for at in draws("many", "order").permutation(len(made))]


def _small_task(name: str, number: int, pool: Pool) -> TaskArrays:
    """Return a task of 2 to 5 classes of a pool, with 100 to 300 samples that are its own draw."""
    chance = draws("many", name, number)
    most = min(5, len(pool.train))
    classes = chance.permutation(sorted(pool.train))[: chance.integers(2, most + 1)]
    each = -(-int(chance.integers(100, 301)) // len(classes))
    train, test = (
        {label: chance.permutation(part[label])[:limit] for label in classes}
        for part, limit in ((pool.train, each), (pool.test, MANY_TEST))
    )
    return Pool(train, test).task(f"{name}-{number + 1}", classes)


def _letters(sources: Sources, number: int) -> TaskArrays:
    return scaled(_small_task("letters", number, keel_pool(sources, "letter")), MANY_INPUTS)


def _pens(sources: Sources, number: int) -> TaskArrays:
    return scaled(_small_task("pens", number, keel_pool(sources, "penbased")), MANY_INPUTS)


def _digits(sources: Sources, number: int) -> TaskArrays:
    return _as_images(_small_task("digits", number, keel_pool(sources, "optdigits")))


def _measures(sources: Sources, number: int) -> TaskArrays:
    table = ("satimage", "texture", "segment")[number % 3]
    return scaled(_small_task(table, number, keel_pool(sources, table)), MANY_INPUTS)


def _people(sources: Sources, number: int) -> TaskArrays:
    three = draws("many", "people", number).permutation(np.arange(1, 31))[:3]
    return scaled(_small_task("people", number, movement_pool(sources, tuple(sorted(map(int, three))))), MANY_INPUTS)


def _words(sources: Sources, number: int) -> TaskArrays:
    return _in_halves(_small_task("words", number, _section_pool(sources, MANY_INPUTS)))


def _numerals(sources: Sources, number: int) -> TaskArrays:
    """Return digits of MNIST, turned by a multiple of a right angle or with their pixels in another order."""
    task = _small_task("numerals", number, _small_mnist(sources))
    if number % 2:
        order = draws("many", "pixels", number).permutation(64)
    else:
        order = np.rot90(np.arange(64).reshape(8, 8), number // 2 % 4).ravel()
    return _as_images(TaskArrays(task.name, task.x[:, order], task.y, task.x_test[:, order], task.y_test))


@cache
def _small_mnist(sources: Sources) -> Pool:
    mnist = load_mnist(sources.published)
    train, test = (
        {str(digit): small_images(images[labels == digit, 0]).reshape(-1, 64) for digit in range(10)}
        for images, labels in ((mnist.train_images, mnist.train_labels), (mnist.test_images, mnist.test_labels))
    )
    return Pool(train, test)


def _garments(sources: Sources, number: int) -> TaskArrays:
    return _as_images(_small_task("garments", number, _small_clothes(sources)))


@cache
def _small_clothes(sources: Sources) -> Pool:
    pool = _clothes_pool(sources)
    train, test = (
        {label: small_images(images).reshape(-1, 64) for label, images in part.items()}
        for part in (pool.train, pool.test)
    )
    return Pool(train, test)


def _as_images(task: TaskArrays) -> TaskArrays:
    """Return a task with all pixels together at 0 ± 1; one by one, those that hardly change would be the largest."""
    mean, std = task.x.mean(), task.x.std()
    x, x_test = ((part - mean) / std for part in (task.x, task.x_test))
    return TaskArrays(task.name, _half(x), task.y, _half(x_test), task.y_test)


STREAMS: dict[str, Callable[[Sources], list[TaskArrays]]] = {
    "letters": letters,
    "tables": tables,
    "sections": sections,
    "news": news,
    "activity": activity,
    "spoken": spoken,
    "clothes": clothes,
    "permuted": permuted,
    "objects": objects,
    "many": many,
}

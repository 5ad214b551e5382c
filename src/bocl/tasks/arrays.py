"""A stream of your own data, from one pair of arrays per task."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from bocl.checks import Natural, Number, Positive, checked
from bocl.errors import ConfigError, DataError
from bocl.tasks.class_weights import ClassWeight
from bocl.tasks.files import search_folders
from bocl.tasks.images import fingerprint_of
from bocl.tasks.own import Cuts, PartFraction, Parts, make_own_task
from bocl.tasks.samples import check_alike
from bocl.tasks.task import Rescaled, Split, Task, checked_index
from bocl.tasks.texts import TextFormat, read_tokenizer
from bocl.wording import counted, shown

_PAIRS = "a list with one pair (X, y) per task"


@dataclass(frozen=True, eq=False)
class ArrayStream:
    """Tasks of a user's arrays, checked and split when the stream is made."""

    tasks: tuple[Task, ...] = field(repr=False)
    test_splits: tuple[Split, ...] = field(repr=False)

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[Task]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, index: int) -> Task:
        return self.tasks[checked_index(index, len(self))]

    def test_split(self, index: int) -> Split:
        """Return the sealed samples of task ``index``."""
        return self.test_splits[checked_index(index, len(self))]

    def fingerprint(self) -> str:
        """Return a sha256 of all samples and labels, part by part, and of the weights of classes."""
        digest = hashlib.sha256()
        for task, test in zip(self.tasks, self.test_splits, strict=True):
            for split in (task.train, task.validation, test):
                digest.update(fingerprint_of(split.raw.numpy(), split.labels.numpy()).encode())
            if task.class_weights:
                digest.update(repr(task.class_weights).encode())
        return digest.hexdigest()


def from_arrays(
    tasks: Sequence[tuple[Any, Any]],
    *,
    test: Sequence[tuple[Any, Any]] | None = None,
    validation: float | Sequence[tuple[Any, Any]] = 0.1,
    test_fraction: float = 0.2,
    standardise: bool = False,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    class_weight: ClassWeight = None,
    seed: int = 0,
    names: Sequence[str] | None = None,
) -> ArrayStream:
    """Make a stream of your own data.

    tasks          one pair (X, y) per task, numpy arrays or torch tensors: X (n, d), (n, channels, time), (n, channels,
                   height, width) or (n, channels, depth, height, width), of the same shape in all tasks; y (n,) labels,
                   strings or numbers, of which each task may have its own
    test           one pair (X, y) per task; if left out, ``test_fraction`` of each task is set aside for testing
    validation     fraction of the rest that is set aside to make choices by, and never trained on; or one pair (X, y)
                   per task, where samples belong together (of one person, of one day) and must not be in both parts
    standardise    whether floats are scaled as bytes are, by each feature of vectors or channel of anything else
    mean, std      of floats, or of bytes / 255: how samples are scaled instead, as a pretrained network expects them;
                   one number each, or one per channel
    class_weight   how much samples count in training: "balanced" for classes that count the same, however many samples
                   they have; or {label: weight}
    seed           decides which samples go where
    names          one per task

    Parts that are cut off hold every class in proportion. Bytes (uint8) stay bytes and are scaled by the mean
    and standard deviation of the task's training part (per channel of images, one value for vectors). Other numbers
    become float32 and are used as they are, unless they are standardised. The scale is stored with the task.
    """
    given = validation if isinstance(validation, list | tuple) else None
    if given is None:
        _check_fraction("validation", validation)
    _check_fraction("test_fraction", test_fraction)
    _check_list("tasks", tasks, _PAIRS, tasks)
    if len(tasks) == 0:
        raise DataError(f"tasks is empty; give {_PAIRS}")
    for name, values, wanted in (
        ("names", names, "a list with one name per task"),
        ("test", test, _PAIRS),
        ("validation", given, f"a fraction, or {_PAIRS}"),
    ):
        if values is not None:
            _check_list(name, values, wanted, tasks)
    cuts = Cuts(
        validation if isinstance(validation, float) else 0.1,
        test_fraction,
        checked("standardise", standardise, bool),
        checked("seed", seed, Natural),
        class_weight,
    )
    made: list[Task] = []
    sealed: list[Split] = []
    for index, pair in enumerate(tasks):
        where = f"tasks[{index}]"
        parts = Parts(
            _pair(pair, where),
            None if given is None else _pair(given[index], f"validation[{index}]"),
            None if test is None else _pair(test[index], f"test[{index}]"),
        )
        name = str(names[index]) if names is not None else f"task {index + 1}"
        task, held_out = make_own_task(name, index, parts, cuts, partial(_part_name, index))
        made.append(task)
        check_alike(task.train.raw.numpy(), made[0].train.raw.numpy(), where, "those of tasks[0]")
        sealed.append(held_out)
    stream = ArrayStream(tuple(made), tuple(sealed))
    if mean is None and std is None:
        return stream
    if mean is None or std is None or standardise:
        raise DataError("mean and std say together how samples are scaled; give both, without standardise")
    scaled = Rescaled(stream, _each("mean", mean, Number), _each("std", std, Positive))
    numbers = range(len(stream))
    return ArrayStream(tuple(map(scaled.__getitem__, numbers)), tuple(map(scaled.test_split, numbers)))


def from_texts(
    tasks: Sequence[tuple[Any, Any]],
    tokenizer: str | Path | TextFormat,
    *,
    length: int | None = None,
    truncate: bool = False,
    data: str | Path | None = None,
    test: Sequence[tuple[Any, Any]] | None = None,
    validation: float | Sequence[tuple[Any, Any]] = 0.1,
    **options: Any,
) -> ArrayStream:
    """Make a stream of your own texts, for a network that reads token ids.

    tasks      one pair (texts, labels) per task
    tokenizer  the path of a tokenizer.json, as published with the network, or the name of published weights; or the
               ``text`` of another task, which has its own length
    length     most tokens of a text, those that open and close it included: 128 if left out
    truncate   whether longer texts are cut off; otherwise they are refused
    data       a folder that holds the package of a tokenizer with a name; it is looked for where it is installed, too

    ``test``, ``validation`` and the other options are those of ``from_arrays``.
    """
    how = tokenizer
    if not isinstance(how, TextFormat):
        how = read_tokenizer(how, 128 if length is None else length, truncate=truncate, folders=search_folders(data))
    elif length not in (None, how.length) or truncate not in (False, how.truncate):
        raise DataError(
            f"length is {shown(length)} and truncate {truncate}, but the tokenizer is a TextFormat with length "
            f"{how.length} and truncate {how.truncate}; leave them out, or give the path of a tokenizer.json"
        )

    def encoded(pairs: Any, name: str) -> Any:
        if not isinstance(pairs, list | tuple):
            return pairs
        found = [_pair(pair, f"{name}[{at}]") for at, pair in enumerate(pairs)]
        return [(how.encode(texts, f"{name}[{at}]"), labels) for at, (texts, labels) in enumerate(found)]

    stream = from_arrays(
        encoded(tasks, "tasks"), test=encoded(test, "test"), validation=encoded(validation, "validation"), **options
    )
    return ArrayStream(tuple(replace(task, text=how) for task in stream.tasks), stream.test_splits)


def _each(name: str, value: float | Sequence[float], kind: Any) -> tuple[float, ...]:
    """Return one number, or one per channel, as a tuple."""
    values = tuple(value) if isinstance(value, list | tuple) else (value,)
    return tuple(checked(name, entry, kind) for entry in values)


def _part_name(index: int, part: str) -> str:
    return f"{'tasks' if part == 'train' else part}[{index}]"


def _pair(pair: Any, where: str) -> tuple[Any, Any]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise DataError(f"{where} is {type(pair).__name__}, not a pair; give {_PAIRS}")
    return pair[0], pair[1]


def _check_list(name: str, values: Sequence[Any], wanted: str, tasks: Sequence[Any]) -> None:
    if not isinstance(values, list | tuple):
        raise DataError(f"{name} is {type(values).__name__}, not a list; give {wanted}")
    if len(values) != len(tasks):
        entries = counted(len(values), "entry", "entries")
        raise DataError(f"{name} has {entries} for {counted(len(tasks), 'task')}; give one for each task")


def _check_fraction(name: str, value: object) -> None:
    try:
        checked(name, value, PartFraction)
    except ConfigError as error:
        raise DataError(f"{name} is {shown(value)}; give a fraction between 0 and 1, such as 0.1") from error

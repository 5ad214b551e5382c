"""What holds for every stream, the user's own data included."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from bocl.tasks.arrays import from_arrays
from bocl.tasks.digits import load_digits
from bocl.tasks.images import LabelledImages, labelled_images
from bocl.tasks.mixed import MixedStream, mixed_mnist
from bocl.tasks.permuted import permuted_digits, permuted_mnist
from bocl.tasks.samples import Samples
from bocl.tasks.split import SplitStream, split_cifar100
from bocl.tasks.streams import STREAMS
from bocl.tasks.task import Split, Task
from bocl.tasks.text_sections import TextStream, TextTask
from bocl.tasks.texts import TextFormat, Tokens


def own_arrays(seed, data):
    generator = np.random.default_rng(5)
    return from_arrays([(generator.normal(size=(90, 4)), np.arange(90) % 3) for _ in range(3)], seed=seed)


def own_bytes(seed, data):
    generator = np.random.default_rng(6)
    pairs = [(generator.integers(0, 256, (90, 3, 4, 4)).astype(np.uint8), np.arange(90) % c) for c in (2, 5)]
    return from_arrays(pairs, test=pairs[::-1][1:] + pairs[1:], seed=seed)


def own_texts(seed, data):
    generator = np.random.default_rng(8)
    return from_arrays([(Tokens(generator.integers(1, 9, (90, 6), np.int32), 0), np.arange(90) % 3)] * 2, seed=seed)


def texts(seed, data):
    generator = np.random.default_rng(9)
    train, test = (Samples(generator.integers(1, 9, (n, 6), np.int32), np.arange(n) % 3, 0) for n in (60, 15))
    tasks = [TextTask(name, ("a", "b", "c"), train, test) for name in ("one", "two")]
    return TextStream(tasks, TextFormat("{}", 6), seed)


def split_small(seed, data, *, drawn=False):
    generator = np.random.default_rng(7)
    train = generator.integers(0, 256, (120, 3, 4, 4)).astype(np.uint8), np.arange(120) % 6
    test = generator.integers(0, 256, (60, 3, 4, 4)).astype(np.uint8), np.arange(60) % 6
    return SplitStream(labelled_images("small", train, test), tasks=3, seed=seed, classes=2, validation=5, drawn=drawn)


MAKERS: dict[str, Callable[..., Any]] = {
    "own arrays": own_arrays,
    "own bytes": own_bytes,
    "own texts": own_texts,
    "permuted digits": lambda seed, _: permuted_digits(3, seed),
    "mixed digits": lambda seed, _: MixedStream(load_digits(seed), 4, seed, validation=144),
    "split": split_small,
    "split, drawn": partial(split_small, drawn=True),
    "texts": texts,
}
REAL_MAKERS: dict[str, Callable[..., Any]] = {
    "permuted-mnist": lambda seed, data: permuted_mnist(1, seed, data),
    "mixed-mnist": lambda seed, data: mixed_mnist(2, seed, data),
    "split-cifar100": lambda seed, data: split_cifar100(3, seed, data),
}


@pytest.fixture(
    params=[*MAKERS, *(pytest.param(name, marks=pytest.mark.real_data) for name in REAL_MAKERS)],
)
def make(request):
    """Return seed → stream."""
    if request.param in MAKERS:
        return lambda seed=0: MAKERS[request.param](seed, None)
    data = request.getfixturevalue("real_data")
    return lambda seed=0: REAL_MAKERS[request.param](seed, data)


def parts(stream, index) -> list[Split]:
    task = stream[index]
    return [task.train, task.validation, stream.test_split(index)]


def test_tasks_come_in_order_and_end(make):
    stream = make()
    tasks = list(stream)
    assert len(tasks) == len(stream) >= 1
    assert [task.index for task in tasks] == list(range(len(stream)))
    assert len({task.name for task in tasks}) == len(tasks)
    assert len({task.input_shape for task in tasks}) == 1


@pytest.mark.parametrize("off", [0, 1, 100])
def test_there_is_nothing_past_either_end(make, off):
    stream = make()
    for index in (len(stream) + off, -1 - off):
        with pytest.raises(IndexError, match=f"task {index} of"):
            stream[index]
        with pytest.raises(IndexError, match=f"task {index} of"):
            stream.test_split(index)


def test_every_part_is_valid(make):
    stream = make()
    for index in range(len(stream)):
        task = stream[index]
        train, validation, test = parts(stream, index)
        assert len(train) > len(validation) > 0 < len(test)
        tokens = train.padding is not None
        for part in (train, validation, test):
            assert part.raw.dtype in ((torch.int32,) if tokens else (torch.uint8, torch.float32))
            assert part.padding == train.padding
            assert part.raw.is_contiguous()
            assert part.labels.dtype == torch.int64
            assert part.raw.shape == (len(part.labels), *task.input_shape)
            assert part.labels.unique().tolist() == list(range(task.classes))
            assert (part.mean, part.std) == (train.mean, train.std)
        inputs = validation.inputs()
        assert inputs.dtype == (torch.int32 if tokens else torch.float32)
        assert inputs.isfinite().all()


def test_the_same_seed_and_index_give_the_same_tensors_in_any_order(make):
    forward, backward = make(), make()
    seen = {index: parts(backward, index) for index in reversed(range(len(backward)))}
    for index in range(len(forward)):
        for a, b in zip(parts(forward, index), seen[index], strict=True):
            assert torch.equal(a.raw, b.raw)
            assert torch.equal(a.labels, b.labels)
        assert forward[index].name == backward[index].name


def test_another_seed_gives_other_training_samples(make):
    for index in range(len(make())):
        assert not torch.equal(make(0)[index].train.raw, make(1)[index].train.raw)


def test_the_global_generators_are_left_alone(make):
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    parts(make(3), 0)
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002


def test_a_task_cannot_reach_its_stream_or_its_test_samples(make):
    stream = make()
    for index in range(len(stream)):
        task, test = stream[index], stream.test_split(index)
        reached = list(reachable(task))
        for part in (task.train, task.validation):  # the walk does get to the samples
            assert any(value is part.raw for value in reached)
        for value in reached:
            assert not isinstance(value, LabelledImages)
            assert not hasattr(value, "test_split")
            if isinstance(value, torch.Tensor | np.ndarray):
                values = torch.as_tensor(value)
                for sealed in (test.raw, test.labels):
                    assert not overlaps(values, sealed)
                assert values.shape != test.raw.shape or not torch.equal(values, test.raw)


def test_writing_into_a_task_changes_no_test_sample(make):
    stream = make()
    before = stream.test_split(0).raw.clone()
    task = stream[0]
    for part in (task.train, task.validation):
        part.raw.zero_()
        part.labels.zero_()
    assert torch.equal(stream.test_split(0).raw, before)


def test_the_fingerprint_names_the_data(make):
    assert re.fullmatch("[0-9a-f]{64}", make().fingerprint())
    assert make().fingerprint() == make().fingerprint()


def test_the_named_streams_can_be_shown_to_a_user():
    digits, *others = STREAMS
    assert digits == "permuted-digits"
    assert others == ["permuted-mnist", "mixed-mnist", "split-cifar100", "text-sections", "keel-tables"]
    for maker in STREAMS.values():
        first, *rest = (maker.__doc__ or "").strip().splitlines()
        assert 20 < len(first) < 120
        assert not rest or not rest[0], "what follows is told apart from the line that is listed"
    assert len(STREAMS["permuted-digits"](tasks=2, seed=1)) == 2


def test_importing_the_streams_loads_nothing_heavy():
    import subprocess

    code = (
        "import sys, torch; before = set(sys.modules); import bocl.tasks.streams, bocl.tasks.arrays;"
        "heavy = {'sklearn', 'pooch', 'requests', 'tqdm', 'scipy'} & (set(sys.modules) - before);"
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def overlaps(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two tensors hold a byte in common, by the whole memory behind each of them."""
    first, second = a.untyped_storage(), b.untyped_storage()
    start = max(first.data_ptr(), second.data_ptr())
    return start < min(first.data_ptr() + first.nbytes(), second.data_ptr() + second.nbytes())


def reachable(start: Any) -> Iterator[Any]:
    """Yield every object that attributes, items, closures and array bases lead to, from ``start``."""
    waiting: list[Any] = [start]
    seen: dict[int, Any] = {}
    while waiting:
        value = waiting.pop(0)
        if id(value) in seen or value is None or isinstance(value, type):
            continue
        seen[id(value)] = value  # kept alive, so that no other object takes its id
        yield value
        if isinstance(value, torch.Tensor):
            waiting += [value._base, value.grad, value.grad_fn, *vars(value).values()]
        elif isinstance(value, np.ndarray):
            waiting.append(value.base)
        elif isinstance(value, list | tuple | set | frozenset):
            waiting += list(value)
        elif isinstance(value, dict):
            waiting += [*value.keys(), *value.values()]
        elif not isinstance(value, str | bytes | int | float):
            waiting += list(getattr(value, "__dict__", {}).values())
            waiting += [getattr(value, name) for name in getattr(type(value), "__slots__", ()) if hasattr(value, name)]
            waiting += [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
            waiting.append(getattr(value, "__self__", None))


def test_the_walk_finds_what_is_hidden():
    """The check above can fail: a stream behind a closure, a view of the test samples, an attribute."""
    stream = own_arrays(0, None)
    task, test = stream[0], stream.test_split(0)
    leaky = Task("leaky", 0, 3, task.train, Split(test.raw[:5], test.labels[:5]))
    assert any(overlaps(value, test.raw) for value in reachable(leaky) if isinstance(value, torch.Tensor))
    tagged = Task("tagged", 0, 3, task.train, task.validation)
    object.__setattr__(tagged, "again", lambda: stream)
    assert any(value is stream for value in reachable(tagged))

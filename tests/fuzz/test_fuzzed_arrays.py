"""Arrays that are wrong in every way, for from_arrays, learn and predict."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import torch
from fuzzing import TALLY, cases
from hypothesis import given
from hypothesis import strategies as st

import bocl
from bocl.errors import InputError

DTYPES = st.sampled_from(
    [
        "u1",
        "i1",
        "?",
        "i4",
        "i8",
        "u8",
        "f2",
        "f4",
        "f8",
        ">f4",
        ">i2",
        "g",
        "c8",
        "O",
        "S3",
        "U3",
        "M8[s]",
        "m8[s]",
        "V4",
    ]
)
SHAPES = st.one_of(
    st.tuples(st.sampled_from([0, 1, 2, 12, 30]), st.sampled_from([0, 1, 4])),
    st.lists(st.sampled_from([0, 1, 2, 30]), max_size=5).map(tuple),
    st.sampled_from([(30, 4), (30, 1, 2, 2)]),
)
HUGE = st.sampled_from([(10**9, 10**6), (10**11, 4), (30, 10**13), (10**5, 10**3, 10**3, 10**2), (2**40,)])


class Hostile:
    """An object that fails whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def __array__(self, *_arguments: Any, **_options: Any) -> Any:
        raise RuntimeError("no\nway")

    def __len__(self) -> int:
        raise TypeError("no length")

    def __repr__(self) -> str:
        return "two\nlines"


def cyclic() -> list[Any]:
    """Return a list that holds itself."""
    loop: list[Any] = []
    loop.append(loop)
    return loop


@st.composite
def numpy_arrays(draw: Any) -> Any:
    shape, kind = draw(SHAPES), draw(DTYPES)
    values = np.random.default_rng(draw(st.integers(0, 9))).integers(0, 3, shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        array = np.zeros(shape, "V4") if kind == "V4" else values.astype(kind)
    if array.dtype.kind == "f" and array.size:
        array.flat[0] = draw(st.sampled_from([0.0, 1.0, math.nan, math.inf, -math.inf, 6e4]))
    changed: list[Callable[[Any], Any]] = [
        lambda a: a,
        lambda a: a[::-1] if a.ndim else a,
        np.asfortranarray,
        lambda a: a.T,
        lambda a: np.ma.masked_array(a, mask=False),
        np.ndarray.tolist,
        lambda a: np.lib.stride_tricks.as_strided(a, a.shape, (0,) * a.ndim) if a.dtype.kind in "fiu" else a,
        lambda a: (setattr(a.flags, "writeable", False), a)[1],
    ]
    return draw(st.sampled_from(changed))(array)


@st.composite
def tensors(draw: Any) -> Any:
    shape = draw(SHAPES)
    tensor = torch.zeros(shape, dtype=draw(st.sampled_from([torch.float32, torch.uint8, torch.bfloat16, torch.int64,
        torch.bool, torch.complex64, torch.float16, torch.float8_e4m3fn])))  # fmt: skip
    changed: list[Callable[[Any], Any]] = [
        lambda t: t,
        lambda t: t.to("meta"),
        lambda t: t.to_sparse() if t.dtype == torch.float32 and t.dim() else t,
        lambda t: t.requires_grad_() if t.dtype == torch.float32 else t,
        lambda t: t.transpose(0, -1) if t.dim() else t,
        lambda t: torch.nn.Parameter(t, requires_grad=False),
    ]
    return draw(st.sampled_from(changed))(tensor)


LABELS = st.one_of(
    st.sampled_from([np.arange(30) % 2, np.arange(30) % 3, np.zeros(30, int), np.arange(30), np.full(30, 2**40)]),
    st.sampled_from([np.arange(30) % 2 - 1, np.arange(30) % 2 * 2, np.arange(29) % 2, np.arange(30.0) % 2, ["a"] * 30]),
    st.sampled_from([(np.arange(30) % 2).astype(kind) for kind in ("u1", "i2", "u8", ">i4", "?", "O", "f2", "U1")]),
    st.sampled_from([torch.arange(30) % 2, (torch.arange(30) % 2)[:, None], np.uint64(2**64 - 1) - np.zeros(30, "u8")]),
)
OBJECTS = st.one_of(
    st.sampled_from(
        [None, 0, "x", b"x", 1.5, {}, set(), object(), Hostile(), [[1, 2], [3]], [[]], [None] * 30, cyclic()]
    ),
    st.sampled_from(
        [range(30), [[Hostile()] * 4] * 30, [["1"] * 4] * 30, [[10**400] * 4] * 30, np.float32(1), Ellipsis]
    ),
)
INPUTS = st.one_of(st.just(np.ones((30, 4), "f4")), st.just(np.ones((30, 4), "u1")), numpy_arrays(), tensors(), OBJECTS)
VIEWS = st.tuples(HUGE, st.sampled_from(["u1", "f4", "f8", "i8"])).map(
    lambda s: np.broadcast_to(np.zeros((), s[1]), s[0])
)
ANYTHING = st.one_of(INPUTS, VIEWS, LABELS)
FRACTIONS = st.one_of(
    st.floats(),
    st.sampled_from([None, "0.1", True, 0, 1, 10**400, -(10**5000), Fraction(1, 9), Decimal("0.1"), np.float32(0.2)]),
)
SEEDS = st.one_of(st.integers(), st.sampled_from([None, 1.0, "0", True, np.int64(3), 10**5000, Hostile()]))
NAMES = st.sampled_from([None, [], ["a"], ["a", "b"], "ab", [None, 3], ["a\nb", 1.5], 3])
TESTS = st.one_of(st.lists(st.tuples(ANYTHING, LABELS), max_size=2), st.sampled_from([None, "ab", 3, [3, 4]]))
OPTIONS = st.fixed_dictionaries(
    {},
    optional={"validation": FRACTIONS, "test_fraction": FRACTIONS, "seed": SEEDS, "names": NAMES, "test": TESTS},
)


def outcome(kind: str, call: Callable[[], Any]) -> Any:
    """Call, count, and let nothing be raised but what says that the input was wrong."""
    try:
        result = call()
    except InputError:
        TALLY[kind, "refused"] += 1
        return None
    TALLY[kind, "accepted"] += 1
    return result


@cases(150)
@given(st.lists(st.tuples(ANYTHING, st.one_of(LABELS, ANYTHING)), max_size=2), st.one_of(st.just({}), OPTIONS))
def test_arrays_become_tasks_or_are_refused(pairs, options):
    stream = outcome("from_arrays", lambda: bocl.from_arrays(pairs, **options))
    if stream is not None:
        for task in stream:
            for split in (task.train, task.validation, stream.test_split(task.index)):
                assert torch.isfinite(split.inputs()).all()
                assert 0 <= split.labels.min() <= split.labels.max() < task.classes


@cases(30)
@given(st.one_of(st.lists(OBJECTS, max_size=2), OBJECTS, VIEWS))
def test_what_is_no_list_of_pairs_is_refused(tasks):
    assert outcome("from_arrays, no pairs", lambda: bocl.from_arrays(tasks)) is None


@cache
def learner(kind: str) -> bocl.BOCL:
    """Return a learner of one task of bytes or floats, (n, 4) → 2 classes."""
    made = bocl.BOCL(bocl.mlp(4, [3]), recipe=bocl.Recipe(epochs=1), device="cpu")
    made.learn(bocl.from_arrays([(np.arange(120).reshape(30, 4).astype(kind), np.arange(30) % 2)])[0])
    return made


@cases(120)
@given(
    st.sampled_from(["u1", "f4"]),
    ANYTHING,
    st.one_of(st.just(0), st.sampled_from([1, -1, None, "0", 0.0, True, 2**70])),
)
def test_inputs_give_finite_logits_or_are_refused(kind, inputs, task):
    logits = outcome("predict", lambda: learner(kind).predict(inputs, task))
    if logits is not None:
        assert logits.shape == (len(inputs), 2)
        assert torch.isfinite(logits).all()


@cases(60)
@given(st.sampled_from(["u1", "f4"]), st.one_of(OBJECTS, VIEWS, st.tuples(INPUTS, LABELS)))
def test_learn_refuses_what_does_not_fit_the_tasks_before(kind, given_task):
    known = learner(kind)
    before = known.predict(np.zeros((2, 4), kind), 0)
    if isinstance(given_task, tuple):
        stream = outcome("from_arrays, for learn", lambda: bocl.from_arrays([given_task]))
        if stream is None or (
            stream[0].input_shape == (4,) and (stream[0].train.raw.dtype == torch.uint8) == (kind == "u1")
        ):
            return
        given_task = stream[0]
    assert outcome("learn", lambda: known.learn(given_task)) is None
    assert torch.equal(known.predict(np.zeros((2, 4), kind), 0), before)

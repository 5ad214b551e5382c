from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from bocl.errors import BoclError, DataError, DataWarning, InputError
from bocl.tasks.arrays import from_arrays


def vectors(samples=60, classes=3, features=4, seed=0):
    generator = np.random.default_rng(seed)
    return generator.normal(size=(samples, features)), np.arange(samples) % classes


def byte_images(samples=60, classes=3, channels=2, seed=0):
    generator = np.random.default_rng(seed)
    return generator.integers(0, 256, (samples, channels, 5, 6)).astype(np.uint8), np.arange(samples) % classes


def test_sizes_names_and_classes():
    stream = from_arrays([vectors(100, 2), vectors(200, 5)], names=["one", "two"])
    assert [len(stream[0].train), len(stream[0].validation), len(stream.test_split(0))] == [72, 8, 20]
    assert [task.classes for task in stream] == [2, 5]
    assert [task.name for task in stream] == ["one", "two"]
    assert [task.index for task in stream] == [0, 1]
    assert stream[0].input_shape == (4,)
    assert [task.name for task in from_arrays([vectors()])] == ["task 1"]


def test_fractions_are_used():
    stream = from_arrays([vectors(100, 2)], validation=0.25, test_fraction=0.4)
    assert [len(stream[0].train), len(stream[0].validation), len(stream.test_split(0))] == [45, 15, 40]


def test_floats_become_float32_and_keep_their_values():
    X, y = vectors()
    train = from_arrays([(X, y)])[0].train
    assert train.raw.dtype == torch.float32
    assert train.labels.dtype == torch.int64
    assert {tuple(row) for row in train.inputs().tolist()} <= {tuple(row) for row in X.astype(np.float32).tolist()}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.bool])
def test_tensors_of_numbers_are_taken(dtype):
    X = torch.arange(240).reshape(60, 4).remainder(2).to(dtype)
    stream = from_arrays([(X, torch.arange(60) % 2)])
    assert stream[0].train.raw.dtype == torch.float32
    assert sorted(stream[0].train.raw.unique().tolist()) == [0.0, 1.0]


def test_a_tensor_that_needs_gradients_is_taken_without_them():
    X = torch.randn(60, 4, requires_grad=True)
    assert not from_arrays([(X, torch.arange(60) % 2)])[0].train.raw.requires_grad


def test_bytes_stay_bytes_and_are_scaled_by_the_training_part():
    X, y = byte_images()
    X[:, 1] //= 2
    task = from_arrays([(X, y)])[0]
    assert task.train.raw.dtype == torch.uint8
    raw = task.train.raw.numpy() / 255
    assert task.train.mean == pytest.approx(raw.mean(axis=(0, 2, 3)))
    assert task.train.std == pytest.approx(raw.std(axis=(0, 2, 3)))
    assert task.train.inputs().mean(dim=(0, 2, 3)).abs().max() < 1e-5
    assert (task.train.inputs().std(dim=(0, 2, 3)) - 1).abs().max() < 1e-3
    assert task.validation.mean == task.train.mean != pytest.approx((X / 255).mean(axis=(0, 2, 3)), abs=1e-9)


def test_byte_vectors_are_scaled_by_one_mean_and_a_constant_is_left_alone():
    X, y = byte_images()
    flat = from_arrays([(X.reshape(60, -1), y)])
    assert len(flat[0].train.mean) == 1
    constant = from_arrays([(np.full((60, 4), 7, np.uint8), y)])[0].train
    assert constant.std == (1.0,)
    assert constant.inputs().abs().max() < 1e-6


def test_own_test_set_is_kept_whole_and_in_order():
    X, y = vectors(10, 3, seed=5)
    stream = from_arrays([vectors()], test=[(X, y)])
    assert torch.equal(stream.test_split(0).raw, torch.tensor(X, dtype=torch.float32))
    assert stream.test_split(0).labels.tolist() == y.tolist()
    assert len(stream[0].train) + len(stream[0].validation) == 60


def test_a_small_test_set_need_not_hold_every_class():
    X, _ = vectors(2)
    assert stream_labels(from_arrays([vectors(60, 5)], test=[(X, [4, 4])])) == [4, 4]


def stream_labels(stream):
    return stream.test_split(0).labels.tolist()


@pytest.mark.parametrize("as_given", [np.asarray, torch.as_tensor])
def test_later_changes_of_the_users_arrays_do_not_reach_the_stream(as_given):
    X, y = byte_images()
    test_X, test_y = byte_images(seed=9)
    given_X, given_test = as_given(X.copy()), as_given(test_X.copy())
    stream = from_arrays([(given_X, y)], test=[(given_test, test_y)])
    before = stream[0].train.raw.clone()
    given_X[:] = 0
    given_test[:] = 0
    assert torch.equal(stream[0].train.raw, before)
    assert torch.equal(stream.test_split(0).raw, torch.from_numpy(test_X))


def test_fingerprint_follows_the_data():
    assert from_arrays([vectors()]).fingerprint() == from_arrays([vectors()]).fingerprint()
    X, y = vectors()
    X[0, 0] += 1
    assert from_arrays([(X, y)]).fingerprint() != from_arrays([vectors()]).fingerprint()


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(3, 30), min_size=2, max_size=5),
    validation=st.floats(0.05, 0.6),
    test_fraction=st.floats(0.05, 0.6),
    seed=st.integers(0, 10**6),
)
def test_every_class_in_every_part_nothing_lost_nothing_twice(sizes, validation, test_fraction, seed):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    numbers = np.arange(len(labels), dtype=np.float32)[:, None]  # a sample is its own row number
    stream = from_arrays([(numbers, labels)], validation=validation, test_fraction=test_fraction, seed=seed)
    parts = [stream[0].train, stream[0].validation, stream.test_split(0)]
    rows = np.concatenate([part.raw.numpy()[:, 0] for part in parts]).astype(int)
    assert sorted(rows) == list(range(len(labels)))
    for part in parts:
        assert part.labels.tolist() == labels[part.raw.numpy()[:, 0].astype(int)].tolist()
        assert set(part.labels.tolist()) == set(range(len(sizes)))


GOOD_X, GOOD_Y = vectors()
WITH_NAN, WITH_INF, TOO_LARGE = GOOD_X.copy(), GOOD_X.copy(), GOOD_X.copy()
WITH_NAN[7, 2], WITH_INF[3, 0], TOO_LARGE[5, 1] = np.nan, -np.inf, 1e300

BAD_TASKS = {
    "labels that are missing": ((GOOD_X, [None, *GOOD_Y[1:]]), "the label of sample 0 is None", "fill it in"),
    "labels that are no numbers": ((GOOD_X, np.where(GOOD_Y > 1, np.nan, GOOD_Y)), "is nan", "fill it in"),
    "labels that are lists": ((GOOD_X, np.array([[], *[1] * 59], dtype=object)), "is []", "convert it with str()"),
    "numbers to predict": ((GOOD_X, np.linspace(0, 1, 60)), "class 0.0 has 1 sample", "numbers to predict?"),
    "two-dimensional labels": ((GOOD_X, GOOD_Y[:, None]), "(60, 1)", "one label per sample"),
    "one class": ((GOOD_X, GOOD_Y * 0), "all labels are 0", "two classes"),
    "rare class": ((GOOD_X, np.array([0] * 58 + [1] * 2)), "class 1 has 2 samples", "add samples"),
    "not a number": ((WITH_NAN, GOOD_Y), "sample 7 holds nan", "fill in"),
    "infinite": ((WITH_INF, GOOD_Y), "sample 3 holds -inf", "fill in"),
    "beyond float32": ((TOO_LARGE, GOOD_Y), "sample 5 holds 1e+300", "fill in"),
    "lengths": ((GOOD_X, GOOD_Y[:-1]), "60 samples but 59 labels", "one label for each"),
    "no samples": ((GOOD_X[:0], GOOD_Y[:0]), "no samples (shape (0, 4))", "leave the task out"),
    "no features": ((GOOD_X[:, :0], GOOD_Y), "no samples (shape (60, 0))", "leave the task out"),
    "no labels": ((GOOD_X, GOOD_Y[:0]), "60 samples but 0 labels", "one label for each"),
    "one dimension": ((GOOD_X[:, 0], GOOD_Y), "shape (60,)", "vectors (n, d)"),
    "six dimensions": ((np.zeros((60, 1, 1, 1, 1, 1)), GOOD_Y), "6 dimensions", "volumes (n, channels"),
    "a sparse matrix": ((csr_matrix(GOOD_X), GOOD_Y), "sparse matrix", "X.toarray()"),
    "nothing": ((None, GOOD_Y), "of type object", "float32"),
    "text": (("abc", GOOD_Y), "of type <U3", "float32"),
    "masked samples": ((np.ma.masked_less(GOOD_X, 0), GOOD_Y), "samples are a masked array", "filled"),
    "masked labels": ((GOOD_X, np.ma.masked_less(GOOD_Y, 1)), "labels are a masked array", "filled"),
    "sparse samples": ((torch.eye(60).to_sparse(), GOOD_Y), "sparse", "to_dense"),
    "samples without values": ((torch.zeros(60, 4, device="meta"), GOOD_Y), "meta", "cpu"),
    "labels without values": ((GOOD_X, torch.zeros(60, device="meta")), "meta", "cpu"),
    "float8 samples": ((torch.zeros(60, 4).to(torch.float8_e4m3fn), GOOD_Y), "float8_e4m3fn", "X.float()"),
    "text samples": ((GOOD_X.astype(str), GOOD_Y), "of type <U", "float32"),
    "complex samples": ((GOOD_X.astype(complex), GOOD_Y), "of type complex128", "float32"),
    "object samples": ((GOOD_X.astype(object), GOOD_Y), "of type object", "float32"),
    "ragged samples": (([[1, 2], [3]] * 30, GOOD_Y), "not an array", "equal length"),
    "other shape": (vectors(features=5), "shape (5,), but those of tasks[0] have (4,)", "same shape"),
    "other type": ((GOOD_X.astype(np.uint8), GOOD_Y), "uint8 samples, but those of tasks[0] are float32", "same type"),
    "not a pair": (GOOD_X, "is ndarray", "pair (X, y)"),
}


@pytest.mark.parametrize("case", BAD_TASKS)
def test_bad_task_is_refused_by_name_with_the_value_and_the_way_out(case):
    task, value, way_out = BAD_TASKS[case]
    with pytest.raises(DataError) as caught:
        from_arrays([vectors(), task])
    message = str(caught.value)
    assert message.startswith("tasks[1]")
    assert value in message
    assert way_out in message
    assert "\n" not in message.replace(repr(task), "")


BAD_TESTS = {
    "shape": (vectors(features=5), "shape (5,)", "same shape"),
    "type": ((GOOD_X.astype(np.uint8), GOOD_Y), "uint8 samples", "same type"),
    "unknown label": ((GOOD_X, GOOD_Y + 1), "no training sample has the label 3", "remove these samples"),
    "not a number": ((WITH_NAN, GOOD_Y), "sample 7 holds nan", "fill in"),
    "empty": ((GOOD_X[:0], GOOD_Y[:0]), "no samples", "leave the task out"),
}


@pytest.mark.parametrize("case", BAD_TESTS)
def test_bad_test_set_is_refused_by_name_with_the_value_and_the_way_out(case):
    test, value, way_out = BAD_TESTS[case]
    with pytest.raises(DataError) as caught:
        from_arrays([vectors(), vectors()], test=[vectors(), test])
    message = str(caught.value)
    assert message.startswith("test[1]")
    assert value in message
    assert way_out in message


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"tasks": []}, "tasks is empty"),
        ({"tasks": vectors()}, "tasks[0] is ndarray"),
        ({"validation": 0.0}, "validation is 0.0"),
        ({"validation": 1}, "validation is 1"),
        ({"test_fraction": float("nan")}, "test_fraction is nan"),
        ({"names": ["a", "b"]}, "names has 2 entries for 1 task;"),
        ({"test": []}, "test has 0 entries for 1 task;"),
        ({"tasks": [vectors(), vectors()], "names": ["a"]}, "names has 1 entry for 2 tasks;"),
        ({"tasks": None}, "tasks is NoneType, not a list"),
        ({"tasks": 5}, "tasks is int, not a list"),
        ({"tasks": (pair for pair in [vectors()])}, "tasks is generator, not a list"),
        ({"test": True}, "test is bool, not a list"),
        ({"names": 5}, "names is int, not a list"),
        ({"names": "a"}, "names is str, not a list"),
        ({"validation": "a"}, "validation is 'a'; give a fraction"),
        ({"validation": None}, "validation is None; give a fraction"),
        ({"validation": True}, "validation is True; give a fraction"),
        ({"test_fraction": "a"}, "test_fraction is 'a'; give a fraction"),
    ],
)
def test_bad_options(options, wanted):
    with pytest.raises(DataError, match=re.escape(wanted)):
        from_arrays(**{"tasks": [vectors()], **options})


def test_two_samples_of_a_class_are_enough_with_an_own_test_set():
    labels = np.array([0] * 58 + [1] * 2)
    stream = from_arrays([(GOOD_X, labels)], test=[(GOOD_X, labels)])
    assert stream[0].train.labels.bincount()[1] == stream[0].validation.labels.bincount()[1] == 1
    with pytest.raises(DataError, match="class 1 has 1 sample, too few"):
        from_arrays([(GOOD_X, np.array([0] * 59 + [1]))], test=[(GOOD_X, labels)])


def test_a_seed_is_a_whole_number_and_numpys_is_the_same():
    assert from_arrays([vectors()], seed=np.int64(3)).fingerprint() == from_arrays([vectors()], seed=3).fingerprint()
    for seed in (-1, "x", 1.5, None):
        with pytest.raises(InputError, match=re.escape(f"seed is {seed!r}")):
            from_arrays([vectors()], seed=seed)


@pytest.mark.parametrize("kind", ["u1", "f4"])
def test_a_view_that_memory_cannot_hold_is_refused_before_it_is_copied(kind):
    view = np.broadcast_to(np.zeros((), kind), (10**9, 10**6))
    with pytest.raises(DataError, match=r"samples of shape \(1000000000, 1000000\) take 4,000,000 GB"):
        from_arrays([(view, np.zeros(3, int))])


def test_labels_are_counted_before_they_are_looked_at():
    with pytest.raises(DataError, match="30 samples but 100000000000000 labels"):
        from_arrays([(np.zeros((30, 2)), np.broadcast_to(np.int64(0), 10**14))])


@pytest.mark.parametrize("fraction", [10**400, -(10**5000)], ids=["large", "unspeakable"])
def test_a_fraction_of_any_size_is_refused(fraction):
    with pytest.raises(DataError, match="give a fraction between 0 and 1"):
        from_arrays([(np.zeros((30, 2)), np.arange(30) % 2)], validation=fraction)


def test_labels_that_cannot_be_shown_are_refused():
    class Unspeakable:
        def __repr__(self):
            raise ValueError("no name")

    with pytest.raises(DataError, match=r"the label of sample 0 is a Unspeakable;"):
        from_arrays([(np.zeros((30, 2)), [Unspeakable()] * 30)])


@pytest.mark.parametrize(
    ("labels", "kinds"),
    [
        (["cat", "dog", "cow"], ("cat", "cow", "dog")),
        ([7, -1, 10**9], (-1, 7, 10**9)),
        ([0.5, 2.0, 1.0], (0.5, 1.0, 2.0)),
        ([True, False, True], (False, True)),
        ([("a", 1), ("b", 0), ("a", 0)], (("a", 0), ("a", 1), ("b", 0))),
        ([2, "x", 1], (1, 2, "x")),
    ],
)
def test_any_labels_are_numbered_in_order(labels, kinds):
    X = GOOD_X.astype(np.float32)
    stream = from_arrays([(X, labels * 20)])
    task = stream[0]
    assert task.labels == kinds
    assert task.classes == len(kinds)
    for part in (task.train, task.validation, stream.test_split(0)):
        for row, number in zip(part.raw.tolist(), part.labels.tolist(), strict=True):
            original = X.tolist().index(row)
            assert kinds[number] == (labels * 20)[original]


def test_validation_samples_of_your_own_are_taken_as_they_are():
    own = vectors(seed=5)
    stream = from_arrays([vectors()], validation=[own])
    assert torch.equal(stream[0].validation.raw, torch.from_numpy(own[0]).float())
    assert len(stream[0].train) + len(stream.test_split(0)) == len(GOOD_Y)


@pytest.mark.parametrize("shape", [(60, 4), (60, 2, 7), (60, 2, 3, 3), (60, 2, 3, 2, 2)])
def test_floats_are_standardised_when_asked_for(shape):
    X = np.random.default_rng(0).normal(50, 9, shape).astype(np.float32)
    X[:, 0] = 3.0  # a feature or channel that never changes
    stream = from_arrays([(X, GOOD_Y)], standardise=True)
    scaled = stream[0].train.inputs()
    assert len(stream[0].train.mean) == shape[1]
    axes = [axis for axis in range(len(shape)) if axis != 1]
    assert scaled.mean(axes).abs().max() < 1e-5
    assert torch.allclose(scaled.std(axes, correction=0)[1:], torch.ones(shape[1] - 1), atol=1e-4)
    assert torch.equal(stream.test_split(0).inputs(), stream[0].train.scaling()(stream.test_split(0).raw))


@pytest.mark.parametrize("factor", [1e4, 1e-4])
def test_badly_scaled_floats_are_warned_of(factor):
    with pytest.warns(DataWarning, match=r"tasks\[0\]: feature \d is .* pass standardise=True"):
        from_arrays([(GOOD_X * factor, GOOD_Y)])


# -- scaled as a pretrained network expects --------------------------------------------------------


def test_a_scale_of_ones_own_takes_the_place_of_the_tasks():
    images = np.random.default_rng(0).integers(0, 256, (30, 3, 4, 4)).astype("uint8")
    stream = from_arrays([(images, np.arange(30) % 2)], mean=[0.5, 0.4, 0.3], std=0.25)
    train = stream[0].train
    wanted = (train.raw.double() / 255 - torch.tensor([0.5, 0.4, 0.3], dtype=torch.float64).view(3, 1, 1)) / 0.25
    torch.testing.assert_close(train.inputs(dtype=torch.float64), wanted)
    assert stream.test_split(0).mean == stream[0].validation.mean == (0.5, 0.4, 0.3)


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"mean": 0.5}, "give both"),
        ({"std": 0.5}, "give both"),
        ({"mean": 0.5, "std": 1.0, "standardise": True}, "without standardise"),
        ({"mean": [0.5, 0.5], "std": 1.0}, "3 channels"),
        ({"mean": 0.5, "std": 0.0}, "std is 0"),
        ({"mean": "half", "std": 1.0}, "mean is 'half'"),
    ],
)
def test_a_scale_that_cannot_be_is_refused(given, wrong):
    images = np.zeros((30, 3, 4, 4), dtype="uint8")
    with pytest.raises(BoclError, match=wrong):
        from_arrays([(images, np.arange(30) % 2)], **given)

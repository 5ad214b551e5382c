from __future__ import annotations

import numpy as np
import pytest
import torch

from bocl.errors import DataError
from bocl.tasks.digits import load_digits
from bocl.tasks.images import labelled_images
from bocl.tasks.mnist import load_mnist
from bocl.tasks.permuted import PermutedStream, permutation, permuted_digits, permuted_mnist


def test_a_permutation_is_a_bijection_of_the_pixels():
    pixels = np.arange(64, dtype=np.uint8).reshape(1, 1, 8, 8)
    shuffled = permutation(0, 0, 64)(pixels)
    assert shuffled.shape == pixels.shape
    assert sorted(shuffled.flat) == list(range(64))
    assert not np.array_equal(shuffled, pixels)


def test_train_validation_and_test_are_permuted_alike():
    """Images that hold each pixel's own number show the permutation itself."""
    pixels = np.arange(64, dtype=np.uint8).reshape(1, 1, 8, 8)
    images = np.repeat(pixels, 40, axis=0)
    labels = np.arange(40) % 2
    numbered = labelled_images("numbers", (images.copy(), labels.copy()), (images.copy(), labels.copy()))
    stream = PermutedStream(numbered, tasks=3, seed=0, validation=10)
    seen = set()
    for index in range(3):
        parts = [stream[index].train, stream[index].validation, stream.test_split(index)]
        rows = torch.cat([part.raw for part in parts]).flatten(1)
        assert (rows == rows[0]).all()
        seen.add(tuple(rows[0].tolist()))
    assert len(seen) == 3
    assert tuple(range(64)) not in seen


def test_every_task_has_the_same_images_in_the_same_parts():
    stream = permuted_digits(3, seed=4)
    first, last = stream[0], stream[2]
    for part in ("train", "validation"):
        a, b = getattr(first, part), getattr(last, part)
        assert torch.equal(a.labels, b.labels)
        assert torch.equal(a.raw.flatten(1).sort(dim=1).values, b.raw.flatten(1).sort(dim=1).values)
        assert not torch.equal(a.raw, b.raw)


def test_training_and_validation_make_up_the_training_images():
    stream = permuted_digits(1, seed=2)
    task = stream[0]
    assert (len(task.train), len(task.validation), len(stream.test_split(0))) == (1293, 144, 360)
    shuffled = permutation(2, 0, 64)(load_digits(2).train_images).reshape(-1, 64)
    parts = torch.cat([task.train.raw, task.validation.raw]).flatten(1)
    assert sorted(map(tuple, parts.tolist())) == sorted(map(tuple, shuffled.tolist()))
    shares = task.validation.labels.bincount() / task.train.labels.bincount()
    assert shares.tolist() == pytest.approx([144 / 1293] * 10, abs=0.01)


def test_a_longer_stream_begins_with_the_shorter_one():
    assert torch.equal(permuted_digits(2)[1].train.raw, permuted_digits(5)[1].train.raw)


def test_no_tasks_are_refused():
    with pytest.raises(DataError, match="tasks is 0"):
        permuted_digits(0)


@pytest.mark.real_data
def test_mnist_has_the_published_sizes(real_data):
    stream = permuted_mnist(2, data=real_data)
    task, test = stream[1], stream.test_split(1)
    assert (len(task.train), len(task.validation), len(test)) == (55_000, 5_000, 10_000)
    assert task.input_shape == (1, 28, 28)
    assert task.train.raw.dtype == torch.uint8
    assert task.train.mean == pytest.approx((0.1307,), abs=1e-4)
    assert task.train.std == pytest.approx((0.3081,), abs=1e-4)
    published = np.bincount(load_mnist(real_data).train_labels)
    assert published.tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.abs(task.validation.labels.bincount().numpy() - published / 12).max() < 1
    together = task.validation.labels.bincount() + task.train.labels.bincount()
    assert together.tolist() == published.tolist()
    assert test.labels.bincount().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


@pytest.mark.real_data
def test_mnist_is_permuted_not_changed(real_data):
    stream = permuted_mnist(1, seed=3, data=real_data)
    published = load_mnist(real_data).test_images
    shown = stream.test_split(0).raw.numpy()
    assert np.array_equal(np.sort(shown.reshape(10_000, -1)), np.sort(published.reshape(10_000, -1)))
    assert not np.array_equal(shown, published)

from __future__ import annotations

import numpy as np
import pytest

from bocl.tasks.digits import load_digits
from bocl.tasks.images import channel_statistics, fingerprint_of


def test_statistics_agree_with_numpy_over_several_pieces():
    images = np.random.default_rng(0).integers(0, 256, (2500, 3, 4, 5)).astype(np.uint8)
    images[:, 1] = images[:, 1] // 3 + 20
    mean, std = channel_statistics(images)
    assert mean == pytest.approx((images / 255).mean(axis=(0, 2, 3)))
    assert std == pytest.approx((images / 255).std(axis=(0, 2, 3)))


def test_a_constant_channel_has_deviation_one():
    images = np.full((10, 2, 3, 3), 200, np.uint8)
    images[0, 1, 0, 0] = 0
    mean, std = channel_statistics(images)
    assert (mean[0], std[0]) == (pytest.approx(200 / 255), 1.0)
    assert 0 < std[1] < 1


def test_fingerprint_sees_values_types_and_shapes():
    array = np.arange(6, dtype=np.uint8)
    others = [array + np.uint8(1), array.astype(np.int64), array.reshape(2, 3)]
    assert len({fingerprint_of(a) for a in [array, *others]}) == 4
    assert fingerprint_of(array[::-1]) == fingerprint_of(array[::-1].copy())


def test_digits_are_the_published_values_times_fifteen():
    from sklearn.datasets import load_digits as published

    digits = load_digits(0)
    assert digits.train_images.shape == (1437, 1, 8, 8)
    assert digits.test_images.shape == (360, 1, 8, 8)
    together = np.concatenate([digits.train_images, digits.test_images]).reshape(1797, 64)
    assert sorted(map(tuple, together / 15.0)) == sorted(map(tuple, published().data))


def test_digits_are_split_by_the_seed_and_shared():
    assert load_digits(0) is load_digits(0)
    assert not np.array_equal(load_digits(0).test_images, load_digits(1).test_images)
    assert load_digits(0).fingerprint == load_digits(1).fingerprint
    shares = np.bincount(load_digits(3).test_labels) / np.bincount(load_digits(3).train_labels)
    assert shares == pytest.approx(360 / 1437, abs=0.01)


def test_shared_images_cannot_be_written_to():
    with pytest.raises(ValueError, match="read-only"):
        load_digits(0).train_images[0] = 0

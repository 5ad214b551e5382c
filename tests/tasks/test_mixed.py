from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage

from bocl.tasks.digits import load_digits
from bocl.tasks.mixed import MixedStream, mixed_mnist, rotation, rotation_angle
from bocl.tasks.mnist import load_mnist
from bocl.tasks.permuted import permuted_digits


def mixed_digits(tasks=10, seed=0):
    return MixedStream(load_digits(seed), tasks, seed, validation=144)


@pytest.mark.parametrize("tasks", [2, 3, 4, 7, 10, 11])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_angle_in_each_bin_of_the_half_circle(tasks, seed):
    bins = tasks // 2
    angles = [rotation_angle(seed, index, tasks) for index in range(1, tasks, 2)]
    assert sorted(int(angle // (180 / bins)) for angle in angles) == list(range(bins))
    assert all(0 <= angle < 180 for angle in angles)


def test_the_seed_draws_the_order_and_the_place_in_the_bin():
    angles = np.array([[rotation_angle(seed, index, 10) for index in range(1, 10, 2)] for seed in range(20)])
    assert len({tuple(row) for row in angles // 36}) > 10
    assert (angles % 36).std() == pytest.approx(36 / 12**0.5, rel=0.2)


@pytest.mark.parametrize("angle", [0.0, 12.3, 90.0, 135.0, 179.9])
def test_rotation_is_the_bilinear_one_of_scipy(angle):
    images = np.random.default_rng(0).integers(0, 256, (6, 3, 11, 11)).astype(np.uint8)
    wanted = ndimage.rotate(images.astype(float), angle, axes=(3, 2), reshape=False, order=1)
    assert np.abs(rotation(angle, 11, 11)(images) - wanted).max() <= 0.5 + 1e-9


def test_no_turn_changes_nothing_and_a_quarter_turn_is_exact():
    images = np.random.default_rng(0).integers(0, 256, (5000, 1, 8, 8)).astype(np.uint8)
    assert np.array_equal(rotation(0.0, 8, 8)(images), images)
    assert np.array_equal(
        rotation(90.0, 8, 8)(images)[:, :, 1:-1, 1:-1], np.rot90(images, axes=(2, 3))[:, :, 1:-1, 1:-1]
    )


def test_a_wide_image_is_turned_about_its_centre():
    image = np.zeros((1, 1, 5, 9), np.uint8)
    image[0, 0, 2, 4] = 200
    assert rotation(37.0, 5, 9)(image)[0, 0, 2, 4] == 200


def test_permutations_and_rotations_take_turns():
    names = [task.name.split()[0] for task in mixed_digits(5)]
    assert names == ["permutation", "rotation", "permutation", "rotation", "permutation"]
    assert torch.equal(mixed_digits()[2].train.raw, permuted_digits(5)[2].train.raw)


def test_a_rotation_is_applied_alike_to_every_part():
    stream = mixed_digits()
    angle = rotation_angle(0, 3, 10)
    assert f"{angle:.1f} degrees" in stream[3].name
    turn = rotation(angle, 8, 8)
    wanted = turn(load_digits(0).test_images)
    assert np.array_equal(stream.test_split(3).raw.numpy(), wanted)
    parts = torch.cat([stream[3].train.raw, stream[3].validation.raw]).flatten(1)
    turned = turn(load_digits(0).train_images).reshape(-1, 64)
    assert sorted(map(tuple, parts.tolist())) == sorted(map(tuple, turned.tolist()))


@pytest.mark.real_data
def test_rotated_mnist_keeps_its_ink_and_its_scale(real_data):
    stream = mixed_mnist(10, data=real_data)
    task = stream[1]
    assert task.name.startswith("rotation 2")
    assert (len(task.train), len(task.validation), len(stream.test_split(1))) == (55_000, 5_000, 10_000)
    images = load_mnist(real_data)
    assert (task.train.mean, task.train.std) == (images.mean, images.std)
    published = images.test_images
    ink = stream.test_split(1).raw.numpy().mean() / published.mean()
    assert ink == pytest.approx(1, abs=0.01)  # the digits lie inside the circle that stays in view
    wanted = ndimage.rotate(published[:50].astype(float), rotation_angle(0, 1, 10), (3, 2), reshape=False, order=1)
    assert np.abs(stream.test_split(1).raw.numpy()[:50] - wanted).max() <= 0.5 + 1e-9

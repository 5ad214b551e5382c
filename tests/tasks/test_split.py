from __future__ import annotations

import numpy as np
import pytest
import torch

from bocl.errors import ConfigError, DataError
from bocl.tasks.cifar100 import load_cifar100
from bocl.tasks.images import labelled_images
from bocl.tasks.split import SplitStream, split_cifar100


def numbered_images(classes=6, train=20, test=5):
    """Images that hold their own row number, so that each can be told apart."""

    def part(per_class, first):
        labels = np.random.default_rng(0).permutation(np.repeat(np.arange(classes), per_class))
        return np.repeat(np.arange(first, first + len(labels)), 4).reshape(-1, 1, 2, 2).astype(np.uint8), labels

    return labelled_images("numbers", part(train, 0), part(test, classes * train))


def test_each_task_has_its_own_classes_and_loses_no_image():
    images = numbered_images()
    stream = SplitStream(images, tasks=3, seed=0, classes=2, validation=4)
    for index, task in enumerate(stream):
        assert task.name == f"classes {2 * index}-{2 * index + 1}"
        assert task.classes == 2
        assert task.train.labels.bincount().tolist() == [16, 16]
        assert task.validation.labels.bincount().tolist() == [4, 4]
        parts = [task.train, task.validation]
        rows = torch.cat([part.raw[:, 0, 0, 0] for part in parts]).long().numpy()
        labels = torch.cat([part.labels for part in parts]).numpy()
        assert sorted(rows) == np.flatnonzero(images.train_labels // 2 == index).tolist()
        assert np.array_equal(images.train_labels[rows], labels + 2 * index)
        test = stream.test_split(index)
        tested = test.raw[:, 0, 0, 0].long().numpy() - len(images.train_labels)
        assert sorted(tested) == np.flatnonzero(images.test_labels // 2 == index).tolist()
        assert np.array_equal(images.test_labels[tested], test.labels.numpy() + 2 * index)


def test_a_drawn_order_of_classes_is_the_seeds_and_shows_every_class_once():
    images = numbered_images()
    seeds = range(20)
    streams = [SplitStream(images, tasks=3, seed=seed, classes=2, validation=4, drawn=True) for seed in seeds]
    orders = [tuple(tuple(stream.members(index)) for index in range(3)) for stream in streams]
    assert len(set(orders)) > 10
    for stream, order in zip(streams, orders, strict=True):
        assert sorted(number for members in order for number in members) == list(range(6))
        for index, members in enumerate(order):
            task, test = stream[index], stream.test_split(index)
            assert task.name == f"classes {members[0]}, {members[1]}"
            assert members[0] < members[1]
            rows = task.train.raw[:, 0, 0, 0].long().numpy()
            assert np.array_equal(images.train_labels[rows], np.array(members)[task.train.labels])
            rows = test.raw[:, 0, 0, 0].long().numpy() - len(images.train_labels)
            assert np.array_equal(images.test_labels[rows], np.array(members)[test.labels])
    shorter = SplitStream(images, tasks=2, seed=5, classes=2, validation=4, drawn=True)
    assert [tuple(shorter.members(index)) for index in range(2)] == [*orders[5][:2]]


def test_an_order_of_classes_that_is_not_known_is_refused_before_any_file_is_looked_for():
    with pytest.raises(ConfigError, match="class_order"):
        split_cifar100(class_order="size", data="/nowhere")


@pytest.mark.parametrize(("tasks", "classes"), [(11, 10), (0, 10), (101, 1), (3, 1), (2, 51)])
def test_impossible_cuts_are_refused_before_any_file_is_looked_for(tasks, classes):
    with pytest.raises(DataError, match=f"{tasks} tasks of {classes} classes"):
        split_cifar100(tasks, classes=classes, data="/nowhere")


@pytest.mark.real_data
def test_cifar_has_the_published_sizes(real_data):
    stream = split_cifar100(data=real_data)
    assert len(stream) == 10
    for index in (0, 9):
        task, test = stream[index], stream.test_split(index)
        assert task.input_shape == (3, 32, 32)
        assert task.train.labels.bincount().tolist() == [450] * 10
        assert task.validation.labels.bincount().tolist() == [50] * 10
        assert test.labels.bincount().tolist() == [100] * 10
        assert task.train.mean == pytest.approx((0.5071, 0.4865, 0.4409), abs=1e-4)
        assert task.train.std == pytest.approx((0.2673, 0.2564, 0.2762), abs=1e-4)


@pytest.mark.real_data
def test_cifar_tasks_hold_the_images_of_their_classes(real_data):
    images = load_cifar100(real_data)
    task = split_cifar100(3, data=real_data)[2]
    assert task.name == "classes 20-29"
    for label in (0, 7):
        parts = [part.raw[part.labels == label].flatten(1) for part in (task.train, task.validation)]
        wanted = images.train_images[images.train_labels == 20 + label].reshape(500, -1)
        assert sorted(map(bytes, torch.cat(parts).numpy())) == sorted(map(bytes, wanted))


@pytest.mark.real_data
def test_fewer_tasks_are_the_first_of_ten_and_classes_can_be_fewer(real_data):
    whole, three = split_cifar100(data=real_data), split_cifar100(3, data=real_data)
    assert len(three) == 3
    assert torch.equal(whole[2].train.raw, three[2].train.raw)
    twos = split_cifar100(50, classes=2, data=real_data)
    assert (twos[49].classes, len(twos[49].train), len(twos.test_split(49))) == (2, 900, 200)

"""The order in which samples are shown."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bocl.tasks.task import Split, Task
from bocl.training.batches import DeviceSplit, epoch_order, task_to_device
from bocl.training.evaluation import accuracies, accuracy


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(st.integers(1, 60), st.integers(1, 70))
def test_an_epoch_shows_every_sample_in_batches_of_one_shape(samples, batch_size):
    order = epoch_order(samples, batch_size, generator())
    batch = min(samples, batch_size)
    assert order.shape == (-(-samples // batch), batch)
    assert order.unique().tolist() == list(range(samples))
    # only the last batch is filled up, and no sample is shown a third time
    assert order.flatten()[:samples].unique().numel() == samples
    assert order.flatten().bincount().max() <= 2


def test_the_order_is_the_generators_alone_and_differs_by_epoch():
    one, two = generator(3), generator(3)
    torch.manual_seed(0)
    first = epoch_order(20, 6, one)
    torch.manual_seed(1)
    assert torch.equal(first, epoch_order(20, 6, two))
    assert not torch.equal(first, epoch_order(20, 6, one))
    assert not torch.equal(first, epoch_order(20, 6, generator(4)))


def test_a_task_is_scaled_on_its_device():
    raw = torch.tensor([[0, 255], [51, 102]], dtype=torch.uint8)
    split = Split(raw, torch.tensor([0, 1]), mean=(0.2,), std=(0.4,))
    task = Task("bytes", 5, 2, split, Split(raw[:1].float(), torch.tensor([0])))
    moved = task_to_device(task, 3, "cpu", torch.float64)
    assert moved.index == 3
    expected = torch.tensor([[-0.5, 2.0], [0.0, 0.5]], dtype=torch.float64)
    torch.testing.assert_close(moved.train.inputs, expected)
    assert moved.validation.inputs.tolist() == [[0.0, 255.0]]
    assert moved.train.labels.tolist() == [0, 1]


@pytest.mark.parametrize("samples", [1, 999, 1000, 1001, 2500])
def test_accuracy_is_the_share_of_right_samples_however_they_are_batched(samples):
    labels = torch.arange(samples) % 4
    guesses = torch.where(torch.arange(samples) % 5 == 0, (labels + 1) % 4, labels)
    split = DeviceSplit(guesses[:, None].float(), labels)
    expected = (guesses == labels).double().mean().item()

    def predict(x: torch.Tensor) -> torch.Tensor:
        assert len(x) <= 1000
        return torch.nn.functional.one_hot(x[:, 0].long(), 4).float()

    assert accuracy(predict, split) == pytest.approx(expected, abs=1e-15)
    both = accuracies(lambda x: torch.stack([predict(x), predict(x).roll(1, -1)]), split)
    assert both.shape == (2,)
    assert both[0].item() == pytest.approx(expected, abs=1e-15)
    assert both[1].item() == pytest.approx(((guesses + 1) % 4 == labels).double().mean().item(), abs=1e-15)

"""The order in which samples are shown."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from bocl.errors import InputError
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.trace import trace
from bocl.tasks.task import Split, Task
from bocl.training import batches, feed
from bocl.training.batches import DeviceSplit, DeviceTask, epoch_order, task_to_device, to_device
from bocl.training.evaluation import accuracy, scores
from bocl.training.recipe import Recipe
from bocl.training.trainer import train


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
    assert (moved.name, moved.index, moved.classes) == ("bytes", 3, 2)
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
    both, _ = scores(lambda x: torch.stack([predict(x), predict(x).roll(1, -1)]), split)
    assert both.shape == (2,)
    assert both[0].item() == pytest.approx(expected, abs=1e-15)
    assert both[1].item() == pytest.approx(((guesses + 1) % 4 == labels).double().mean().item(), abs=1e-15)


def many(samples: int = 50) -> Split:
    generator = torch.Generator().manual_seed(0)
    raw = torch.randint(256, (samples, 3, 4), dtype=torch.uint8, generator=generator)
    return Split(raw, torch.arange(samples) % 7, mean=(0.2, 0.3, 0.4), std=(0.5, 0.6, 0.7))


KEPT = ("floats", "bytes", "fed")


def keep(kind: str, monkeypatch: pytest.MonkeyPatch, split: Split, window: int = 16) -> DeviceSplit:
    """Keep a split on the CPU in a way that ``to_device`` chooses for a GPU, too."""
    monkeypatch.setattr(feed, "WINDOW_BYTES", 0)
    monkeypatch.setattr(feed, "FEWEST", window)
    if kind == "floats":
        return to_device(split, "cpu")
    if kind == "bytes":
        return DeviceSplit(split.raw, split.labels, split.scaling())
    fed = feed.Feed(split.raw, split.labels)
    return DeviceSplit(*fed.window(torch.device("cpu")), split.scaling(), fed)


@pytest.mark.parametrize("kind", KEPT)
def test_samples_are_the_same_bits_however_they_are_kept(kind, monkeypatch):
    split = many()
    kept = keep(kind, monkeypatch, split)
    assert kept.inputs.dtype == (torch.float32 if kind == "floats" else torch.uint8)
    assert (kept.feed is not None) == (kind == "fed")
    assert len(kept) == 50
    assert kept.inputs.shape[0] == (16 if kind == "fed" else 50)
    order = epoch_order(50, 6, generator())
    for rows, places in zip(order, kept.batches(order), strict=True):
        inputs, labels = kept.take(places)
        assert torch.equal(inputs, split.inputs()[rows])
        assert torch.equal(labels, split.labels[rows])
    inputs, labels = kept.rows(slice(10, 33))
    assert torch.equal(inputs, split.inputs()[10:33])
    assert torch.equal(labels, split.labels[10:33])


@pytest.mark.gpu
@pytest.mark.parametrize("share", [1.0, 0.0])
def test_a_gpu_keeps_bytes_or_is_fed_and_sees_the_same_samples(share, monkeypatch):
    split = many()
    monkeypatch.setattr(batches, "SHARE_OF_FREE_MEMORY", share)
    monkeypatch.setattr(feed, "WINDOW_BYTES", 0)
    monkeypatch.setattr(feed, "FEWEST", 16)
    kept = to_device(split, "cuda")
    assert kept.inputs.dtype == torch.uint8
    assert (kept.feed is not None) == (share == 0.0)
    order = epoch_order(50, 6, generator())
    for rows, places in zip(order, kept.batches(order), strict=True):
        inputs, labels = kept.take(places)
        torch.testing.assert_close(inputs.cpu(), split.inputs()[rows])
        assert torch.equal(labels.cpu(), split.labels[rows])


def test_a_batch_larger_than_what_is_fed_at_a_time_is_refused(monkeypatch):
    kept = keep("fed", monkeypatch, many(), window=5)
    with pytest.raises(InputError, match=r"a batch of 6 samples .* set recipe\.batch_size lower"):
        next(kept.batches(epoch_order(50, 6, generator())))


def test_training_ends_in_the_same_bits_however_samples_are_kept(monkeypatch):
    ends = []
    for kind in KEPT:
        with monkeypatch.context() as patch:
            kept = keep(kind, patch, many())
        task = DeviceTask("kept", 0, 7, kept, kept)
        graph = trace(nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 7)))
        network = ExpandableNetwork(graph)
        for z in (graph.widths, (3,)):  # the second task would compute frozen units once, but for samples that are fed
            children = network.grow([z], 7, seeds=[0])
            (fit,) = train(children, [task], Recipe(batch_size=6, epochs=3), seed=0)
            network.commit(children.growth(0))
        ends.append((fit, network.growths))
    for fit, growths in ends[1:]:
        assert fit.accuracy == ends[0][0].accuracy
        assert fit.loss == pytest.approx(ends[0][0].loss, rel=1e-5)
        for growth, first in zip(growths, ends[0][1], strict=True):
            for name, tensor in growth.tensors.items():
                torch.testing.assert_close(tensor, first.tensors[name])

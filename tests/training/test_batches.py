"""The order in which samples are shown."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from bocl.errors import InputError
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.trace import trace
from bocl.tasks.task import Split, Task
from bocl.training import batches, feed
from bocl.training.batches import (
    COLUMNS,
    DeviceSplit,
    DeviceTask,
    columns_for,
    epoch_order,
    task_to_device,
    to_device,
    token_lengths,
)
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


# texts

UNTIMED = settings(deadline=None)


@st.composite
def some_texts(draw):
    """Draw token ids (n, width), and the id that fills them up; any of them may be filled up inside, too."""
    samples, width, padding = draw(st.integers(1, 60)), draw(st.integers(1, 70)), draw(st.integers(0, 2))
    seed, most = draw(st.integers(0, 2**32)), draw(st.integers(0, 70))
    ids = torch.randint(3, (samples, width), dtype=torch.int32, generator=generator(seed))
    lengths = torch.randint(min(most, width) + 1, (samples, 1), generator=generator(seed + 1))
    return torch.where(torch.arange(width) < lengths, ids, padding).int(), padding


def text_split(ids: torch.Tensor, padding: int) -> DeviceSplit:
    return to_device(Split(ids, torch.arange(len(ids)), padding=padding), "cpu")


@UNTIMED
@given(some_texts())
def test_a_text_is_as_long_as_its_last_token(texts):
    ids, padding = texts
    lengths = token_lengths(ids, padding)
    for row, length in zip(ids.tolist(), lengths.tolist(), strict=True):
        assert length == max([1, *(place for place, token in enumerate(row, start=1) if token != padding)])


def test_lengths_are_where_the_ids_are():
    assert token_lengths(torch.zeros(3, 4, dtype=torch.int32, device="meta"), 0).device.type == "meta"


@UNTIMED
@given(st.integers(1, 600), st.integers(1, 600))
def test_rows_are_cut_down_to_few_widths_that_hold_the_longest_text(length, width):
    length = min(length, width)
    found = columns_for(length, width)
    assert length <= found <= width
    assert found in {*COLUMNS, width}
    assert not [most for most in COLUMNS if length <= most < found], "no smaller one would do"


@UNTIMED
@given(st.integers(1, 60), st.integers(1, 70), st.integers(1, 40), st.integers(0, 9))
def test_an_epoch_shows_every_text_in_batches_of_one_shape(samples, batch_size, longest, seed):
    lengths = torch.randint(1, longest + 1, (samples,), generator=generator(seed))
    order = epoch_order(samples, batch_size, generator(seed), lengths)
    plain = epoch_order(samples, batch_size, generator(seed))
    assert order.shape == plain.shape
    assert sorted(order.flatten().tolist()) == sorted(plain.flatten().tolist()), "the same are shown twice"
    assert torch.equal(order, epoch_order(samples, batch_size, generator(seed), lengths))


def test_texts_of_a_batch_are_about_as_long_and_batches_come_in_any_order():
    lengths = torch.randint(1, 129, (512,), generator=generator())
    order = epoch_order(512, 32, generator(), lengths)  # all 16 batches are sorted together
    spans = [(int(row.min()), int(row.max())) for row in lengths[order]]
    ordered = sorted(spans)
    assert all(before[1] <= after[0] for before, after in pairwise(ordered))
    assert spans != ordered
    assert spans != ordered[::-1]
    once = generator()
    assert not torch.equal(epoch_order(512, 32, once, lengths), epoch_order(512, 32, once, lengths))


@UNTIMED
@given(some_texts(), st.integers(1, 30))
def test_cutting_columns_never_cuts_a_token(texts, batch_size):
    ids, padding = texts
    split = text_split(ids, padding)
    order = epoch_order(len(ids), batch_size, generator(), split.lengths)
    for rows, places, columns in zip(order, split.batches(order), split.columns(order), strict=True):
        inputs, labels = split.take(places, columns)
        assert labels.tolist() == rows.tolist()
        assert inputs.shape == (len(rows), columns)
        assert torch.equal(inputs, ids[rows, :columns])
        assert (ids[rows, columns:] == padding).all()


@UNTIMED
@given(some_texts(), st.integers(1, 30), st.integers(1, 30))
def test_parts_hold_every_text_once_the_short_ones_first(texts, size, size_of_texts):
    ids, padding = texts
    split = text_split(ids, padding)
    found = list(split.parts(size, size_of_texts))
    assert max(map(len, found)) <= min(size, size_of_texts)
    every = torch.cat(found)
    assert sorted(every.tolist()) == list(range(len(ids)))
    assert (split.lengths[every].diff() >= 0).all()
    for part in found:
        inputs, labels = split.rows(part)
        columns = inputs.shape[1]
        assert labels.tolist() == part.tolist()
        assert torch.equal(inputs, ids[part, :columns])
        assert (ids[part, columns:] == padding).all()
    inputs, _ = split.rows(slice(0, 3))
    assert torch.equal(inputs, ids[:3, : inputs.shape[1]])


def test_samples_that_are_no_texts_come_in_order_and_whole():
    split = to_device(many(), "cpu")
    assert split.lengths is None
    assert list(split.parts(20)) == [slice(0, 20), slice(20, 40), slice(40, 60)]
    assert split.columns(torch.zeros(3, 2, dtype=torch.int64)) == [None] * 3


@UNTIMED
@given(some_texts())
def test_accuracy_on_texts_does_not_depend_on_their_order(texts):
    ids, padding = texts
    labels = torch.arange(len(ids)) % 3
    split = to_device(Split(ids, labels, padding=padding), "cpu")

    def predict(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot((x != padding).sum(1) % 3, 3).float()

    expected = ((ids != padding).sum(1) % 3 == labels).double().mean().item()
    assert accuracy(predict, split) == pytest.approx(expected, abs=1e-15)

"""What a message advises works: every mistake is made, the advice is followed, and a learner takes it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, csr_matrix
from torch import Tensor, nn

import bocl
from bocl.errors import BoclError

LABELS = np.arange(40) % 2


def numbers(*shape: int) -> Any:
    return np.random.default_rng(0).normal(size=(40, *shape)).astype(np.float32)


def raw_bytes(*shape: int) -> Any:
    return np.random.default_rng(0).integers(256, size=(40, *shape), dtype=np.uint8)


def conv(channels: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(channels, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))


def conv1d() -> nn.Module:
    return nn.Sequential(nn.Conv1d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 2))


def learnt(network: nn.Module, x: Any, y: Any = LABELS) -> Any:
    learner = bocl.SN(network, recipe=bocl.Recipe(epochs=1), device="cpu")
    learner.learn(bocl.from_arrays([(x, y)], test_fraction=0.1)[0])
    return learner


def follow(advice: str, x: Any) -> Any:
    """Compute what a message says to give."""
    return eval(advice, {"x": x, "X": x})


def refusal(work: Any, *arguments: Any) -> str:
    """Return the one line in which a mistake is refused."""
    with pytest.raises(BoclError) as caught:
        work(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_labels_may_be_words():
    learner = learnt(bocl.mlp(6, [5]), numbers(6), np.array(["cat", "dog"])[LABELS])
    assert learner.classes(0) == ("cat", "dog")
    assert set(learner.predict_labels(numbers(6), 0)) <= {"cat", "dog"}


# -- a network that cannot take the samples ----------------------------------------------------------


@pytest.mark.parametrize(
    ("network", "x", "advice"),
    [
        (bocl.mlp(6, [5]), csr_matrix(numbers(6)), "X.toarray()"),
        (bocl.mlp(6, [5]), csr_array(numbers(6)), "X.toarray()"),
        (conv(3), numbers(8, 9, 3), "X.transpose(0, 3, 1, 2)"),
        (conv(3), torch.tensor(numbers(8, 9, 3)), "X.permute(0, 3, 1, 2)"),
        (conv(3), raw_bytes(8, 9, 3), "X.transpose(0, 3, 1, 2)"),
        (conv(1), numbers(8, 9), "X[:, None]"),
        (conv1d(), numbers(9), "X[:, None]"),
    ],
)
def test_samples_a_network_cannot_take(network, x, advice):
    assert advice in refusal(learnt, network, x)
    learner = learnt(network, follow(advice, x))
    assert learner.predict(follow(advice, x), 0).shape == (40, 2)


def test_a_network_that_misses_a_flatten():
    network = nn.Sequential(nn.Linear(24, 5), nn.ReLU(), nn.Linear(5, 2))
    assert "'0' reads 24 numbers, and a sample is not flat; begin the network with nn.Flatten()" in refusal(
        learnt, network, numbers(2, 3, 4)
    )
    learnt(nn.Sequential(nn.Flatten(), *network), numbers(2, 3, 4))


@pytest.mark.parametrize(
    ("network", "shape", "reason"),
    [
        (bocl.mlp(7, [5]), (6,), "'fc1' reads 7 numbers, not 6; build the network for these samples"),
        (conv(3), (2, 8, 9), "'0' reads 3 channels, not 2; build the network for these samples"),
        (conv(3), (8, 9), r"'0' reads 3 channels, and there is no axis of channels; give \(n, 3, 8, 9\)"),
        (bocl.lenet(), (3, 8, 8), "Kernel size|kernel size"),
    ],
)
def test_a_network_for_other_samples(network, shape, reason):
    assert re.search(reason, refusal(learnt, network, numbers(*shape)))


class Tokens(nn.Module):
    """A map turned into a sequence, as transformers do."""

    def __init__(self, read: Any, inputs: int) -> None:
        super().__init__()
        self.patch, self.head, self.read = nn.Conv2d(1, 4, 2, 2), nn.Linear(inputs, 2), read

    def forward(self, x: Tensor) -> Tensor:
        """Read the map."""
        return self.head(self.read(self.patch(x)))


def test_a_map_made_into_a_sequence():
    message = refusal(bocl.trace, Tokens(lambda maps: maps.flatten(2).mean(2), 4))
    assert "'flatten' flattens dimensions 2 … -1" in message
    assert "use flatten(1), or a mean over space" in message
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    line = next(number for number, text in enumerate(lines, start=1) if "maps.flatten(2)" in text)
    assert message.endswith(f"(test_advice.py, line {line})")
    for read, inputs in ((lambda maps: maps.flatten(1), 16), (lambda maps: maps.mean((2, 3)), 4)):
        learnt(Tokens(read, inputs), numbers(1, 4, 4))


# -- samples that a task does not take ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("network", "x", "wrong", "advice"),
    [
        (bocl.mlp(6, [5]), numbers(6), numbers(6)[0], "x[None]"),
        (bocl.mlp(6, [5]), numbers(6), csr_matrix(numbers(6)), "X.toarray()"),
        (conv(3), numbers(3, 8, 9), numbers(3, 8, 9)[0], "x[None]"),
        (conv(3), numbers(3, 8, 9), numbers(8, 9, 3), "x.transpose(0, 3, 1, 2)"),
        (conv(1), numbers(1, 8, 9), numbers(8, 9), "x[:, None]"),
        (conv(1), numbers(1, 8, 9), numbers(72), "x.reshape(-1, 1, 8, 9)"),
        (conv(3), raw_bytes(3, 8, 9), raw_bytes(3, 8, 9).astype(np.float32), "x.astype('uint8')"),
        (conv(3), raw_bytes(3, 8, 9), raw_bytes(3, 8, 9)[:1] / np.float32(255), "(255 * x).round().astype('uint8')"),
    ],
)
def test_samples_a_task_does_not_take(network, x, wrong, advice):
    learner = learnt(network, x)
    assert advice in refusal(learner.predict, wrong, 0)
    assert learner.predict(follow(advice, wrong), 0).isfinite().all()


def test_bytes_that_were_divided_by_255_are_the_same_bytes_once_the_advice_is_followed():
    x = raw_bytes(6)
    learner = learnt(bocl.mlp(6, [5]), x)
    assert torch.equal(learner.predict((255 * (x / np.float32(255))).round().astype("uint8"), 0), learner.predict(x, 0))


def test_scaled_bytes_are_taken_even_where_they_are_bright_or_of_one_colour():
    learner = learnt(bocl.mlp(6, [5]), raw_bytes(6))
    task = bocl.from_arrays([(raw_bytes(6), LABELS)], test_fraction=0.1)[0]
    bright = np.full((1, 6), 150, dtype=np.uint8)
    bright[0, :3] = 160
    for x in (bright, bright[:, 3:].repeat(2, 1)):
        scaled = bocl.Split(torch.tensor(x), torch.zeros(1), task.train.mean, task.train.std).inputs()
        assert 0 <= scaled.min() <= scaled.max() <= 1
        assert torch.equal(learner.predict(scaled, 0), learner.predict(x, 0))


def test_lists_and_frames_are_taken():
    class Frame:
        """What numpy takes from pandas."""

        def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
            return numbers(6)

    learner = learnt(bocl.mlp(6, [5]), Frame(), LABELS.tolist())
    assert torch.equal(learner.predict(Frame(), 0), learner.predict(numbers(6).tolist(), 0))


# -- tasks, labels and devices -----------------------------------------------------------------------


def test_what_is_learnt_is_one_task():
    learner = bocl.SN(bocl.mlp(6, [5]), recipe=bocl.Recipe(epochs=1), device="cpu")
    pair = (numbers(6), LABELS)
    assert "bocl.from_arrays([(X, y)])[0]; got tuple" in refusal(learner.learn, pair)
    stream = bocl.from_arrays([pair, pair])
    for several in (stream, list(stream), tuple(stream)):
        assert "for task in stream: learner.learn(task)" in refusal(learner.learn, several)
    for task in stream:
        learner.learn(task)
    assert len(learner.seen) == 2


def test_an_unknown_task():
    learner = bocl.SN(bocl.mlp(6, [5]), device="cpu")
    assert refusal(learner.predict, numbers(6), "task 1") == "no task 'task 1' has been learnt, nor any other"
    learner = learnt(bocl.mlp(6, [5]), numbers(6))
    message = refusal(learner.predict, numbers(6), "taks 1")
    name = message.partition("did you mean '")[2].partition("'")[0]
    assert learner.predict(numbers(6), name).shape == (40, 2)


def test_labels_of_another_type_are_not_scored_as_wrong():
    learner = learnt(bocl.mlp(6, [5]), numbers(6))
    message = refusal(learner.score, numbers(6), LABELS.astype(str), 0)
    assert message == "y: no label is one of the task's: '0' is none of [0, 1]; give labels as the task's were given"
    score = learner.score(numbers(6), LABELS, 0)
    assert score == learner.score(numbers(6), LABELS.astype(float), 0)
    assert score == np.mean(np.array(learner.predict_labels(numbers(6), 0)) == LABELS)
    assert learner.score(numbers(6), np.where(LABELS, 1, 7), 0) <= score, "a class that the task has not is wrong"
    assert "labels of shape (40, 2)" in refusal(learner.score, numbers(6), np.eye(2)[LABELS], 0)


def test_scores_of_labels_that_are_tuples():
    kinds = [("a", 1), ("b", 2)]
    labels = [kinds[label] for label in LABELS]
    learner = learnt(bocl.mlp(6, [5]), numbers(6), labels)
    assert learner.score(numbers(6), labels, 0) == np.mean(
        [*map(tuple.__eq__, learner.predict_labels(numbers(6), 0), labels)]
    )


@pytest.mark.parametrize("present", [0, 2])
def test_a_device_that_is_not_there(monkeypatch, present):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: present > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: present)
    sees = {0: "PyTorch sees 0 GPUs", 2: "PyTorch sees 2 GPUs, the last of them cuda:1"}[present]
    for device in ("cuda:2", "gpu", "mps"):
        with pytest.raises(bocl.DeviceError, match=sees):
            bocl.SN(bocl.mlp(6, [5]), device=device)
    with pytest.raises(bocl.DeviceError, match="device='cpu' in the library"):
        bocl.SN(bocl.mlp(6, [5]), device="cuda:2")
    assert bocl.SN(bocl.mlp(6, [5]), device="cpu").device.type == "cpu"

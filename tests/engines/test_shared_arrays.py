"""Tasks whose samples are sent apart: the same tasks come out, and samples are sent once."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

import bocl
from bocl.engines.shared_arrays import LARGE, ArrayStore, unpack
from bocl.tasks.digits import load_digits
from bocl.tasks.permuted import PermutedStream


@pytest.fixture
def sent():
    return []


@pytest.fixture
def store(sent):
    def put(array):
        sent.append(array)
        return len(sent) - 1

    return ArrayStore(put)


def received(packed, sent):
    """Return what another process makes of it, which cannot write to what was sent."""

    def get(references):
        arrays = [sent[place].copy() for place in references]
        for array in arrays:
            array.flags.writeable = False
        return arrays

    return unpack(pickle.loads(pickle.dumps(packed)), get)


def test_tasks_are_the_same_afterwards(store, sent):
    stream = bocl.permuted_digits(tasks=3, seed=1)
    packed = store.pack(stream)
    again = received(packed, sent)
    assert again.fingerprint() == stream.fingerprint()
    assert torch.equal(again[2].train.raw, stream[2].train.raw)
    assert torch.equal(again.test_split(1).labels, stream.test_split(1).labels)
    assert len(packed.rest) < LARGE


def test_samples_of_many_seeds_are_sent_once(store, sent):
    streams = [PermutedStream(load_digits(0), 2, seed, validation=144) for seed in range(3)]
    packed = [store.pack(stream) for stream in streams]
    assert len(sent) == len(packed[0].large) == len(packed[2].large) > 0
    for one, stream in zip(packed, streams, strict=True):
        assert torch.equal(received(one, sent)[1].train.raw, stream[1].train.raw)


def test_views_and_layouts_of_one_tensor_are_told_apart(store, sent):
    whole = torch.arange(3 * LARGE, dtype=torch.uint8).view(3, LARGE)
    value = {"whole": whole, "row": whole[0], "other": whole[1], "turned": whole.T, "small": torch.ones(2)}
    value["floats"] = torch.ones(LARGE, dtype=torch.bfloat16)  # which NumPy does not have
    again = received(store.pack(value), sent)
    assert again.keys() == value.keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in value.items())
    assert len(sent) == 4
    again["whole"].add_(1)  # it is a copy of what was sent


def test_an_array_can_be_written_to_if_it_could_before(store, sent):
    free, fixed = np.zeros(LARGE), np.ones(LARGE)
    fixed.flags.writeable = False
    again = received(store.pack([free, fixed]), sent)
    assert [array.flags.writeable for array in again] == [True, False]

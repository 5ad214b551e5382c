"""Samples from the bytes of a request: what is taken, what is refused and how."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from serving_examples import as_npy, images

from bocl.errors import DataError
from bocl.methods.seen import SeenTask
from bocl.serving.samples import read_samples

FLOATS = SeenTask("floats", 2, (3,), (0.0,), (1.0,), in_bytes=False)
BYTES = SeenTask("bytes", 2, (1, 4, 4), (0.0,), (1.0,), in_bytes=True)
TEXTS = SeenTask("texts", 2, (8,), (0.0,), (1.0,), in_bytes=False, padding=0)


def test_numbers_in_json_are_the_floats_that_they_name():
    wanted = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    found = read_samples(json.dumps({"samples": wanted.tolist()}).encode(), FLOATS, 5)
    assert found.astype(np.float32).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("array", [images(0), images(0)[:, :, ::-1], np.asfortranarray(images(0)), images(0)[:0]])
def test_npy_is_the_array_that_was_saved(array):
    found = read_samples(as_npy(array), BYTES, 100)
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert (found == array).all()


def test_bytes_in_json_are_whole_numbers():
    found = read_samples(json.dumps({"samples": images(0).tolist()}).encode(), BYTES, 100)
    assert found.dtype == np.uint8
    assert (found == images(0)).all()


@pytest.mark.parametrize("about", [FLOATS, BYTES, TEXTS], ids=lambda about: about.name)
def test_no_sample_is_as_good_as_some(about):
    assert len(read_samples(b'{"samples": []}', about, 7)) == 0


def test_texts_and_token_ids():
    assert read_samples(b'{"samples": ["a text", "two [[["]}', TEXTS, 2) == ["a text", "two [[["]
    assert read_samples(b'{"samples": [[1, 2]]}', TEXTS, 2).dtype == np.int64


def header(text, version=b"\x01\x00"):
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "the body is not JSON"),
        (b"\xff", "the body is not JSON"),
        (b"[" * 100_000, "the body is not JSON"),
        (b'{"samples": ' + b"[" * 100 + b"]" * 100 + b"}", "samples are not an array"),
        (b'{"samples": [[NaN, 1, 2]]}', "the body is not JSON"),
        (b"[[1, 2, 3]]", "no list 'samples'"),
        (b'{"samples": 3}', "no list 'samples'"),
        (b'{"samples": [[1, 2, 3]], "task": 1}', "'task' besides 'samples'"),
        (b'{"samples": [[1, 2], [3]]}', "give numbers, in rows of equal length"),
        (b'{"samples": [["1", 2, 3]]}', "hold something in quotes"),
        (b'{"samples": [[{"a": 1}]]}', "hold something in quotes"),
        (b'{"samples": [], "samples": [[1, 2, 3]]}', "hold something in quotes"),
        (b'{"samples": [[1' + b"0" * 5000 + b", 2, 3]]}", "not"),
        (b'{"samples": [1, 2, 3, 4, 5, 6, 7, 8]}', "8 samples; send at most 7"),
        (b"\x93NUMPY", "the .npy header cannot be read"),
        (b"\x93NUMPY\x09\x00\x00\x00", "the .npy header cannot be read"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,"), "the .npy header cannot be read"),
        (header("(" * 5000), "the .npy header cannot be read"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 3)}\n"), "in 12000000000000 bytes"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 3)}\n") + b"1", "has 1"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': ()}\n") + b"1234", "holds a single number"),
        (as_npy(np.zeros((1, 3)))[:-1], "has 23"),
        (as_npy(np.zeros((1, 3))) + b"0", "has 25"),
        (as_npy(np.array([["a"]])), "not numbers"),
        (as_npy(np.array([[object]])), "not numbers"),
        (pickle.dumps([[1, 2, 3]]), "the body is not JSON"),
    ],
)
def test_what_is_no_sample_is_refused_in_one_line(body, said):
    with pytest.raises(DataError) as refused:
        read_samples(body, FLOATS, 7)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("number", [256, -1, 0.5])
def test_bytes_are_not_rounded(number):
    with pytest.raises(DataError, match="whole numbers from 0 to 255"):
        read_samples(json.dumps({"samples": [[[[number] * 4] * 4]]}).encode(), BYTES, 7)


@pytest.mark.parametrize("samples", ['[["red"]]', "[[0.5, 1]]", "[[-1, 1]]"])
def test_texts_are_strings_or_whole_numbers(samples):
    with pytest.raises(DataError, match=r"learnt from texts; give a list of strings, or rows of token ids$"):
        read_samples(b'{"samples": %s}' % samples.encode(), TEXTS, 7)


def test_a_long_string_does_not_widen_the_array(monkeypatch):
    body = json.dumps({"samples": [["x" * 100_000], *[[0]] * 100_000]}).encode()  # 40 GB as an array of strings
    with pytest.raises(DataError, match="hold something in quotes"):
        read_samples(body, FLOATS, 10**6)

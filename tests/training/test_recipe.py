"""Recipes and devices that make no sense are refused, with the value in the message."""

from __future__ import annotations

import math

import pytest
import torch

from bocl.errors import ConfigError, DeviceError
from bocl.training.device import resolve_device, sensible_threads
from bocl.training.recipe import Recipe


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("optimiser", "sdg"),
        ("schedule", "linear"),
        ("learning_rate", 0.0),
        ("learning_rate", math.nan),
        ("momentum", 1.0),
        ("momentum", -0.1),
        ("weight_decay", -1e-4),
        ("weight_decay", math.nan),
        ("batch_size", 0),
        ("epochs", 0),
        ("patience", -1),
    ],
)
def test_a_bad_setting_is_refused_by_name_and_value(name, value):
    with pytest.raises(ConfigError, match=rf"recipe\.{name} is {value}"):
        Recipe(**{name: value})


def test_all_problems_are_told_at_once():
    with pytest.raises(ConfigError, match=r"learning_rate.*; recipe\.epochs"):
        Recipe(learning_rate=-1, epochs=0)


def test_a_misspelt_word_is_answered_with_the_right_ones():
    with pytest.raises(ConfigError, match="it must be adam or sgd"):
        Recipe(optimiser="sdg")


@pytest.mark.parametrize("name", ["tpu", "cuda:x", "cuda:99", "gpu"])
def test_a_device_that_is_not_there_is_refused(name):
    with pytest.raises(DeviceError, match=name):
        resolve_device(name)


def test_auto_takes_what_there_is():
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert resolve_device("cpu") == torch.device("cpu")


def test_small_steps_use_one_thread_and_leave_the_count_as_it_was():
    torch.set_num_threads(2)
    with sensible_threads(10):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    with sensible_threads(10**9):
        assert torch.get_num_threads() == 2
    with pytest.raises(RuntimeError, match="boom"), sensible_threads(10):
        raise RuntimeError("boom")
    assert torch.get_num_threads() == 2

"""Recipes and devices that make no sense are refused, with the value in the message."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch

from bocl.errors import ConfigError, DeviceError
from bocl.training.device import resolve_device
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
        ("optimiser", None),
        ("precision", ["tf32"]),
        ("learning_rate", "fast"),
        ("learning_rate", math.inf),
        ("learning_rate", True),
        ("learning_rate", 10**400),
        ("weight_decay", None),
        ("epochs", "a"),
        ("epochs", 1.5),
        ("epochs", True),
        ("batch_size", 2.5),
    ],
)
def test_a_bad_setting_is_refused_by_name_and_value(name, value):
    shown = re.escape(repr(value)[:57])
    with pytest.raises(ConfigError, match=rf"recipe\.{name} is {shown}.*; it must be"):
        Recipe(**{name: value})


def test_numbers_of_numpy_are_taken_as_python_holds_them():
    recipe = Recipe(learning_rate=np.float32(0.5), epochs=np.int64(3), momentum=0)
    assert recipe == Recipe(learning_rate=0.5, epochs=3, momentum=0.0)
    assert [type(value) for value in (recipe.learning_rate, recipe.epochs, recipe.momentum)] == [float, int, float]


def test_all_problems_are_told_at_once():
    with pytest.raises(ConfigError, match=r"learning_rate.*; recipe\.epochs"):
        Recipe(learning_rate=-1, epochs=0)


def test_validation_samples_cannot_stop_a_training_and_be_part_of_it():
    with pytest.raises(ConfigError, match=r"recipe\.patience is 2.*recipe\.use_validation"):
        Recipe(patience=2, use_validation=True)


def test_a_misspelt_word_is_answered_with_the_right_ones():
    with pytest.raises(ConfigError, match="it must be 'adam', 'sgd' or 'adamw'"):
        Recipe(optimiser="sdg")


@pytest.mark.parametrize("name", ["tpu", "cuda:x", "cuda:99", "gpu", "cuda:", "cuda:²", "cpu:1", "cpu:x", ""])
def test_a_device_that_is_not_there_is_refused(name):
    with pytest.raises(DeviceError, match=f"'{name}'"):
        resolve_device(name)


@pytest.mark.parametrize("name", [None, 0, torch.device("meta"), torch.device("cpu", 1)])
def test_what_names_no_device_is_refused(name):
    with pytest.raises(DeviceError, match="use auto, cpu, cuda or cuda:N"):
        resolve_device(name)


def test_auto_takes_what_there_is():
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert resolve_device("cpu") == resolve_device(torch.device("cpu")) == torch.device("cpu")
    assert resolve_device("cpu:0") == torch.device("cpu")

"""Weights of classes: of mean 1 over the training samples, whatever they are given as."""

from __future__ import annotations

import numpy as np
import pytest

from bocl.errors import ConfigError, DataError
from bocl.experiment.build import build_stream
from bocl.experiment.config import load_config
from bocl.tasks.arrays import from_arrays
from bocl.tasks.class_weights import class_weights_of
from bocl.tasks.own import Cuts, Parts, make_own_task

LABELS = np.array([0, 0, 0, 1])
KINDS = ("ham", "spam")


def weights(given):
    return class_weights_of(given, LABELS, KINDS, "tasks[0]")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("balanced", (2 / 3, 2)),
        ({"ham": 1, "spam": 3}, (2 / 3, 2)),
        ({"ham": 10, "spam": 30, "of another task": 5}, (2 / 3, 2)),
        ({"spam": 5}, (0.5, 2.5)),
        ({"ham": 0, "spam": 0.1}, (0, 4)),
    ],
)
def test_the_mean_over_samples_is_one(given, wanted):
    assert weights(given) == pytest.approx(wanted)
    assert np.mean(np.array(weights(given))[LABELS]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("even", r"^tasks\[0\]: class_weight is 'even'; give \"balanced\" or a weight for each label$"),
        (2.0, r"^tasks\[0\]: class_weight is 2\.0; give"),
        ({"sapm": 5}, r"^tasks\[0\]: class_weight has no weight for 'ham', and one for 'sapm', which no sample has;"),
        ({"spam": -1}, r"^tasks\[0\]: class_weight: weight is -1; it must be at least 0$"),
        ({"spam": np.nan}, r"^tasks\[0\]: class_weight: weight is nan; it must be a finite number$"),
        ({"ham": 0, "spam": 0}, r"^tasks\[0\]: class_weight is 0 for every class; give one of them a weight above 0$"),
    ],
)
def test_what_is_no_weight_is_refused(given, message):
    with pytest.raises(DataError, match=message):
        weights(given)


def pairs():
    y = np.arange(50) % 5 == 0
    return [(np.random.default_rng(0).normal(size=(50, 2)), y)]


def test_a_task_has_none_unless_told():
    plain, weighted = from_arrays(pairs()), from_arrays(pairs(), class_weight="balanced")
    assert plain[0].class_weights == ()
    assert weighted[0].class_weights == pytest.approx((18 / 29, 18 / 7)), "of 29 and 7 training samples"
    assert plain.fingerprint() == from_arrays(pairs()).fingerprint() != weighted.fingerprint()


def test_a_task_may_have_no_test_part():
    (pair,) = pairs()
    task, test = make_own_task("all", 0, Parts(pair), Cuts(test=0), str)
    assert (len(task.train), len(task.validation), len(test)) == (45, 5, 0)
    assert test.inputs().shape == (0, 2)
    two = (np.zeros((4, 2)), ["a", "a", "b", "b"])
    assert len(make_own_task("least", 0, Parts(two), Cuts(test=0), str)[0].train) == 2


def test_a_run_of_own_files_takes_them(tmp_path):
    ((x, y),) = pairs()
    np.savez(tmp_path / "spring.npz", x=x, y=y)
    config = load_config(None, [f"stream.name={tmp_path}", "stream.tasks=1", "stream.class_weight=balanced"])
    (task,) = build_stream(config)
    assert task.class_weights == from_arrays(pairs(), class_weight="balanced")[0].class_weights
    with pytest.raises(ConfigError, match=r"stream\.class_weight: .*'even'"):
        load_config(None, ["stream.class_weight=even"])

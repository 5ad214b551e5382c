"""Leave-one-out by its closed form is what leaving one out gives; a calibrated process is told from one that is not."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from bocl.search.accuracy_model import Accuracies, condition, fit, predict
from bocl.search.diagnostics import leave_one_out, width_posterior
from bocl.search.problem import Problem


def data(count: int = 20, noise: float = 0.01) -> Accuracies:
    generator = np.random.default_rng(0)
    inputs = generator.random((count, 2))
    values = 0.5 + 0.2 * inputs[:, 0] + noise * generator.normal(size=count)
    return Accuracies(inputs, np.zeros(count, dtype=np.int64), values)


def test_leave_one_out_is_leaving_one_out() -> None:
    model = fit(data())
    for left in (0, 7):
        rest = np.delete(np.arange(20), left)
        others = Accuracies(model.data.inputs[rest], model.data.tasks[rest], model.data.values[rest])
        mean, std = predict(condition(others, model.centre, model.spread, model.hyperparameters), data().inputs[[left]])
        doubt = math.hypot(float(std[0]), model.noise_std)
        expected = (model.data.values[left] - float(mean[0])) / doubt
        assert leave_one_out(model)[left] == pytest.approx(expected, rel=1e-6)


def test_a_process_too_sure_of_itself_shows() -> None:
    model = fit(data(40))
    sure = condition(model.data, model.centre, model.spread, replace(model.hyperparameters, noise=1e-5))
    assert 0.7 < np.abs(leave_one_out(model)).std() + np.abs(leave_one_out(model)).mean() < 2
    assert np.abs(leave_one_out(sure)).mean() > 2 * np.abs(leave_one_out(model)).mean()


def test_the_posterior_lies_where_the_best_widths_are() -> None:
    widths = np.array([[a, b] for a in range(6) for b in range(4)])
    inputs = np.log1p(widths) / np.log1p([5, 3])
    values = 0.5 + 0.1 * (widths[:, 0] == 4) + 0.0005 * np.random.default_rng(0).normal(size=24)
    model = fit(Accuracies(inputs, np.zeros(24, dtype=np.int64), values))
    costly = Problem((5, 3), lambda z: z.sum(1), lambda z: 0.02 * z[:, 1])
    first, second = width_posterior(model, costly, widths, seed=0)
    assert first.argmax() == 4
    assert second.argmax() == 0
    assert first.sum() == pytest.approx(1)

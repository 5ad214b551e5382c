"""The process on accuracy: what tasks share, what they do not, and what a failed fit leaves."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from bocl.search import accuracy_model
from bocl.search.accuracy_model import Accuracies, believe, draw, fit, predict, prior_modes, scale
from bocl.search.problem import FloatArray


def rising(inputs: FloatArray, worth: tuple[float, float]) -> FloatArray:
    result: FloatArray = 0.5 + inputs @ np.array(worth)
    return result


def data_of(tasks: dict[int, tuple[float, float]], points: int = 12, noise: float = 0.002, seed: int = 0) -> Accuracies:
    """Accuracies of tasks with a worth of each group, every task at a level of its own."""
    generator = np.random.default_rng(seed)
    inputs = generator.random((points * len(tasks), 2))
    numbers = np.repeat(list(tasks), points)
    values = np.concatenate([rising(inputs[numbers == task], worth) + 0.05 * task for task, worth in tasks.items()])
    return Accuracies(inputs, numbers, values + noise * generator.normal(size=len(values)))


def test_inputs_are_logarithms_and_groups_that_cannot_grow_are_left_out() -> None:
    scaled = scale([(0, 0, 3), (30, 0, 7), (2, 0, 0)], (30, 0, 7))
    expected = [[0, math.log(4) / math.log(8)], [1, 1], [math.log(3) / math.log(31), 0]]
    np.testing.assert_allclose(scaled, expected)


def test_it_learns_a_surface_and_its_noise() -> None:
    model = fit(data_of({0: (0.1, 0.02)}, points=40, noise=0.004))
    inputs = np.random.default_rng(5).random((50, 2))
    mean, std = predict(model, inputs)
    assert np.abs(mean - rising(inputs, (0.1, 0.02))).max() < 0.01
    assert std.max() < 0.01
    assert 0.002 < model.noise_std < 0.008


def test_earlier_tasks_tell_the_shape_where_tasks_are_alike() -> None:
    alike = data_of({0: (0.1, 0.02), 1: (0.1, 0.02), 2: (0.1, 0.02)})
    own = alike.tasks == 0
    few = np.flatnonzero(own)[:2]
    rows = np.concatenate([few, np.flatnonzero(~own)])
    with_earlier = fit(Accuracies(alike.inputs[rows], alike.tasks[rows], alike.values[rows]))
    alone = fit(Accuracies(alike.inputs[few], alike.tasks[few], alike.values[few]))
    inputs = np.random.default_rng(5).random((50, 2))
    truth = rising(inputs, (0.1, 0.02))

    def error(model: accuracy_model.AccuracyModel) -> float:
        return float(np.abs(predict(model, inputs)[0] - truth).mean())

    assert error(with_earlier) < 0.006 < error(alone)


def test_tasks_that_differ_inform_each_other_less() -> None:
    alike = fit(data_of({0: (0.1, 0.02), 1: (0.1, 0.02), 2: (0.1, 0.02)})).hyperparameters
    unlike = fit(data_of({0: (0.1, 0.0), 1: (0.0, 0.1), 2: (-0.1, 0.1)})).hyperparameters
    shared, own = 2, -1  # where AccuracyKernel has the two variances
    assert unlike.kernel[own] / unlike.kernel[shared] > 3 * alike.kernel[own] / alike.kernel[shared]


def test_believing_a_point_keeps_the_mean_and_shrinks_the_doubt() -> None:
    model = fit(data_of({0: (0.1, 0.02), 1: (0.1, 0.03)}, points=5))
    inputs = np.random.default_rng(5).random((20, 2))
    believing = believe(model, inputs[:1])
    (mean, std), (after, less) = predict(model, inputs), predict(believing, inputs)
    np.testing.assert_allclose(after, mean, atol=1e-9)
    assert less[0] < 0.9 * std[0]
    assert (less <= std + 1e-12).all()


def test_draws_have_the_mean_and_deviation_that_is_predicted() -> None:
    model = fit(data_of({0: (0.1, 0.02)}, points=6))
    inputs = np.random.default_rng(5).random((8, 2))
    mean, std = predict(model, inputs)
    drawn = draw(model, inputs, 4000, seed=0)
    np.testing.assert_allclose(drawn.mean(0), mean, atol=0.1 * std.max())
    np.testing.assert_allclose(drawn.std(0), std, rtol=0.1)


@pytest.mark.parametrize("earlier_tasks", [False, True])
def test_the_kernel_is_what_gpytorchs_own_add_up_to(earlier_tasks: bool) -> None:
    from gpytorch.kernels import MaternKernel

    from bocl.search.accuracy_kernel import AccuracyKernel

    generator = torch.Generator().manual_seed(0)
    points, others = (
        torch.cat([torch.rand(n, 3, generator=generator), torch.randint(2, (n, 1), generator=generator)], 1).double()
        for n in (7, 5)
    )
    values = [0.3, 0.5, 0.7, 1.5, 0.4, *([0.2, 0.4, 0.9, 0.6] if earlier_tasks else [])]

    def matern(lengthscales: list[float]) -> torch.Tensor:
        kernel = MaternKernel(nu=2.5, ard_num_dims=3).double()
        kernel.lengthscale = torch.tensor(lengthscales)
        return kernel(points[:, :3], others[:, :3]).to_dense()

    same = points[:, 3:] == others[:, 3]
    own = 0.6 * matern(values[5:8]) if earlier_tasks else 0.0
    expected = 1.5 * matern(values[:3]) + same * (own + 0.4)
    kernel = AccuracyKernel(np.array(values), np.array(values), 3)
    with torch.no_grad():
        torch.testing.assert_close(kernel(points, others).to_dense(), expected, rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(kernel.variance.expand(7), kernel(points).to_dense().diagonal())


def test_a_fit_that_breaks_down_leaves_the_last_hyperparameters(monkeypatch: pytest.MonkeyPatch) -> None:
    data = data_of({0: (0.1, 0.02)})
    last = fit(data).hyperparameters
    monkeypatch.setattr(accuracy_model, "maximise_likelihood", lambda *_: False)
    assert fit(data, last).hyperparameters is last
    assert fit(data).hyperparameters.kernel.tolist() == prior_modes(2, earlier_tasks=False).kernel.tolist()
    with_earlier = fit(data_of({0: (0.1, 0.02), 1: (0.1, 0.02)}), last).hyperparameters
    # the last ones are of another model
    assert with_earlier.kernel.tolist() == prior_modes(2, earlier_tasks=True).kernel.tolist()


def test_iterations_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = []
    real = accuracy_model.maximise_likelihood

    def spy(model: object, iterations: int) -> bool:
        limits.append(iterations)
        return real(model, 1)

    monkeypatch.setattr(accuracy_model, "maximise_likelihood", spy)
    model = fit(data_of({0: (0.1, 0.02)}))
    assert limits == [accuracy_model.FIT_ITERATIONS]
    assert np.isfinite(predict(model, np.array([[0.5, 0.5]]))[0]).all()


@pytest.mark.parametrize("values", [[0.5], [0.5, 0.5, 0.5], [0.0, 1.0, 0.0]])
def test_little_or_dull_data_is_no_reason_to_stop(values: list[float]) -> None:
    count = len(values)
    model = fit(Accuracies(np.linspace(0, 1, count)[:, None], np.zeros(count, dtype=np.int64), np.array(values)))
    mean, std = predict(model, np.array([[0.2], [0.9]]))
    assert np.isfinite(mean).all()
    assert (std > 0).all()

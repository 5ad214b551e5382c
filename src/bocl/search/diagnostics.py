"""What a person may ask about a search: can its process be trusted, what does it believe, why was a point chosen.

leave-one-out    residual_i = w_i / P_ii,  std_i = 1 / √P_ii        P = (K + noise)⁻¹, w = P targets
width posterior  for each group, the share of draws of r from the process whose best point has this width
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from bocl.records.record import Diagnostics
from bocl.search.accuracy_model import AccuracyModel, draw, scale
from bocl.search.one_thread import quiet_single_thread
from bocl.search.problem import FloatArray, IntArray, Problem

DRAWS = 256


def diagnose(
    model: AccuracyModel, problem: Problem, points: IntArray, gains: Sequence[float], *, seed: int
) -> Diagnostics:
    """Describe a fitted process; one of ``points`` (n, groups) is taken to be the best; ``gains`` has one per trial."""
    errors = leave_one_out(model)[model.data.tasks == 0]
    posterior = width_posterior(model, problem, points, seed=seed)
    return Diagnostics(
        errors=tuple(errors.round(4).tolist()),
        within_50=float((np.abs(errors) <= 0.674).mean()),
        within_90=float((np.abs(errors) <= 1.645).mean()),
        noise=model.noise_std,
        posterior=tuple(tuple(shares.round(4).tolist()) for shares in posterior),
        gains=tuple(gains),
    )


def leave_one_out(model: AccuracyModel) -> FloatArray:
    """Return (n,): each measurement less its prediction from all others, in predictive standard deviations."""
    with quiet_single_thread():
        precision = torch.cholesky_inverse(model.factor).diagonal()
        errors: FloatArray = (model.weights.squeeze(-1) / precision.sqrt()).numpy()
    return errors


def width_posterior(model: AccuracyModel, problem: Problem, points: IntArray, *, seed: int) -> list[FloatArray]:
    """Return for each group the probabilities (bound + 1,) of its width in the best of points (n, groups)."""
    drawn = draw(model, scale(points, problem.bounds, problem.choices), DRAWS, seed)
    best = points[problem.reward(drawn, points).argmax(1)]  # (draws, groups)
    bounds = problem.bounds[: problem.groups]
    return [np.bincount(best[:, group], minlength=bound + 1) / len(best) for group, bound in enumerate(bounds)]

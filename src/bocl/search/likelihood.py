"""What the two Gaussian processes have in common: model, weak priors, positive parameters, a fit of few iterations.

BoTorch and GPyTorch are imported when they are used: that takes seconds, and most users never need them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bocl.search.problem import FloatArray


def log_normal(mode: float | FloatArray) -> Any:
    """Return a log-normal prior with its highest density at ``mode``, a number or an array."""
    from gpytorch.priors import LogNormalPrior

    modes = torch.as_tensor(mode, dtype=torch.float64)
    return LogNormalPrior(modes.log() + 1.0, torch.ones_like(modes))  # its mode is exp(loc - scale²)


def positive() -> Any:
    """Return a constraint under which a parameter is stored as its logarithm."""
    from gpytorch.constraints import Positive

    return Positive(transform=torch.exp, inv_transform=torch.log)


def make_model(
    inputs: Tensor | FloatArray, targets: FloatArray, kernel: Any, *, noise: float, noise_mode: float
) -> Any:
    """Return the BoTorch model of targets (n,) at inputs (n, d): a process of mean zero, measured with noise."""
    from botorch.models import SingleTaskGP
    from gpytorch.likelihoods import GaussianLikelihood
    from gpytorch.means import ZeroMean

    model = SingleTaskGP(
        torch.as_tensor(inputs),
        torch.as_tensor(targets).unsqueeze(-1),
        likelihood=GaussianLikelihood(noise_prior=log_normal(noise_mode), noise_constraint=positive()),
        covar_module=kernel,
        mean_module=ZeroMean(),
        outcome_transform=None,
    )
    model.likelihood.noise = torch.tensor([noise], dtype=torch.float64)
    return model


def maximise_likelihood(model: Any, iterations: int) -> bool:
    """Fit a model's hyperparameters to likelihood times prior by L-BFGS-B; return whether they can be used.

    Iterations are limited rather than seconds: results must not depend on the machine's load.
    """
    from botorch.exceptions.errors import OptimizationGradientError
    from botorch.optim.fit import fit_gpytorch_mll_scipy
    from gpytorch.mlls import ExactMarginalLogLikelihood
    from linear_operator.utils.errors import NanError, NotPSDError

    model.train()
    objective = ExactMarginalLogLikelihood(model.likelihood, model)
    try:
        fit_gpytorch_mll_scipy(objective, options={"maxiter": iterations})
    except (OptimizationGradientError, NanError, NotPSDError):
        return False
    found = [logs.exp() for logs in model.parameters()]
    return all(bool((values.isfinite() & (values > 0)).all()) for values in found)

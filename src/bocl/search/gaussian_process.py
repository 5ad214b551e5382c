"""A Gaussian process on rewards and its expected improvement. Numpy in, numpy out; float64 throughout.

    name           paper   shape    meaning
    inputs         Z       (n, d)   points tried, scaled to the unit box
    rewards        r       (n,)     what they were worth
    targets                (n,)     (r - centre) / spread: the process has mean zero on these
    lengthscales           (d,)     one per input (ARD)
    outputscale            ()       variance of f
    noise          σ_m²    ()       variance of ε in r = f(z) + ε
    mean, std      μ, √Σ   (k,)     of f at k other points; Σ is a variance, so the improvement divides by √Σ
    best           r*      ()       highest reward so far

    k(a, b) = outputscale · (1 + √5 δ + 5/3 δ²) exp(-√5 δ),   δ² = Σ_i (a_i - b_i)² / lengthscale_i²
    EI(z)   = (μ - r*) Φ(u) + √Σ φ(u),                         u = (μ - r*) / √Σ

The paper leaves open how hyperparameters are found. Three points do not determine them (the likelihood often has no
maximum), so we multiply it by weak log-normal priors: a deviation that fades as trials come in.
The logarithm of EI is maximised, which has the same maximiser and does not underflow far from the best.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from bocl.search.likelihood import log_normal, make_model, maximise_likelihood, positive
from bocl.search.one_thread import quiet_single_thread
from bocl.search.problem import FloatArray

FIT_ITERATIONS = 100  # iterations, not seconds: results must not depend on the machine's load
ASCENT_ITERATIONS = 100
RESTARTS = 8
STARTING_POINTS = 128  # quasi-random points from which the restarts are drawn


@dataclass(frozen=True)
class Hyperparameters:
    """What a fit decides, in units of the standardised targets."""

    lengthscales: FloatArray  # (d,)
    outputscale: float
    noise: float


@dataclass(frozen=True)
class GaussianProcess:
    """A process conditioned on data: all that its predictions depend on."""

    inputs: FloatArray  # (n, d)
    targets: FloatArray  # (n,)
    centre: float
    spread: float
    hyperparameters: Hyperparameters


def prior_modes(dimensions: int) -> Hyperparameters:
    """Return the most likely values before any data; every fit starts from them.

    Distances in the unit box grow as √d, and so do the lengthscales. Accuracy saturates within a part of the box, hence
    0.3: from 0.5 on, a search of four groups spends its first trials on corners and stays behind random search.
    """
    return Hyperparameters(np.full(dimensions, 0.3 * math.sqrt(dimensions)), outputscale=1.0, noise=0.01)


def fit(inputs: FloatArray, rewards: FloatArray) -> GaussianProcess:
    """Condition a process on inputs (n, d) and rewards (n,), not all equal.

    Hyperparameters maximise likelihood times prior, by L-BFGS-B from the prior modes. If that fails, the modes stay.
    """
    centre, spread = float(rewards.mean()), float(rewards.std(ddof=1))
    start = prior_modes(inputs.shape[1])
    process = GaussianProcess(inputs, (rewards - centre) / spread, centre, spread, start)
    with quiet_single_thread():
        model = _model(process)
        if not maximise_likelihood(model, FIT_ITERATIONS):
            return process
        kernel = model.covar_module
        lengthscales: FloatArray = kernel.base_kernel.lengthscale.detach().reshape(-1).numpy().copy()
        found = Hyperparameters(lengthscales, kernel.outputscale.item(), model.likelihood.noise.item())
        return replace(process, hyperparameters=found)


def believe(process: GaussianProcess, inputs: FloatArray) -> GaussianProcess:
    """Return the process as if the points (k, d) had been tried and had given their posterior mean.

    The mean stays the same everywhere; the uncertainty around the points shrinks.
    """
    believed = (predict(process, inputs)[0] - process.centre) / process.spread
    inputs, targets = np.concatenate([process.inputs, inputs]), np.concatenate([process.targets, believed])
    return replace(process, inputs=inputs, targets=targets)


def predict(process: GaussianProcess, inputs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard deviation of f, in rewards, at inputs (k, d): (k,), (k,)."""
    with quiet_single_thread():
        model = _model(process)
        model.eval()
        with torch.no_grad():
            posterior = model.posterior(torch.as_tensor(inputs))
            mean: FloatArray = posterior.mean.squeeze(-1).numpy()
            variance: FloatArray = posterior.variance.squeeze(-1).numpy()
    return process.centre + process.spread * mean, process.spread * np.sqrt(variance)


def log_expected_improvement(process: GaussianProcess, inputs: FloatArray, best: float) -> FloatArray:
    """Return log EI, EI in rewards, at inputs (k, d): (k,)."""
    with quiet_single_thread(), torch.no_grad():
        values: FloatArray = _acquisition(process, best)(torch.as_tensor(inputs).unsqueeze(-2)).numpy()
    return values + math.log(process.spread)


def maximise_improvement(process: GaussianProcess, best: float, seed: int) -> FloatArray:
    """Return the ends of all ascents of log EI in the unit box, by L-BFGS-B, best first: (restarts, d).

    Ascents start from quasi-random points, those of high values preferred.
    """
    with quiet_single_thread():
        from botorch.optim.optimize import optimize_acqf

        box = torch.tensor([[0.0], [1.0]], dtype=torch.float64).expand(2, process.inputs.shape[1])
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed the GPUs as well
            points, values = optimize_acqf(
                _acquisition(process, best),
                bounds=box,
                q=1,
                num_restarts=RESTARTS,
                raw_samples=STARTING_POINTS,
                options={"maxiter": ASCENT_ITERATIONS, "seed": seed},
                return_best_only=False,
                retry_on_optimization_warning=False,  # an ascent cut short still ends at a useful point
            )
    order = np.argsort(-np.asarray(values), kind="stable")
    ends: FloatArray = np.asarray(points)[order, 0]
    return ends


def _model(process: GaussianProcess) -> Any:
    """Return the BoTorch model of a process, its hyperparameters set and its priors registered."""
    from gpytorch.kernels import MaternKernel, ScaleKernel

    values, dimensions = process.hyperparameters, process.inputs.shape[1]
    modes = prior_modes(dimensions)
    matern = MaternKernel(
        nu=2.5,
        ard_num_dims=dimensions,
        lengthscale_prior=log_normal(float(modes.lengthscales[0])),
        lengthscale_constraint=positive(),
    )
    kernel = ScaleKernel(matern, outputscale_prior=log_normal(modes.outputscale), outputscale_constraint=positive())
    kernel.double()
    matern.lengthscale = torch.as_tensor(values.lengthscales)
    kernel.outputscale = torch.tensor(values.outputscale, dtype=torch.float64)
    return make_model(process.inputs, process.targets, kernel, noise=values.noise, noise_mode=modes.noise)


def _acquisition(process: GaussianProcess, best: float) -> Any:
    """Return BoTorch's log EI of the standardised process."""
    from botorch.acquisition.analytic import LogExpectedImprovement

    model = _model(process).requires_grad_(False)
    model.eval()
    # A tensor, because BoTorch would turn a Python number into float32.
    reference = torch.tensor((best - process.centre) / process.spread, dtype=torch.float64)
    return LogExpectedImprovement(model, best_f=reference)

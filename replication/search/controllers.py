"""RCL's controller, as released and tuned, compared with random search on simulated rewards.

r(z) = A + Σ_i a_i (1 - exp(-z_i / s_i)) - Σ_i p_i z_i,  observed with noise: accuracy that saturates in every group,
at a price per unit; a, s and p are drawn for every seed. 50 trials in {0 … 29}⁴.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from statistics import fmean, stdev
from typing import Any

import numpy as np

from bocl.records.record import Trial
from bocl.search.problem import Problem
from bocl.search.reinforce import ReinforceSearch
from bocl.search.searchers import make_searcher
from bocl.search.settings import SearchSettings
from bocl.widths import Widths

BOUNDS = (29,) * 4
TRIALS = 50
LATE = 15  # last trials, which show what was learnt
NOISE = 0.01


@dataclass(frozen=True)
class Outcome:
    """How one search went, in true rewards.

    late     mean of the last trials
    best     reward of the widths that it would commit
    entropy  of the policy at the end, as a share of that of uniform draws; 1 without a policy
    """

    late: float
    best: float
    entropy: float


def simulated_reward(seed: int) -> Callable[[Widths], float]:
    """Return a reward drawn by a seed."""
    generator = np.random.default_rng(seed)
    worth, scale = generator.uniform(0.005, 0.05, len(BOUNDS)), generator.uniform(2, 10, len(BOUNDS))
    price = 0.005 * generator.dirichlet(np.ones(len(BOUNDS)))
    return lambda z: float(0.5 + (worth * (1 - np.exp(-np.array(z) / scale)) - price * np.array(z)).sum())


def searched(seed: int, **settings: Any) -> Outcome:
    """Search the reward of a seed."""
    reward, noise = simulated_reward(seed), np.random.default_rng([seed, 1])
    problem = Problem(BOUNDS, lambda z: z.sum(1), lambda z: np.zeros(len(z)), seed=seed)
    searcher = make_searcher(problem, SearchSettings(trials=TRIALS, patience=TRIALS, warm_points=0, **settings))
    tried: list[Widths] = []
    while asked := searcher.ask(8):
        observed = [reward(widths) + NOISE * noise.normal() for widths in asked]
        searcher.tell([Trial(widths, value, 0, value) for widths, value in zip(asked, observed, strict=True)])
        tried += asked
    entropy = 1.0
    if isinstance(searcher, ReinforceSearch):
        uniform = sum(log(bound + 1) for bound in BOUNDS)
        entropy = searcher.controller.entropy(tried[-LATE:]) / uniform
    return Outcome(fmean(map(reward, tried[-LATE:])), reward(searcher.best()), entropy)


def main(seeds: int = 40) -> None:
    """Print the table of the README."""
    kinds: dict[str, dict[str, Any]] = {
        "random": {"kind": "random"},
        "as released": {"kind": "reinforce", "controller": "as-released"},
        "tuned": {"kind": "reinforce", "controller": "tuned"},
    }
    outcomes = {name: [searched(seed, **kind) for seed in range(seeds)] for name, kind in kinds.items()}
    for name, found in outcomes.items():
        late = [100 * (one.late - other.late) for one, other in zip(found, outcomes["random"], strict=True)]
        best = [100 * (one.best - other.best) for one, other in zip(found, outcomes["random"], strict=True)]
        print(
            f"| {name} | {fmean(late):+.2f} ± {stdev(late):.2f} | {sum(gain > 0 for gain in late)} of {seeds} "
            f"| {fmean(best):+.2f} ± {stdev(best):.2f} | {fmean(one.entropy for one in found):.3f} |"
        )


if __name__ == "__main__":
    main()

"""Optuna's samplers as searchers, for comparison. bocl does not depend on Optuna: ``pip install optuna``."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal

from bocl.errors import InputError
from bocl.records.record import Trial
from bocl.search.ledger import Ledger
from bocl.search.problem import Problem
from bocl.search.settings import SearchSettings
from bocl.seeding import seed_for
from bocl.widths import Widths

Sampler = Literal["tpe", "gp"]


def optuna() -> Any:
    """Return the module without its log messages, or say how to install it."""
    try:
        import optuna
    except ImportError as error:
        raise InputError("Optuna is not installed; pip install optuna, or leave its searchers out") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


class OptunaSearch:
    """A sampler on the reward, which knows z = 0. If it asks for widths again, it gets the nearest untried ones."""

    def __init__(self, problem: Problem, settings: SearchSettings, sampler: Sampler) -> None:
        """Prepare a study of the problem."""
        library, seed = optuna(), seed_for(problem.seed, "optuna") % 2**32
        with _quiet():
            kind = library.samplers.TPESampler if sampler == "tpe" else library.samplers.GPSampler
            chosen = kind(seed=seed)
        self._ledger = Ledger(problem, settings)
        self._study = library.create_study(sampler=chosen, direction="maximize")
        self._ranges = {
            str(group): library.distributions.IntDistribution(0, bound) for group, bound in enumerate(problem.bounds)
        }
        self._pending: dict[Widths, Any] = {}
        for trial in problem.trained:
            self._add(trial)

    def ask(self, count: int) -> list[Widths]:
        """Return 1 … count new widths, [] when there is nothing more to try."""
        return [self._hand_out() for _ in range(self._ledger.room(count))]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Take in trained children."""
        self._ledger.take_in(trials)
        failed = optuna().trial.TrialState.FAIL
        for trial in trials:
            asked = self._pending.pop(trial.widths, None)
            if asked is not None:
                self._study.tell(asked, state=failed)  # the trained child is added as a trial of its own
            if not trial.failed:
                self._add(trial)

    def best(self) -> Widths:
        """Return the widths of the trained child with the highest reward."""
        return self._ledger.best()

    def _add(self, trial: Trial) -> None:
        widths = {str(group): width for group, width in enumerate(trial.widths)}
        made = optuna().trial.create_trial(params=widths, distributions=self._ranges, value=trial.reward)
        self._study.add_trial(made)

    def _hand_out(self) -> Widths:
        ledger = self._ledger
        with _quiet():
            asked = self._study.ask(self._ranges)
        widths: Widths = tuple(asked.params[name] for name in self._ranges)
        if not ledger.free([widths]):
            widths = ledger.nearest(widths)[0]
        self._pending[widths] = asked
        ledger.hand_out(widths)
        return widths


def _quiet() -> warnings.catch_warnings[None]:
    """Hide the library's warnings about experimental features."""
    return warnings.catch_warnings(action="ignore")

"""Fixtures for runs."""

from __future__ import annotations

import pytest
from experiment_examples import SMALL, Stopped

from bocl.experiment import round_archive
from bocl.experiment.config import load_config
from bocl.methods.round_trainer import LocalTrainer


@pytest.fixture
def small():
    """Return a function from overrides to a small config."""
    return lambda *overrides: load_config("digits", [*SMALL, *overrides])


@pytest.fixture
def stop_before(monkeypatch):
    """Return a function that lets so many more rounds be trained, then stops the run; it returns those trained."""

    def limit(most):
        trained = []

        class Limited(LocalTrainer):
            def __call__(self, asked, *arguments):
                if len(trained) == most:
                    raise Stopped
                trained.append((asked.widths, asked.reads))
                return super().__call__(asked, *arguments)

        monkeypatch.setattr(round_archive, "LocalTrainer", Limited)
        return trained

    return limit

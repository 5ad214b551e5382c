"""Fixtures for runs."""

from __future__ import annotations

import pytest
from experiment_examples import SMALL

from bocl.experiment.config import load_config


@pytest.fixture
def small():
    """Return a function from overrides to a small config."""
    return lambda *overrides: load_config("digits", [*SMALL, *overrides])

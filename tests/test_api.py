"""The public names, pinned: adding or removing one is a decision, not an accident."""

from __future__ import annotations

import subprocess
import sys

import pytest
from bocl.methods.registry import METHODS

import bocl

NAMES = {
    *("__version__", "BoclError", "ConfigError", "DataError", "InputError", "NetworkError"),
    *("BOCL", "SN", "EWC", "GEM", "PGN", "DEN", "RCL", "Fixed", "Frozen", "Independent", "Joint"),
    *("EWCSettings", "GEMSettings", "PGNSettings", "DENSettings"),
    *("Learned", "load", "run", "load_config", "summarise"),
    *("mlp", "lenet", "resnet", "trace"),
    *("GrowthSettings", "GoalSettings", "RewardSettings", "SearchSettings", "Recipe"),
    *("Problem", "Searcher", "Trial"),
    *("Split", "Task", "TaskStream", "from_arrays"),
    *("permuted_digits", "permuted_mnist", "mixed_mnist", "split_cifar100"),
}


def test_the_public_names_are_these():
    assert set(bocl.__all__) == NAMES
    assert set(dir(bocl)) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES - {"__version__"}))
def test_every_public_name_resolves_and_explains_itself(name):
    assert getattr(bocl, name).__doc__


def test_every_method_is_public():
    assert set(METHODS.values()) <= {getattr(bocl, name) for name in NAMES}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Bocl'"):
        _ = bocl.Bocl


def test_importing_bocl_does_not_import_torch():
    code = "import sys, bocl; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
